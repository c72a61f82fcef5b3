"""What goes wrong around a run: it is killed, or runs out of disk, memory or processes. One line, and nothing lost."""

import errno
import multiprocessing
import os
import pickle
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from forked_podium import begin, end_of
from podium import PodiumError, disk
from podium.disk import sha256
from podium.models.tensors import load_tensors
from podium.training import linear
from podium.training.checkpoint import State, checkpoints
from podium.training.loader import ImageDataset
from podium.training.loop import Fold
from podium.training.run_folder import Run
from tiny import Podium, one_line, write_competition

FAST = ("-c", "tiny", "--weights", "none", "--image-size", "32", "--batch-size", "4", "--workers", "0")
# Three epochs of three steps.
ONE = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--epochs", "3", "--folds", "0")


@pytest.fixture
def root(tmp_path: Path, podium: Podium) -> Path:
    write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    return tmp_path


def run_of(root: Path, name: str = "test_vit") -> Run:
    return Run(root / "runs" / "tiny" / name)


def leftovers(root: Path) -> list[Path]:
    return list(root.rglob(".*.tmp"))


def ends_alike(root: Path, podium: Podium, name: str, *words: object) -> None:
    """The same command goes on, and comes to what it would have come to undisturbed."""
    status, _, err = podium(*ONE, *words, "--name", name)
    assert status == 0, err
    assert podium(*ONE, *words, "--name", "undisturbed")[0] == 0
    one, other = run_of(root, name), run_of(root, "undisturbed")
    assert sha256(one.fold(0) / "model.safetensors") == sha256(other.fold(0) / "model.safetensors")
    assert one.out_of_fold(0).probs.tobytes() == other.out_of_fold(0).probs.tobytes()
    assert [entry["loss"] for entry in one.history(0)] == [entry["loss"] for entry in other.history(0)]
    assert not leftovers(root)
    assert not checkpoints(one.fold(0))


# --- killed ------------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def signal_in_step(at: int, number: signal.Signals) -> None:
    step = Fold.step

    def signalled(self: Fold, *batch: Any) -> None:
        step(self, *batch)
        if self.state.step == at:
            os.kill(os.getpid(), number)

    Fold.step = signalled  # type: ignore[method-assign, assignment]


def test_killed_and_signalled_with_any_number_of_workers_a_run_ends_with_the_same_bits(
    root: Path, podium: Podium
) -> None:
    knobs = ("--epochs", "5", "--mix", "0.7", "--ema", "0.2", "--sam", "0.05", "--drop-path", "0.2")
    ends = (
        (0, 2, signal.SIGKILL, -9),  # before there is any checkpoint
        (1, 5, signal.SIGKILL, -9),
        (8, 7, signal.SIGTERM, 75),
        (2, 11, signal.SIGKILL, -9),
        (1, 13, signal.SIGINT, 75),
    )
    for workers, at, number, status in ends:
        words = ("--root", root, *ONE, *knobs, "--workers", workers, "--name", "stopped")
        process = begin(words, root / "log", partial(signal_in_step, at, number))
        assert end_of(process) == status, (root / "log").read_text()
    said = (root / "log").read_text()
    for step in (3, 7, 9):
        assert f"fold 0 goes on from step {step} of 15" in said
    assert "Traceback" not in said
    ends_alike(root, podium, "stopped", *knobs)


