"""The whole way on a tiny competition, and what the README promises of it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from podium.competition.csv_files import read_table
from podium.disk import sha256
from podium.models.model_file import load_model
from podium.training.checkpoint import State
from podium.training.run_folder import Run
from tiny import FAST, Podium, Stopper, weights, write_competition, write_image


def test_a_convnext_and_a_vit_go_all_the_way_to_a_submission(tiny: Path, podium: Podium) -> None:
    for model, epochs in (("test_convnext", 8), ("test_vit", 3)):
        status, out, err = podium("train", *FAST, "--model", model, "--epochs", epochs)
        assert status == 0, err
        assert "over 2 of 2 folds" in out
        assert f"next: podium --root {tiny} submit -c tiny" in err
    status, out, err = podium("submit", "-c", "tiny", "--workers", "0")
    assert status == 0, err
    csv = Path(out.splitlines()[-1])
    assert out == f"{csv}\n"
    sample = tiny / "data" / "raw" / "tiny" / "sample_submission.csv"
    assert [line.split(",")[0] for line in csv.read_text().splitlines()] == [
        line.split(",")[0] for line in sample.read_text().splitlines()
    ]
    status, out, _ = podium("score", csv, "--solution", tiny / "solution.csv")
    scored = json.loads(out.splitlines()[-1])
    assert (status, scored["metric"]) == (0, "accuracy")
    assert scored["score"] >= 0.8  # three plain colours

    lineage = json.loads(csv.with_suffix(".json").read_text())
    assert lineage["sha256"] == sha256(csv)
    assert [(run["run"], each["fold"], each["weights_sha256"]) for run in lineage["runs"] for each in run["folds"]] == [
        (run, fold, weights(tiny, run, fold)) for run in ("test_convnext", "test_vit") for fold in (0, 1)
    ]


def test_a_run_leaves_the_files_of_the_contract(tiny: Path, podium: Podium) -> None:
    status, _, err = podium("train", *FAST, "--model", "test_vit", "--epochs", 2, "--folds", 1)
    assert status == 0, err
    run = Run(tiny / "runs" / "tiny" / "test_vit")
    assert run.finished() == [1]
    assert {"model", "weights", "lr", "seed", "weights_source", "folds_sha256", "data_sha256", "versions"} <= set(
        run.recipe
    )
    assert run.recipe["weights_source"] == "none"
    assert len({path.stat().st_mode for path in run.fold(1).iterdir()}) == 1  # who may read one may read all
    assert sorted(path.name for path in run.fold(1).iterdir()) == ["metrics.jsonl", "model.safetensors", "oof.npz"]

    folds = read_table(tiny / "data" / "prepared" / "tiny" / "folds.csv")
    with np.load(run.fold(1) / "oof.npz", allow_pickle=False) as held_out:
        assert held_out["id"].tolist() == folds["id"][folds["fold"] == "1"].tolist()
        assert held_out["probs"].dtype == np.float32
        assert held_out["probs"].shape == (12, 4)
        assert np.allclose(held_out["probs"].sum(1), 1, atol=1e-5)
        labels = [str(held_out["classes"][index]) for index in held_out["target"]]
        assert labels == folds["target"][folds["fold"] == "1"].tolist()

    history = run.history(1)
    assert [entry["epoch"] for entry in history] == [1, 2]
    assert set(history[0]) == {
        "epoch",
        "step",
        "lr",
        "loss",
        "log_loss",
        "accuracy",
        "views",
        "images_per_s",
        "seconds",
        "validation_seconds",
        "memory_mb",
    }
    with safe_open(run.fold(1) / "model.safetensors", framework="pt") as file:
        spec = json.loads(file.metadata()["podium"])
    assert spec["architecture"] == "test_vit"
    assert spec["classes"] == ["blue", "green", "lonely", "red"]
    assert spec["image_size"] == 32
    assert {"mean", "std", "interpolation", "crop", "fit"} <= set(spec)
    model, rebuilt = load_model(run.fold(1) / "model.safetensors")
    assert model.eval()(torch.zeros(1, 3, 32, 32)).shape == (1, len(rebuilt.classes))


def test_a_finished_fold_is_not_trained_again_and_another_recipe_is_refused(tiny: Path, podium: Podium) -> None:
    command = ("train", *FAST, "--model", "test_vit", "--epochs", "1", "--name", "mine")
    assert podium(*command, "--folds", "0")[0] == 0
    file = tiny / "runs" / "tiny" / "mine" / "fold0" / "model.safetensors"
    before = file.stat().st_mtime_ns
    status, out, err = podium(*command)
    assert status == 0
    assert "fold 0 is trained already" in err
    assert "over 2 of 2 folds" in out
    assert file.stat().st_mtime_ns == before
    status, out, err = podium(*command, "--lr", "0.5", "--mirror", "0")
    assert (status, out) == (1, "")
    assert "mirror was 0.5 and is 0.0" in err
    assert "lr was 0.00025 and is 0.5" in err
    assert "--name" in err


def test_other_folds_or_other_data_are_refused_for_a_run_that_has_begun(tiny: Path, podium: Podium) -> None:
    command = ("train", *FAST, "--model", "test_vit", "--epochs", "1")
    assert podium(*command, "--folds", "0")[0] == 0
    folds = tiny / "data" / "prepared" / "tiny" / "folds.csv"
    kept = folds.read_text()
    status, _, err = podium("folds", "-c", "tiny", "--k", "2", "--seed", "7")
    assert status == 0
    assert "the folds have changed" in err
    status, _, err = podium(*command)
    assert status == 1
    assert "the folds are others" in err
    folds.write_text(kept)
    write_image(tiny / "data" / "raw" / "tiny" / "train_image" / "003.jpg", (1, 2, 3), 99, (50, 50))
    status, _, err = podium(*command)
    assert status == 1
    assert "the data are others" in err


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("test_vit", ()),
        ("test_convnext", ()),
        ("test_resnet", ("--grow", "0.6")),
        ("test_resnet", ("--optimizer", "muon")),
        ("test_vit", ("--optimizer", "muon")),
    ],
)
def test_a_run_stopped_anywhere_ends_with_the_same_bits(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, model: str, more: tuple[str, ...]
) -> None:
    schedule = ("--epochs", "3", "--batch-size", "4", "--image-size", "64")
    knobs = (*schedule, "--mix", "0.7", "--drop-path", "0.2", *more)
    command = ("train", *FAST, "--model", model, "--folds", "0", *knobs)
    assert podium(*command, "--name", "whole")[0] == 0
    for at, number in ((1, signal.SIGINT), (7, signal.SIGTERM)):  # of nine steps, in the first epoch and the last
        with monkeypatch.context() as patch:
            Stopper(patch, at, number)
            status, _, err = podium(*command, "--name", "stopped")
        assert status == 75
        assert "all is saved; run the same command again to go on" in err
    status, _, err = podium(*command, "--name", "stopped")
    assert status == 0
    assert weights(tiny, "stopped") == weights(tiny, "whole")
    whole, stopped = (Run(tiny / "runs" / "tiny" / name) for name in ("whole", "stopped"))
    assert np.array_equal(whole.out_of_fold(0).probs, stopped.out_of_fold(0).probs)
    assert [entry["loss"] for entry in whole.history(0)] == [entry["loss"] for entry in stopped.history(0)]


@pytest.mark.parametrize(("every", "saves"), [("0.001s", 12), ("1h30m", 2)])  # steps; epochs
def test_it_saves_at_every_epoch_and_as_often_as_one_likes(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, every: str, saves: int
) -> None:
    counted, save = [], State.save

    def counting(state: State) -> None:
        counted.append(state.step)
        save(state)

    monkeypatch.setattr(State, "save", counting)
    words = ("--model", "test_vit", "--epochs", "2", "--folds", "0", "--batch-size", "2", "--save-every", every)
    status, _, err = podium("train", *FAST, *words)
    assert status == 0, err
    assert len(counted) == saves


def test_a_compiler_that_does_not_work_is_told_in_one_line(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.exc import CppCompileError

    def fails(model: torch.nn.Module) -> Any:
        def forward(images: torch.Tensor) -> torch.Tensor:
            raise CppCompileError(["g++"], "no such compiler")

        return forward

    monkeypatch.setattr(torch, "compile", fails)
    status, _, err = podium("train", *FAST, "--model", "test_vit", "--epochs", "1", "--compile")
    assert status == 1
    assert "torch.compile does not work here" in err.splitlines()[-1]
    assert "leave out --compile" in err.splitlines()[-1]


def test_a_model_of_one_size_does_not_grow(tiny: Path, podium: Podium) -> None:
    status, _, err = podium(
        "train", *FAST, "--model", "test_vit3", "--epochs", "2", "--image-size", "64", "--grow", "0.5"
    )
    assert status == 1
    assert "test_vit3 cannot take images of 32 pixels" in err
    assert "use --grow 0" in err


def test_weights_of_a_fold_of_this_competition_are_pointed_out(tiny: Path, podium: Podium) -> None:
    command = ("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0")
    status, _, err = podium(*command)
    assert (status, "was trained by Podium on these classes" in err) == (0, False)
    fold = tiny / "runs" / "tiny" / "test_vit" / "fold0" / "model.safetensors"
    status, _, err = podium(*command, "--name", "again", "--weights", fold)
    assert (status, "was trained by Podium on these classes" in err) == (0, True)


def test_auto_trains_a_small_model_on_a_cpu(tiny: Path, podium: Podium) -> None:
    words = ("--image-size", "32", "--batch-size", "8", "--epochs", "1", "--folds", "0", "--device", "cpu")
    status, _, err = podium("train", "-c", "tiny", "--model", "auto", *words)
    assert status == 0, err
    assert Run(tiny / "runs" / "tiny" / "resnet10t").recipe["weights"] == "none"


def test_the_number_of_workers_changes_nothing(tiny: Path, podium: Podium) -> None:
    for workers in (0, 2):
        command = ("train", *FAST[:-1], workers, "--model", "test_vit", "--epochs", "2", "--folds", "0")
        status, _, err = podium(*command, "--name", f"workers{workers}")
        assert status == 0, err
    assert weights(tiny, "workers0") == weights(tiny, "workers2")


def test_two_processes_do_not_train_one_run(tiny: Path, podium: Podium) -> None:
    with Run(tiny / "runs" / "tiny" / "test_vit").lock():
        status, _, err = podium("train", *FAST, "--model", "test_vit", "--epochs", "1")
    assert status == 1
    assert "trained by another process" in err


@pytest.mark.parametrize("workers", ["0", "1"])
def test_an_image_that_cannot_be_decoded_is_named_in_one_line(tiny: Path, podium: Podium, workers: str) -> None:
    (tiny / "data" / "raw" / "tiny" / "train_image" / "004.jpg").write_bytes(b"<html>")
    status, _, err = podium("train", *FAST[:-1], workers, "--model", "test_vit", "--epochs", "1")
    assert status == 1
    last = err.splitlines()[-1]
    assert last.startswith("podium: error: ")
    assert "train_image/004.jpg first (it is" in last


def test_a_loss_that_is_no_number_ends_the_run(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.training.loop.learning_rate", lambda *_: float("nan"))
    status, _, err = podium("train", *FAST, "--model", "test_vit", "--epochs", "3")
    assert status == 1
    assert "the weights are not numbers by step 1 of fold 0; try a lower --lr" in err
    assert not list((tiny / "runs").rglob("checkpoint-*"))  # nobody could go on from it
    assert "--lr" in err


def test_predictions_are_kept_until_the_weights_or_the_images_change(tiny: Path, podium: Podium) -> None:
    command = ("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0")
    assert podium(*command)[0] == 0
    first = podium("submit", "-c", "tiny")
    again = podium("submit", "-c", "tiny")
    assert first[:2] == again[:2]  # the same file: nothing has changed
    assert "predicted already" not in first[2]
    assert "predicted already" in again[2]
    write_image(tiny / "data" / "raw" / "tiny" / "test_image" / "000.jpg", (9, 9, 9), 5, (60, 60))
    assert "predicted already" not in podium("submit", "-c", "tiny")[2]


def test_another_submission_is_never_written_over(tiny: Path, podium: Podium) -> None:
    command = ("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0")
    assert podium(*command)[0] == 0
    path = Path(podium("submit", "-c", "tiny")[1].strip())
    path.write_text("uploaded long ago")
    assert podium("submit", "-c", "tiny")[1].strip() == str(path.with_name("test_vit-2.csv"))
    assert path.read_text() == "uploaded long ago"


def test_a_submission_of_runs_that_do_not_exist_names_the_nearest(tiny: Path, podium: Podium) -> None:
    status, _, err = podium("submit", "-c", "tiny")
    assert status == 1
    assert "train one with" in err
    assert podium("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0")[0] == 0
    status, _, err = podium("submit", "-c", "tiny", "--runs", "test_vot")
    assert status == 1
    assert "did you mean test_vit?" in err


def test_probabilities_for_every_class_and_log_loss(tmp_path: Path, podium: Podium) -> None:
    folder = write_competition(tmp_path)
    ids = read_table(folder / "sample_submission.csv")["id"]
    header = "id,lonely,red,green,blue"
    (folder / "sample_submission.csv").write_text("\r\n".join([header, *(f"{name},0,0,0,0" for name in ids), ""]))
    status, _, err = podium("folds", "-c", "tiny", "--k", "2")
    assert status == 0, err
    assert podium("train", *FAST, "--model", "test_convnext", "--epochs", "2", "--folds", "0")[0] == 0
    status, out, err = podium("submit", "-c", "tiny")
    assert status == 0, err
    written = Path(out.strip()).read_bytes().decode().split("\r\n")
    assert written[0] == header
    assert [sum(map(float, row.split(",")[1:])) for row in written[1:-1]] == pytest.approx([1.0] * 7, abs=1e-6)
    status, out, _ = podium("score", out.strip(), "--solution", tmp_path / "solution.csv")
    assert json.loads(out)["metric"] == "log_loss"


def test_everything_is_found_through_the_module_as_well(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "podium", "--root", tmp_path, "folds", "-c", "tiny"],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("podium: error: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_scheduler_that_signals_the_whole_group_finds_a_saved_run_and_no_traceback(tiny: Path) -> None:
    knobs = ("--epochs", "500", "--folds", "0", "--workers", "2", "--weights", "none", "--image-size", "32")
    words = [sys.executable, "-m", "podium", "--root", str(tiny), "train", "-c", "tiny", "--model", "test_vit", *knobs]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True) as training:
        assert training.stderr is not None
        for line in training.stderr:
            if "epoch 2/500" in line:
                os.killpg(training.pid, signal.SIGTERM)
                break
        err = training.stderr.read()
    assert training.returncode == 75, err
    assert "all is saved" in err
    assert "Traceback" not in err


def test_a_submission_says_which_folds_are_missing_and_fits_no_weights_to_few_images(
    tiny: Path, podium: Podium
) -> None:
    for name, folds in (("whole", "0,1"), ("half", "0")):
        knobs = ("--model", "test_vit", "--epochs", "1", "--folds", folds, "--name", name)
        assert podium("train", *FAST, *knobs)[0] == 0
    status, out, err = podium("submit", "-c", "tiny")
    assert status == 0
    assert "warning: half lacks its folds 1" in err
    assert "on 12 held-out images" in err
    lineage = json.loads(Path(out.strip()).with_suffix(".json").read_text())
    assert [(run["run"], run["weight"], [each["fold"] for each in run["folds"]]) for run in lineage["runs"]] == [
        ("half", 0.5, [0]),
        ("whole", 0.5, [0, 1]),
    ]
    status, _, err = podium("submit", "-c", "tiny", "--blend", "convex")
    assert status == 1
    assert "weights cannot be fitted to 12 images" in err


def test_what_a_killed_process_left_is_swept(tiny: Path, podium: Podium) -> None:
    folder = tiny / "runs" / "tiny" / "test_vit" / "fold0"
    assert podium("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "1")[0] == 0
    folder.mkdir(parents=True)
    (folder / ".checkpoint-000000001.safetensors.1.tmp").write_text("half")
    assert podium("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0")[0] == 0
    assert not list(folder.glob(".*"))


def test_a_file_where_a_folder_should_be_is_told_in_one_line(tiny: Path, podium: Podium) -> None:
    (tiny / "runs").write_text("")
    status, _, err = podium("train", *FAST, "--model", "test_vit", "--epochs", "1")
    assert status == 1
    assert err.startswith("podium: error: ")
    assert str(tiny / "runs") in err
