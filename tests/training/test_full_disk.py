"""A full disk: the message names the file, the old file stays, and the same command resumes."""

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import Tensor

from podium.basics import disk
from podium.saved_runs.checkpoint import checkpoints
from podium.training.learner import Learner
from tiny import Podium, one_line, run_of, write_competition
from training.resuming import TRAIN, assert_resumes_to_the_same_bits


@pytest.mark.slow
def test_every_file_may_meet_a_full_disk(tmp_path: Path, podium: Podium) -> None:
    """The first and the third attempt to write a file fail."""
    rename, failures, attempts = disk.rename_durably, list[tuple[Path, bytes | None]](), dict[str, int]()

    def fail_at_odd_attempts(old: Path, new: Path) -> None:
        attempts[new.name] = attempts.get(new.name, 0) + 1
        if attempts[new.name] in (1, 3):  # a start writes its recipe twice, and fails as a whole
            failures.append((new, new.read_bytes() if new.exists() else None))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(old, new)

    write_competition(tmp_path)
    for words in (
        ("folds", "-c", "tiny", "--k", "2"),
        TRAIN,
        (*TRAIN, "--linear", "--name", "head"),
        ("submit", "-c", "tiny"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk, "rename_durably", fail_at_odd_attempts)
            while (result := podium(*words))[0]:
                message, (path, before) = one_line(result), failures[-1]
                assert f"no space left to write {path}; free some space" in message
                assert (path.read_bytes() if path.exists() else None) == before or not path.parent.exists()
                assert not list(tmp_path.rglob(".*.tmp"))
    assert {
        *("folds.csv", "folds.json", "recipe.json", "metrics.jsonl", "model.safetensors", "oof.npz"),
        *("test.npz", "head+test_vit.csv", "head+test_vit.json"),
        *(f"checkpoint-{step:09d}.safetensors" for step in (3, 6, 9)),
    } <= set(attempts)
    assert {path.name for path in (tmp_path / "data" / "prepared").glob("tiny/features-*/*.npz")} <= set(attempts)
    assert any(before for _, before in failures)
    assert_resumes_to_the_same_bits(tmp_path, podium)


@pytest.fixture
def small_disk(tiny: Path) -> Iterator[Path]:
    folder = tiny / "runs"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def wait_for_writer() -> None:
    """Waits until the last checkpoint is on disk."""
    for thread in threading.enumerate():
        if thread.name.startswith("ThreadPoolExecutor"):
            thread.join()


@pytest.mark.slow
def test_a_disk_that_is_really_full(
    tiny: Path, small_disk: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages of safetensors and of the system differ from the simulated one."""
    step, filler = Learner.step, small_disk / "filler"

    def fill_disk(learner: Learner, images: Tensor, labels: Tensor) -> Tensor:
        loss = step(learner, images, labels)
        if learner.progress.step == 4:
            wait_for_writer()
            with pytest.raises(OSError, match="No space left"):
                filler.write_bytes(bytes(1 << 26))
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", fill_disk)
        path = run_of(tiny, "metrics").fold_folder(0) / "metrics.jsonl"
        assert f"no space left to write {path}; free some space" in one_line(podium(*TRAIN, "--name", "metrics"))
        filler.unlink()
        # With a checkpoint after every step, the fourth is the first file that meets the full disk.
        path = run_of(tiny, "checkpoint").fold_folder(0) / "checkpoint-000000004.safetensors"
        one_line(
            podium(*TRAIN, "--save-every", "0.001s", "--name", "checkpoint"),
            f"no space left to write {path}; free some space",
        )
    assert checkpoints(path.parent)[0].name == "checkpoint-000000003.safetensors"
    filler.unlink()
    assert_resumes_to_the_same_bits(tiny, podium, name="metrics")
