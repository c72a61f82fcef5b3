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
from templates import copied
from tiny import FAST, Podium, assert_says, done, one_line, podium_at, run_of, stop_in_step, tiny_with_folds

pytestmark = pytest.mark.annex

TRAIN = ("train", *FAST, "--device", "cpu", "--folds", "0", "--epochs", "3", "--batch-size", "4")
VERIFY = ("verify", "-c", "tiny", "--device", "cpu", "--workers", "0")


def with_a_trained_fold(root: Path) -> None:
    tiny_with_folds(root)
    podium_at(root, *TRAIN, "--model", "test_vit", "--name", "a")


trained = copied(with_a_trained_fold)


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
    done(podium(*TRAIN, *options, "--name", "a"))
    before = files_of(tiny, "a")
    out, _ = done(podium(*VERIFY, "a"))
    assert out == "fold 0 of a, trained again, is the same to the bit\n"
    assert files_of(tiny, "a") == before
    assert not list(run_of(tiny, "a").path.glob(".trial-*"))


def test_another_fold_is_named_with_what_differs(
    trained: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(trained, "a")
    with monkeypatch.context() as patch:  # another seed than the recorded one
        patch.setattr("podium.training.learner.seed_torch", lambda seed, *place: seed_torch(seed + 1, *place))
        line = one_line(podium(*VERIFY, "a"))
    assert_says(line, "fold 0 of a, trained again, is another one", "tensors differ")
    assert "it was trained in float32 on 1 CPU core" in line.replace("bfloat16", "float32")
    assert files_of(trained, "a") == before


@pytest.mark.parametrize("is_changed", [False, True])
def test_the_steps_between_two_checkpoints_are_repeated(tiny: Path, podium: Podium, is_changed: bool) -> None:
    words = (*TRAIN, "--model", "test_resnet", "--name", "a", "--save-every", "0.001s")
    stop_in_step(podium, 5, *words, number=signal.SIGINT)
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
    done(podium(*words))  # the run goes on


def test_stopped_it_says_that_nothing_has_changed(trained: Path, podium: Podium) -> None:
    before = files_of(trained, "a")
    out, err = stop_in_step(podium, 2, *VERIFY, "a", number=signal.SIGINT)
    assert out == ""
    assert "stopped while verifying; the run is as it was" in err
    assert files_of(trained, "a") == before


def test_what_cannot_be_trained_again_is_refused(tiny: Path, podium: Podium) -> None:
    assert "nothing is trained there" in one_line(podium(*VERIFY, "a"))
    done(podium(*TRAIN, "--model", "test_vit", "--name", "a"))
    assert "fold 1 is finished or has two checkpoints" in one_line(podium(*VERIFY, "a", "--fold", "1"))
    run = run_of(tiny, "a")
    history = run.history(0)
    run.write_history(0, [*history[:-1], replace(history[-1], step=history[-1].step - 1)])
    assert "because of its time limit" in one_line(podium(*VERIFY, "a"))
    image = tiny / "data" / "raw" / "tiny" / "train_image" / "000.jpg"
    image.write_bytes((image.parent / "001.jpg").read_bytes())
    assert "was started with other options: the" in one_line(podium(*VERIFY, "a"))


def test_a_student_has_its_teacher_again(tiny: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--model", "test_resnet", "--name", "teacher"))
    done(podium(*TRAIN, "--model", "test_vit", "--name", "student", "--teacher", "teacher"))
    out, _ = done(podium(*VERIFY, "student"))
    assert "is the same to the bit" in out
    done(podium(*TRAIN, "--model", "test_resnet", "--name", "other", "--seed", "1"))
    shutil.rmtree(run_of(tiny, "teacher").path / "fold0")
    shutil.copytree(run_of(tiny, "other").path / "fold0", run_of(tiny, "teacher").path / "fold0")
    assert "its teacher teacher has other weights now" in one_line(podium(*VERIFY, "student"))
