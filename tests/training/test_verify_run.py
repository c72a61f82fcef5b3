"""A fold that is trained again is the same to the bit, and what differs is named; the run stays as it is."""

import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from podium.basics.disk import sha256
from podium.basics.randomness import seed_torch
from podium.models.tensors import load_tensors, save_tensors
from podium.saved_runs.checkpoint import checkpoints
from tiny import FAST, Podium, one_line, run_of, signal_in_step

pytestmark = pytest.mark.annex

TRAIN = ("train", *FAST, "--device", "cpu", "--folds", "0", "--epochs", "3", "--batch-size", "4")
VERIFY = ("verify", "-c", "tiny", "--device", "cpu", "--workers", "0")


def files_of(root: Path, name: str) -> dict[str, str]:
    """The hash of each file of a run."""
    folder = run_of(root, name).path
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): sha256(path) for path in paths}


@pytest.mark.parametrize(
    "options",
    [("--model", "test_vit"), pytest.param(("--model", "test_resnet", "--linear"), marks=pytest.mark.all)],
    ids=str,
)
def test_a_finished_fold_is_the_same(tiny: Path, podium: Podium, options: tuple[str, ...]) -> None:
    assert podium(*TRAIN, *options, "--name", "a")[0] == 0
    before = files_of(tiny, "a")
    status, out, err = podium(*VERIFY, "a")
    assert status == 0, err
    assert out == "fold 0 of a, trained again, is the same to the bit\n"
    assert files_of(tiny, "a") == before
    assert not list(run_of(tiny, "a").path.glob(".trial-*"))


def test_another_fold_is_named_with_what_differs(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    assert podium(*TRAIN, "--model", "test_vit", "--name", "a")[0] == 0
    before = files_of(tiny, "a")
    with monkeypatch.context() as patch:  # another seed than the recorded one
        patch.setattr("podium.training.learner.seed_torch", lambda seed, *place: seed_torch(seed + 1, *place))
        line = one_line(podium(*VERIFY, "a"))
    assert "fold 0 of a, trained again, is another one" in line
    assert "tensors differ" in line
    assert "it was trained in float32 on 1 CPU core" in line.replace("bfloat16", "float32")
    assert files_of(tiny, "a") == before


@pytest.mark.parametrize("is_changed", [False, True])
def test_the_steps_between_two_checkpoints_are_repeated(tiny: Path, podium: Podium, is_changed: bool) -> None:
    words = (*TRAIN, "--model", "test_resnet", "--name", "a", "--save-every", "0.001s")
    with pytest.MonkeyPatch.context() as patch:
        signal_in_step(patch, 5, signal.SIGINT)
        assert podium(*words)[0] == 75
    newest, _ = checkpoints(run_of(tiny, "a").fold_folder(0))
    if is_changed:
        tensors, metadata = load_tensors(newest)
        name = next(name for name in sorted(tensors) if name.startswith("model.") and tensors[name].is_floating_point())
        save_tensors(newest, {**tensors, name: tensors[name] + torch.ones(())}, metadata)
    status, out, err = podium(*VERIFY, "a")
    assert "podium: repeated 1 step after step" in err
    if is_changed:
        assert status == 1
        assert f"differ, {name} by up to 1" in err
    else:
        assert status == 0, err
        assert out == "fold 0 of a, repeated between its checkpoints, is the same to the bit\n"
    assert podium(*words)[0] == 0  # the run goes on


def test_stopped_it_says_that_nothing_has_changed(tiny: Path, podium: Podium) -> None:
    assert podium(*TRAIN, "--model", "test_vit", "--name", "a")[0] == 0
    before = files_of(tiny, "a")
    with pytest.MonkeyPatch.context() as patch:
        signal_in_step(patch, 2, signal.SIGINT)
        status, out, err = podium(*VERIFY, "a")
    assert (status, out) == (75, "")
    assert "stopped while verifying; the run is as it was" in err
    assert files_of(tiny, "a") == before


def test_what_cannot_be_trained_again_is_refused(tiny: Path, podium: Podium) -> None:
    assert "nothing is trained there" in one_line(podium(*VERIFY, "a"))
    assert podium(*TRAIN, "--model", "test_vit", "--name", "a")[0] == 0
    assert "fold 1 is finished or has two checkpoints" in one_line(podium(*VERIFY, "a", "--fold", "1"))
    run = run_of(tiny, "a")
    history = run.history(0)
    run.write_history(0, [*history[:-1], replace(history[-1], step=history[-1].step - 1)])
    assert "because of its time limit" in one_line(podium(*VERIFY, "a"))
    image = tiny / "data" / "raw" / "tiny" / "train_image" / "000.jpg"
    image.write_bytes((image.parent / "001.jpg").read_bytes())
    assert "was started with other options: the" in one_line(podium(*VERIFY, "a"))


def test_a_student_has_its_teacher_again(tiny: Path, podium: Podium) -> None:
    assert podium(*TRAIN, "--model", "test_resnet", "--name", "teacher")[0] == 0
    assert podium(*TRAIN, "--model", "test_vit", "--name", "student", "--teacher", "teacher")[0] == 0
    status, out, err = podium(*VERIFY, "student")
    assert status == 0, err
    assert "is the same to the bit" in out
    assert podium(*TRAIN, "--model", "test_resnet", "--name", "other", "--seed", "1")[0] == 0
    shutil.rmtree(run_of(tiny, "teacher").path / "fold0")
    shutil.copytree(run_of(tiny, "other").path / "fold0", run_of(tiny, "teacher").path / "fold0")
    assert "its teacher teacher has other weights now" in one_line(podium(*VERIFY, "student"))
