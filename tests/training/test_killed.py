"""Training that is killed or signalled: the same command resumes, and the result has the same bits."""

import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from torch import Tensor

from forked_podium import exit_status, redirect_output, start_podium
from podium.basics import disk
from podium.models.tensors import load_tensors
from podium.saved_runs.checkpoint import checkpoints
from podium.training.learner import Learner
from tiny import Podium, run_of
from training.resuming import TRAIN, assert_resumes_to_the_same_bits

pytestmark = pytest.mark.slow

# --- what happens in the forked process --------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def signal_after_step(step: int, number: signal.Signals, whole_group: bool = False) -> None:
    original = Learner.step
    if whole_group:
        os.setsid()

    def signalled(learner: Learner, images: Tensor, labels: Tensor) -> Tensor:
        loss = original(learner, images, labels)
        if learner.progress.step == step:
            (os.killpg if whole_group else os.kill)(os.getpid(), number)
        return loss

    Learner.step = signalled  # type: ignore[method-assign, assignment]


def die_with_half_a_file() -> None:
    save = safetensors.torch.save_file

    def save_half(tensors: Any, path: Path, metadata: Any) -> None:
        save(tensors, path, metadata)
        if path.name.startswith(".checkpoint") and len(checkpoints(path.parent)) == 2:
            os.truncate(path, path.stat().st_size // 2)
            die()

    safetensors.torch.save_file = save_half  # type: ignore[assignment]


def die_around_rename(after: bool) -> None:
    rename = disk.rename_durably

    def rename_and_die(old: Path, new: Path) -> None:
        is_third = new.name.startswith("checkpoint") and len(checkpoints(new.parent)) == 2
        if after or not is_third:
            rename(old, new)
        if is_third:
            die()

    disk.rename_durably = rename_and_die


def die_after_deleting_a_checkpoint() -> None:
    unlink = Path.unlink

    def unlink_and_die(self: Path, missing_ok: bool = False) -> None:
        unlink(self, missing_ok)
        if self.name.startswith("checkpoint"):
            die()

    Path.unlink = unlink_and_die  # type: ignore[method-assign]


def close_reader() -> None:
    """Lets the output go to a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    redirect_output(writing)


# --- tests -------------------------------------------------------------------------------------------


def test_killed_and_signalled_with_any_number_of_loader_processes_a_run_ends_with_the_same_bits(
    tiny: Path, podium: Podium
) -> None:
    options = ("--epochs", "5", "--mix", "0.7", "--ema", "0.2", "--sam", "0.05", "--drop-path", "0.2")
    log = tiny / "log"
    ends = (
        (0, 2, signal.SIGKILL, -9),  # before there is any checkpoint
        (1, 5, signal.SIGKILL, -9),
        (3, 7, signal.SIGTERM, 75),
        (2, 11, signal.SIGKILL, -9),
        (1, 13, signal.SIGINT, 75),
    )
    for workers, step, number, status in ends:
        words = ("--root", tiny, *TRAIN, *options, "--workers", workers, "--name", "stopped")
        process = start_podium(words, log, before=partial(signal_after_step, step, number))
        assert exit_status(process) == status, log.read_text()
    output = log.read_text()
    first, second, third = re.findall(r"fold 0 resumes from step (\d+) of 15", output)
    assert (first, second) == ("3", "7")
    assert third in ("7", "9")  # on a busy machine, the kill may come before the checkpoint of step 9 is written
    assert "Traceback" not in output
    assert_resumes_to_the_same_bits(tiny, podium, (*TRAIN, *options), "stopped")


def test_killed_at_any_moment_of_a_save_the_last_whole_checkpoint_serves(tiny: Path, podium: Podium) -> None:
    words = ("--root", tiny, *TRAIN, "--epochs", "7", "--name", "killed")
    fold, log = run_of(tiny, "killed").fold_folder(0), tiny / "log"
    for before, kept, half_files in (
        (die_with_half_a_file, [6, 3], 1),
        (partial(die_around_rename, after=False), [6, 3], 1),
        (partial(die_around_rename, after=True), [9, 6, 3], 0),
        (die_after_deleting_a_checkpoint, [12, 9, 3], 0),
    ):
        assert exit_status(start_podium(words, log, before)) == -signal.SIGKILL, log.read_text()
        paths = checkpoints(fold)
        assert [int(path.stem.removeprefix("checkpoint-")) for path in paths] == kept
        assert all(load_tensors(path) for path in paths)
        assert len(list(tiny.rglob(".*.tmp"))) == half_files
    (run_of(tiny, "killed").path / ".recipe.json.1.tmp").write_text("{")
    assert_resumes_to_the_same_bits(tiny, podium, (*TRAIN, "--epochs", "7"), "killed")


def test_a_scheduler_that_signals_the_whole_process_group_leaves_a_saved_run_and_no_traceback(tiny: Path) -> None:
    words = ("--root", tiny, *TRAIN, "--epochs", "500", "--workers", "2")
    before = partial(signal_after_step, 4, signal.SIGTERM, whole_group=True)
    process = start_podium(words, tiny / "log", before)
    output = (tiny / "log").read_text() if exit_status(process) == 75 else ""
    assert "stopped after step 4 of 1,500 of fold 0; all is saved" in output
    assert "Traceback" not in output
    assert [path.stem for path in checkpoints(run_of(tiny).fold_folder(0))] == [
        "checkpoint-000000004",
        "checkpoint-000000003",
    ]


def test_training_continues_when_nobody_reads_its_output(tiny: Path) -> None:
    process = start_podium(("--root", tiny, *TRAIN, "--epochs", "2"), tiny / "log", before=close_reader)
    assert exit_status(process) == 0
    assert run_of(tiny).finished() == [0]
