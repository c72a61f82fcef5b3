"""A run beside its baseline: what is new about it has helped, has harmed, or that may be chance."""

from dataclasses import replace
from pathlib import Path

import pytest

from podium.basics.disk import write_json
from podium.comparing.baseline import compare_with_baseline, find_baseline
from podium.competition.load import load
from podium.saved_runs.prediction_files import Predictions
from tiny import FAST, Podium, assert_says, done, run_of

TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--epochs", "1", "--name")


def test_training_says_how_a_run_does_beside_its_twin(tiny: Path, podium: Podium) -> None:
    assert "beside" not in podium(*TRAIN, "base")[2]
    _, err = done(podium(*TRAIN, "smooth", "--smoothing", "0.3", "--seed", "1"))
    assert "podium: beside base, which differs in --smoothing, and in the seed: accuracy " in err
    assert " on 24 held-out images (95 % over images: " in err
    assert "beside" not in podium(*TRAIN, "smooth", "--smoothing", "0.3", "--seed", "1")[2]  # trained already
    err = podium(*TRAIN, "on", "--from", "base", "--lr", "1e-4", "--mix", "0.2", "--smoothing", "0.2")[2]
    assert_says(err, "beside base, which differs in ", "--from")
    assert "beside" not in podium(*TRAIN, "seed", "--seed", "7")[2]  # nothing else is new
    err = podium(*TRAIN, "smooth-7", "--smoothing", "0.3", "--seed", "7")[2]  # the second seed of both
    assert "beside seed, which differs in --smoothing: " in err
    (run_of(tiny, "base").fold_folder(0) / "oof.npz").write_text("damaged")
    status, _, err = podium(*TRAIN, "mixed", "--mix", "0.3")
    assert (status, "beside" in err, "podium: wrote " in err) == (0, False, True)
    other = podium("train", *FAST, "--device", "cpu", "--model", "test_convnext", "--epochs", "1")[2]
    assert "beside" not in other


def test_the_nearest_run_is_the_twin_and_of_several_the_first(tiny: Path, podium: Podium) -> None:
    for name, words in {"far": ("--mix", "0.3", "--smoothing", "0.3"), "near": ()}.items():
        done(podium(*TRAIN, name, *words))
    done(podium(*TRAIN, "new", "--smoothing", "0.3", "--folds", "0"))
    run, others = run_of(tiny, "new"), [run_of(tiny, name) for name in ("far", "near")]
    baseline = find_baseline(run, others)
    assert baseline is not None
    assert (baseline.run.name, baseline.changes) == ("far", ["--mix"])  # both differ in one option
    baseline = find_baseline(run, others[1:])
    assert baseline is not None
    assert (baseline.run.name, baseline.changes) == ("near", ["--smoothing"])
    write_json(others[1].path / "recipe.json", {**others[1].recipe, "folds_sha256": "other"})
    assert find_baseline(run, [run_of(tiny, "near")]) is None
    (others[1].path / "recipe.json").write_text("{")
    assert "beside far" in compare_with_baseline(load("tiny", tiny), run)


@pytest.mark.parametrize(
    ("worse", "verdict"), [pytest.param("base", "it helps here", marks=pytest.mark.all), ("new", "it harms here")]
)
def test_a_difference_beyond_chance_is_called_so(tiny: Path, podium: Podium, worse: str, verdict: str) -> None:
    for name, words in {"base": (), "new": ("--smoothing", "0.3")}.items():
        done(podium(*TRAIN, name, *words))
        run = run_of(tiny, name)
        for fold in run.finished():
            path = run.fold_folder(fold) / "oof.npz"
            predictions = Predictions.load(path, "", is_labelled=True)
            probs = 0 * predictions.probs
            probs[range(len(probs)), (predictions.target.values + (name == worse)) % probs.shape[1]] = 1
            replace(predictions, probs=probs).save(path)
    assert verdict in compare_with_baseline(load("tiny", tiny), run_of(tiny, "new"))
