"""Models that learn from all images join the folds of their run: --folds all."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from podium.folds.folds import Folds
from podium.saved_runs.fold_names import WHOLE
from podium.saved_runs.prediction_files import Predictions
from templates import copied
from tiny import (
    FAST,
    Podium,
    assert_rebuilt,
    assert_says,
    assert_stopped_and_resumed_alike,
    done,
    one_line,
    podium_at,
    run_of,
    tiny_with_folds,
)
from training.learners import context_of

TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--batch-size", "4", "--epochs", "2")


def with_a_run_of_two_folds(root: Path) -> None:
    tiny_with_folds(root)
    podium_at(root, *TRAIN)


def with_a_model_of_all_images(root: Path) -> None:
    with_a_run_of_two_folds(root)
    podium_at(root, *TRAIN, "--folds", "all")


all_trained = copied(with_a_model_of_all_images)


folds_trained = copied(with_a_run_of_two_folds)


def test_it_learns_from_all_images_and_holds_none_out(folds_trained: Path) -> None:
    with context_of(folds_trained, "run", model="test_vit") as context:
        assert np.array_equal(context.images.training_rows(WHOLE), np.arange(25))
        assert not len(context.images.held_out_rows(WHOLE))
        assert context.of_fold(WHOLE).recipe.seed == context.of_fold(0).recipe.seed == 0
        assert context.of_fold(WHOLE + 2).recipe.seed == 2


def test_images_that_are_left_out_teach_it_nothing_either() -> None:
    folds = Folds.of(np.array([0, 1, 2, 0, 1, 2])).without(np.array([True, False, False, False, False, False]))
    assert folds.trains(WHOLE).tolist() == [False, True, True, True, True, True]
    rolling = Folds.of(np.array([-1, 0, 1, 2]), np.array([0, 1, 2, 3]))  # of which no fold trains on the last image
    assert rolling.trains(WHOLE).all()
    inside = folds.inside(WHOLE, learned=np.array([1, 2]), judging=np.array([4]))
    assert inside.trains(WHOLE).tolist() == [False, True, True, False, False, False]
    assert inside.validates(WHOLE).tolist() == [False, False, False, False, True, False]


def test_models_of_all_images_join_the_mean_of_their_run(folds_trained: Path, podium: Podium) -> None:
    before = run_of(folds_trained).out_of_fold(0).probs
    _, err = done(podium(*TRAIN, "--folds", "all:2"))
    assert_says(err, "2 models of all images; no image can score them", "all images, seed +1  epoch 2/2")
    run = run_of(folds_trained)
    assert (run.finished(), run.models()) == ([0, 1], [0, 1, WHOLE, WHOLE + 1])
    first, second = (run.weights_path(WHOLE + number).read_bytes() for number in (0, 1))
    assert first != second
    assert run.out_of_fold(0).probs.tobytes() == before.tobytes()
    out, err = done(podium("submit", "-c", "tiny", "--anyway", "--decision", "none"))
    assert "4 models" in err
    csv = Path(out.strip())
    lineage = json.loads(csv.with_suffix(".json").read_text())
    assert [fold["score"] is None for fold in lineage["runs"][0]["folds"]] == [False, False, True, True]
    probs = [Predictions.load(run.fold_folder(fold) / "test.npz", "").probs for fold in run.models()]
    answers = [line.split(",")[1] for line in csv.read_text().splitlines()[1:]]
    mean = np.mean([part.astype(float) for part in probs], 0)
    classes = run.out_of_fold(0).classes
    assert answers == [classes[number] for number in mean.argmax(1)]
    assert_rebuilt(podium, csv)
    out, _ = done(podium("lineage", csv))
    assert re.search(r"test_vit all images +0\.250 +-", out)


@pytest.mark.annex
@pytest.mark.parametrize("command", ["compare", "report", "explain", "export", "predict"])
def test_every_other_command_goes_on(
    all_trained: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, command: str, tmp_path: Path
) -> None:
    from podium_annex.exporting import export_run
    from podium_annex.exporting.file_forms import FORMS, Form

    monkeypatch.setitem(FORMS, "torch", Form(".pt2", lambda whole, spec, path: path.touch(), lambda path: torch.relu))
    monkeypatch.setattr(export_run, "_largest_difference", lambda whole, exported: 0.0)
    images = all_trained / "data" / "raw" / "tiny" / "test_image"
    words = {
        "compare": ("compare", "-c", "tiny"),
        "report": ("report", "-c", "tiny"),
        "explain": ("explain", "test_vit", "-c", "tiny"),
        "export": (
            *("export", "test_vit", "--torch", "-c", "tiny", "--output", tmp_path / "model.pt2"),
            *("--folds", "0", "all"),
        ),
        "predict": ("predict", "test_vit", images, "-c", "tiny"),
    }[command]
    done(podium(*words))
    if command == "export":
        card = (tmp_path / "model.pt2.md").read_text()
        assert "fold 0, each trained on the images outside its fold; 1 trained on all images" in card
        one_line(
            podium(*words[:2], "--onnx", "--int8", "-c", "tiny", "--folds", "all"),
            "no image says what it costs a model of all images",
        )


@pytest.mark.all
def test_an_interrupted_model_resumes_to_the_same_bits(folds_trained: Path, podium: Podium) -> None:
    for name in ("interrupted", "undisturbed"):
        shutil.copytree(run_of(folds_trained).path, run_of(folds_trained, name).path)
    assert_stopped_and_resumed_alike(podium, folds_trained, 8, *TRAIN, "--folds", "all", fold=WHOLE)


def test_a_head_is_fitted_to_all_images_too(folds_trained: Path, podium: Podium) -> None:
    words = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--linear")
    for folds in ("0-1", "all"):
        done(podium(*words, "--folds", folds))
    assert run_of(folds_trained, "test_vit-linear").models() == [0, 1, WHOLE]


def test_folds_come_first(folds_trained: Path, podium: Podium) -> None:
    one_line(
        podium(*TRAIN, "--folds", "all", "--name", "untested"),
        "--folds all: nothing would tell how good that model is; train folds of untested first",
    )
    assert not run_of(folds_trained, "untested").path.exists()
    one_line(podium(*TRAIN, "--folds", "all", "--epochs", "3"), "epochs was 2 and is 3")
    assert "is not a list of numbers" in one_line(podium(*TRAIN, "--folds", "all:0"))
    done(podium(*TRAIN, "--folds", "0,all", "--name", "both"))


def test_a_teacher_of_folds_cannot_teach_it(folds_trained: Path, podium: Podium) -> None:
    words = ("--teacher", "test_vit", "--name", "student")
    done(podium(*TRAIN, *words))
    assert "has no model of all images; train it with --folds all" in one_line(podium(*TRAIN, *words, "--folds", "all"))