def die_half_written() -> None:
    save = safetensors.torch.save_file

    def cut(tensors: Any, path: Path, metadata: Any) -> None:
        save(tensors, path, metadata)
        if path.name.startswith(".checkpoint") and len(checkpoints(path.parent)) == 2:
            os.truncate(path, path.stat().st_size // 2)
            die()

    safetensors.torch.save_file = cut  # type: ignore[assignment]


def die_around_rename(after: bool) -> None:
    rename = disk.rename_durably

    def killed(old: Path, new: Path) -> None:
        full = new.name.startswith("checkpoint") and len(checkpoints(new.parent)) == 2
        if after or not full:
            rename(old, new)
        if full:
            die()

    disk.rename_durably = killed


def die_after_unlinking() -> None:
    unlink = Path.unlink

    def killed(self: Path, missing_ok: bool = False) -> None:
        unlink(self, missing_ok)
        if self.name.startswith("checkpoint"):
            die()

    Path.unlink = killed  # type: ignore[method-assign]


def test_killed_at_any_moment_of_a_save_the_last_whole_checkpoint_serves(root: Path, podium: Podium) -> None:
    words = ("--root", root, *ONE, "--epochs", "7", "--name", "killed")
    fold = run_of(root, "killed").fold(0)
    for first, kept, torn in (
        (die_half_written, [6, 3], 1),
        (partial(die_around_rename, after=False), [6, 3], 1),
        (partial(die_around_rename, after=True), [9, 6, 3], 0),
        (die_after_unlinking, [12, 9, 3], 0),
    ):
        process = begin(words, root / "log", first)
        assert end_of(process) == -signal.SIGKILL, (root / "log").read_text()
        found = checkpoints(fold)
        assert [int(path.stem.removeprefix("checkpoint-")) for path in found] == kept
        assert [bool(load_tensors(path)) for path in found] == [True] * len(found)
        assert len(leftovers(root)) == torn
    (run_of(root, "killed").path / ".recipe.json.1.tmp").write_text("{")
    ends_alike(root, podium, "killed", "--epochs", "7")


# --- the disk ----------------------------------------------------------------------------------------


def test_wherever_the_disk_is_full_the_path_is_told_the_old_file_kept_and_the_same_command_goes_on(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each file every other writing fails, the first among them."""
    rename, failed, seen = disk.rename_durably, list[tuple[Path, bytes | None]](), dict[str, int]()

    def full(old: Path, new: Path) -> None:
        seen[new.name] = seen.get(new.name, 0) + 1
        if seen[new.name] % 2:
            failed.append((new, new.read_bytes() if new.exists() else None))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rename(old, new)

    write_competition(tmp_path)
    for words in (
        ("folds", "-c", "tiny", "--k", "2"),
        ONE,
        (*ONE, "--linear", "--name", "head"),
        ("submit", "-c", "tiny"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(disk, "rename", full)
            while (answer := podium(*words))[0]:
                said, (path, before) = one_line(answer), failed[-1]
                assert f"no space left to write {path}; free some" in said
                assert (path.read_bytes() if path.exists() else None) == before
                assert not leftovers(tmp_path)
    assert {
        *("folds.csv", "folds.json", "recipe.json", "metrics.jsonl", "model.safetensors", "oof.npz", "0.npz"),
        *("test.npz", "head+test_vit.csv", "head+test_vit.json"),
        *(f"checkpoint-{step:09d}.safetensors" for step in (3, 6, 9)),
    } <= set(seen)
    assert any(before for _, before in failed)
    ends_alike(tmp_path, podium, "test_vit")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "runs"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_that_is_really_full(
    root: Path, small_disk: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What safetensors and the system then say is another thing."""
    step, filler = Fold.step, small_disk / "filler"

    def filling(self: Fold, *batch: Any) -> None:
        step(self, *batch)
        if self.state.step == 4:
            self.state.wait()
            with pytest.raises(OSError, match="No space left"):
                filler.write_bytes(bytes(1 << 26))

    with monkeypatch.context() as patch:
        patch.setattr(Fold, "step", filling)
        path = run_of(root, "full").fold(0) / "metrics.jsonl"
        assert f"no space left to write {path}; free some" in one_line(podium(*ONE, "--name", "full"))
        patch.setattr(Fold, "close_epoch", lambda *_, **__: None)  # so that the checkpoint is the first that fails
        filler.unlink()
        path = run_of(root, "other").fold(0) / "checkpoint-000000006.safetensors"
        assert f"no space left to write {path}; free some" in one_line(podium(*ONE, "--name", "other"))
    assert [each.name for each in checkpoints(path.parent)] == ["checkpoint-000000003.safetensors"]
    filler.unlink()
    ends_alike(root, podium, "full")


def test_a_checkpoint_that_cannot_be_written_is_told_though_something_else_goes_wrong_after(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = torch.nn.Linear(2, 2)
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cpu", enabled=False)
    state = State(tmp_path / "file" / "fold0", {"model": model}, optimizer, scaler, 5)

    def save(then: Exception | None = None) -> None:
        with state.all_written():
            state.save()
            if then:
                raise then

    with pytest.raises(NotADirectoryError, match="fold0"):
        save()
    with pytest.raises(ZeroDivisionError):
        save(ZeroDivisionError())
    assert state._writing is None


def test_no_thread_outlives_its_fold(root: Path, podium: Podium) -> None:
    assert podium(*ONE)[0] == 0
    writers = [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]
    for thread in writers:
        thread.join(10)  # it may have a line to go
    assert not [thread for thread in writers if thread.is_alive()]


# --- loader processes --------------------------------------------------------------------------------


@pytest.mark.parametrize("heard", [True, False])  # at once, by a signal, or when its next batch is asked for
def test_a_killed_loader_process_is_one_line_and_the_same_command_goes_on(
    root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    step = Fold.step

    def killing(self: Fold, *batch: Any) -> None:
        step(self, *batch)
        if self.state.step == 4:
            if not heard:
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            victim = multiprocessing.active_children()[0]
            victim.kill()
            os.waitid(os.P_PID, victim.pid or 0, os.WEXITED | os.WNOWAIT)

    with monkeypatch.context() as patch:
        patch.setattr(Fold, "step", killing)
        said = one_line(podium(*ONE, "--epochs", "6", "--workers", "2", "--name", "bereft"))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    assert "a loader process died, most likely for want of memory" in said
    assert "run the same command again with --workers 0" in said
    assert not multiprocessing.active_children()
    assert checkpoints(run_of(root, "bereft").fold(0))
    ends_alike(root, podium, "bereft", "--epochs", "6")


FULL = "unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)"


def test_where_shared_memory_is_full_nothing_waits_for_ever(
    root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    share, shared = torch.Tensor.share_memory_, list[int]()

    def full(self: torch.Tensor) -> Any:
        shared.append(1)
        if len(shared) > 4:  # in each worker: two batches
            raise RuntimeError(FULL)
        return share(self)

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "share_memory_", full)
        said = one_line(podium(*ONE, "--workers", "2", "--name", "full"))
    assert "/dev/shm, by which loader processes hand over images, fails (No space left on device (28))" in said
    assert "run the same command again with --workers 0" in said
    assert not multiprocessing.active_children()
    assert not shared
    ends_alike(root, podium, "full")


def test_an_image_that_disappears_while_workers_read_leaves_no_process_behind(
    root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ImageDataset.__getitems__

    def gone(self: ImageDataset, keys: list[tuple[int, int]]) -> Any:
        if keys[0][0] == 1:
            self.read = lambda _: Path("no.jpg").read_bytes()  # type: ignore[assignment, return-value]
        return read(self, keys)

    monkeypatch.setattr(ImageDataset, "__getitems__", gone)
    said = one_line(podium(*ONE, "--workers", "2"))
    assert "no.jpg: No such file or directory; run the same command again" in said
    assert not multiprocessing.active_children()


# --- memory ------------------------------------------------------------------------------------------


def holds(images: int, method: Callable[..., Any]) -> Callable[..., Any]:
    def limited(first: Any, batch: torch.Tensor, *more: Any) -> Any:
        if len(batch) > images:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return method(first, batch, *more)

    return limited


def test_a_gpu_too_small_for_a_batch_says_what_it_has_tried_and_holds(
    root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = (*ONE, "--batch-size", "12")
    with monkeypatch.context() as patch:
        patch.setattr(Fold, "gradient", holds(3, Fold.gradient))
        said = one_line(podium(*large))
        assert "does not hold a batch of 12, and does hold one of 3; use --batch-size 3 under another --name" in said
        assert podium(*ONE, "--batch-size", "3", "--name", "other")[0] == 0
        patch.setattr(Fold, "gradient", holds(1, Fold.gradient))
        assert "nor one of 2; take a smaller model" in one_line(podium(*large))
    assert not run_of(root).finished()
    ends_alike(root, podium, "test_vit", "--batch-size", "12")


def test_features_too(root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_features", holds(7, linear._features))
    said = one_line(podium(*ONE, "--linear", "--batch-size", "20"))
    assert "does not hold a batch of 20, and does hold one of 5; use --batch-size 5" in said


# --- a fold of several -------------------------------------------------------------------------------


def test_when_one_fold_fails_the_others_are_kept_and_submit_says_what_is_missing(
    root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert podium("folds", "-c", "tiny", "--k", "5")[0] == 0
    command, rate = (*ONE[:-2], "--epochs", "1"), Fold.learning_rate
    with monkeypatch.context() as patch:
        patch.setattr(Fold, "learning_rate", lambda self: float("nan") if self.fold == 2 else rate(self))
        assert "by step 5 of fold 2; try a lower --lr" in one_line(podium(*command))
        assert run_of(root).finished() == [0, 1]
        assert "test_vit lacks its folds 2, 3, 4" in podium("submit", "-c", "tiny")[2]
        assert podium(*command, "--folds", "3,4")[0] == 0
    weights = {fold: sha256(run_of(root).fold(fold) / "model.safetensors") for fold in (0, 1, 3, 4)}
    status, _, err = podium("submit", "-c", "tiny")
    assert (status, "warning: test_vit lacks its folds 2" in err) == (0, True)
    status, out, err = podium(*command)
    assert (status, "over 5 of 5 folds" in out) == (0, True)
    assert err.count("is trained already") == 4
    assert {fold: sha256(run_of(root).fold(fold) / "model.safetensors") for fold in weights} == weights
    assert "lacks its folds" not in podium("submit", "-c", "tiny")[2]


# --- malice ------------------------------------------------------------------------------------------


class Malice:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


def refuse(_: Fold) -> None:
    raise PodiumError("enough for a recipe.json")


def test_no_file_that_is_read_back_can_run_code(root: Path, podium: Podium) -> None:
    marker = root / "it ran"
    evil = pickle.dumps(Malice(marker))
    objects = np.empty(1, dtype=object)
    objects[0] = Malice(marker)
    for name in ("evil.pth", "evil.bin", "evil.safetensors"):
        (root / name).write_bytes(evil)
    torch.save({"state_dict": Malice(marker)}, root / "evil.pt")
    np.savez(root / "evil.npz", features=objects, key=objects, id=objects, probs=objects)
    for name in ("evil.pth", "evil.bin", "evil.safetensors", "evil.pt", "evil.npz"):
        one_line(podium(*ONE, "--weights", root / name, "--name", "other"))

    fold = run_of(root).fold(0)
    fold.mkdir(parents=True)
    (fold / "checkpoint-000000003.safetensors").write_bytes(evil)
    (run_of(root).path / "features").mkdir()
    (run_of(root).path / "features" / "0.npz").write_bytes((root / "evil.npz").read_bytes())
    said = one_line(podium(*ONE, "--head-first"))
    assert "recipe.json is missing" in said
    (fold / "checkpoint-000000003.safetensors").rename(root / "kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fold, "train", refuse)
        one_line(podium(*ONE, "--head-first"))
    (root / "kept").rename(fold / "checkpoint-000000003.safetensors")
    status, _, err = podium(*ONE, "--head-first")
    assert status == 0, err
    assert "this fold begins anew" in err
    assert "its features are computed again" in err
    for name, content in (("oof.npz", (root / "evil.npz").read_bytes()), ("model.safetensors", evil)):
        before = (fold / name).read_bytes()
        (fold / name).write_bytes(content)
        one_line(podium("submit", "-c", "tiny"))
        (fold / name).write_bytes(before)
    assert not marker.exists()
    pickle.loads(evil)
    assert marker.exists()  # it could have
