"""Loader processes that are killed, cannot start or fail: one line that helps, no process left, and nothing lost."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from podium.saved_runs.checkpoint import checkpoints
from podium.training import loader as shared_memory
from podium.training.learner import Learner
from podium.training.loader import ImageDataset, Key
from second_round import first_of
from tiny import Podium, assert_says, one_line, run_of
from training.resuming import TRAIN, assert_resumes_to_the_same_bits

pytestmark = pytest.mark.slow


# It is noticed at once, by a signal, or when its next batch is due.
@pytest.mark.parametrize("is_noticed", first_of([True], [True, False]))
def test_a_killed_loader_process_is_reported_and_the_same_command_resumes(
    tiny: Path, podium: Podium, is_noticed: bool
) -> None:
    step = Learner.step

    def kill_a_loader(learner: Learner, images: Tensor, labels: Tensor) -> Tensor:
        loss = step(learner, images, labels)
        if learner.progress.step == 4:
            if not is_noticed:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            victim = multiprocessing.active_children()[0]
            victim.kill()
            os.waitid(os.P_PID, victim.pid or 0, os.WEXITED | os.WNOWAIT)
        return loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "step", kill_a_loader)
        message = one_line(podium(*TRAIN, "--epochs", "6", "--workers", "2", "--name", "killed"))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    assert_says(message, "a loader process died", "run the same command again with --workers 0")
    assert not multiprocessing.active_children()
    assert checkpoints(run_of(tiny, "killed").fold_folder(0))
    assert_resumes_to_the_same_bits(tiny, podium, (*TRAIN, "--epochs", "6"), "killed")


FULL = "unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)"


def test_full_shared_memory_is_reported_before_training(tiny: Path, podium: Podium) -> None:
    def fail(self: Tensor) -> Any:
        raise RuntimeError(FULL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_memory, "_free", [])  # the memory of earlier tests
        patch.setattr(torch.Tensor, "share_memory_", fail)
        message = one_line(podium(*TRAIN, "--workers", "2", "--name", "full"))
    assert_says(message, "/dev/shm", "No space left on device", "run the same command again with --workers 0")
    assert not multiprocessing.active_children()
    assert_resumes_to_the_same_bits(tiny, podium, name="full")


def test_memory_is_used_again_unless_it_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    free = list[Tensor]()
    monkeypatch.setattr(shared_memory, "_free", free)
    with shared_memory.shared_memory(100) as first, shared_memory.shared_memory(100) as other:
        assert first.data_ptr() != other.data_ptr()
    with shared_memory.shared_memory(90) as again:
        assert again.data_ptr() in (first.data_ptr(), other.data_ptr())
    with shared_memory.shared_memory(200) as larger:
        assert not free
    assert [len(memory) for memory in free] == [len(larger)] == [200]


def test_an_image_that_disappears_while_workers_read_leaves_no_process_behind(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = ImageDataset.load

    def load_missing_file(self: ImageDataset, keys: list[Key], *memory: Any) -> Any:
        epoch = keys[0][0]
        if epoch == 1:
            self.read = lambda _: Path("no.jpg").read_bytes()  # type: ignore[assignment, return-value]
        return load(self, keys, *memory)

    monkeypatch.setattr(ImageDataset, "load", load_missing_file)
    one_line(podium(*TRAIN, "--workers", "2"), "no.jpg: No such file or directory; run the same command again")
    assert not multiprocessing.active_children()


def test_loader_processes_that_cannot_start_end_the_command(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork, children = os.fork, list[int]()

    def fail_at_the_third_child() -> int:
        if len(children) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        children.append(fork())
        return children[-1]

    monkeypatch.setattr(os, "fork", fail_at_the_third_child)
    one_line(
        podium(*TRAIN, "--workers", "3"),
        "cannot start 3 loader processes (Resource temporarily unavailable); use --workers 0",
    )
    assert not multiprocessing.active_children()
