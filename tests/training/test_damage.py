"""Files that were damaged, replaced or deleted after they were written: one line that helps, and nothing is lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from podium.disk import locked, sha256
from podium.models.tensors import load_tensors, tensors_digest
from podium.submit.submission import submit
from podium.training import loop as fold_module
from podium.training.checkpoint import checkpoints
from podium.training.loop import Fold
from podium.training.train import train
from tiny import Podium, one_line, write_competition, write_image

FAST = ("-c", "tiny", "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")
ONE = ("train", *FAST, "--model", "test_vit", "--epochs", "2", "--folds", "0")


@pytest.fixture
def root(tmp_path: Path, podium: Podium) -> Path:
    write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    return tmp_path


@pytest.fixture
def run(root: Path, podium: Podium) -> Path:
    """A run with one finished fold."""
    assert podium(*ONE)[0] == 0
    return root / "runs" / "tiny" / "test_vit"


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink])
def test_weights_that_are_not_those_that_were_trained_are_never_used(
    run: Path, podium: Podium, damage: Callable[[Path], None]
) -> None:
    damage(run / "fold0" / "model.safetensors")
    for command in (("submit", "-c", "tiny"), ONE):
        said = one_line(podium(*command))
        assert f"delete {run / 'fold0'} and train that fold again" in said
    assert not (run.parents[2] / "submissions").exists()
    shutil.rmtree(run / "fold0")
    assert podium(*ONE)[0] == 0
    assert podium("submit", "-c", "tiny")[0] == 0


def test_a_run_whose_recipe_is_gone_is_neither_given_another_nor_forgotten(run: Path, podium: Podium) -> None:
    (run / "recipe.json").unlink()
    for command in (("submit", "-c", "tiny"), (*ONE[:-4], "--epochs", "9")):
        said = one_line(podium(*command))
        assert "recipe.json" in said
        assert f"restore it, or delete {run}" in said
    assert not (run / "recipe.json").exists()


@pytest.mark.parametrize("content", ["", "5", "null", "[1]", "{}", "not json", '{"folds": "2"}', "\xff"])
def test_a_recipe_that_is_none_is_said_so(run: Path, podium: Podium, content: str) -> None:
    (run / "recipe.json").write_text(content, encoding="latin-1")
    for command in (("submit", "-c", "tiny"), ONE):
        assert f"restore it, or delete {run}" in one_line(podium(*command))


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b'{"loss": 1', b'{"loss": null, "seconds": 1}\n', b"[]\n"])
def test_without_its_history_a_fold_is_still_trained(run: Path, podium: Podium, content: bytes | None) -> None:
    path = run / "fold0" / "metrics.jsonl"
    path.unlink() if content is None else path.write_bytes(content)
    status, out, err = podium(*ONE)
    assert status == 0
    assert "metrics.jsonl: cannot be read" in err
    assert "over 1 of 2 folds" in out
    assert podium("submit", "-c", "tiny")[0] == 0


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, empty])
def test_predictions_that_were_kept_are_made_again_and_out_of_fold_ones_cost_the_fold(
    run: Path, podium: Podium, damage: Callable[[Path], None]
) -> None:
    first = podium("submit", "-c", "tiny")
    damage(run / "fold0" / "test.npz")
    again = podium("submit", "-c", "tiny")
    assert again[:2] == first[:2]
    assert "predicting again" in again[2]
    damage(run / "fold0" / "oof.npz")
    assert f"delete {run / 'fold0'} and train that fold again" in one_line(podium("submit", "-c", "tiny"))


SIX = (*ONE, "--epochs", "6")  # steps as well


def stopped_at(step: int, root: Path, podium: Podium) -> Path:
    """The fold's folder after a signal that came in this step."""
    train_step = Fold.step

    def stopping(self: Fold, images: torch.Tensor, labels: torch.Tensor) -> None:
        train_step(self, images, labels)
        if self.state.step == step:
            signal.raise_signal(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Fold, "step", stopping)
        assert podium(*SIX)[0] == 75
    return root / "runs" / "tiny" / "test_vit" / "fold0"


def test_a_checkpoint_of_something_else_is_refused(root: Path, podium: Podium) -> None:
    path = checkpoints(stopped_at(2, root, podium))[0]
    tensors, metadata = load_tensors(path)
    progress = json.loads(metadata["podium"])
    slot = next(name for name in tensors if name.startswith("optimizer."))
    junk: list[object] = [5, [], None, {}, progress | {"step": 10**9}, progress | {"history": 5}]
    others: list[tuple[dict[str, torch.Tensor], object]] = [
        *((tensors, about) for about in junk),
        *((tensors, {key: value for key, value in progress.items() if key != left}) for left in progress),
        *(({key: value for key, value in tensors.items() if key != left}, progress) for left in ("loss", slot)),
        ({**tensors, "optimizer.9999.exp_avg": torch.zeros(1)}, progress),
        ({**tensors, "optimizer.x": torch.zeros(1)}, progress),
    ]
    for some, about in others:
        text = json.dumps(about)
        save_file(some, path, {"podium": text, "sha256": tensors_digest(some, text)})
        said = one_line(podium(*SIX))
        assert f"{path} is not of this run" in said, about
        assert "delete it to begin this fold anew" in said
    save_file(tensors, path, metadata)
    status, _, err = podium(*SIX)
    assert (status, "goes on from step 2" in err) == (0, True)


@pytest.mark.parametrize("damage", [flip, cut, empty])
def test_of_two_checkpoints_the_older_serves_when_the_newer_is_damaged(
    root: Path, podium: Podium, damage: Callable[[Path], None]
) -> None:
    assert podium(*SIX, "--name", "undisturbed")[0] == 0
    folder = stopped_at(5, root, podium)
    kept = ["checkpoint-000000005.safetensors", "checkpoint-000000004.safetensors"]
    assert [path.name for path in checkpoints(folder)] == kept
    damage(checkpoints(folder)[0])
    status, _, err = podium(*SIX)
    assert status == 0
    assert "checkpoint-000000005.safetensors: " in err
    assert "the one before is used" in err
    assert "goes on from step 4 of 6" in err
    assert not checkpoints(folder)
    same = [sha256(run / "fold0" / "model.safetensors") for run in (folder.parent, folder.parents[1] / "undisturbed")]
    assert same[0] == same[1]


def test_with_all_checkpoints_damaged_a_fold_begins_anew(root: Path, podium: Podium) -> None:
    folder = stopped_at(2, root, podium)
    for path in checkpoints(folder):
        flip(path)
    status, _, err = podium(*SIX)
    assert status == 0
    assert "this fold begins anew" in err
    assert "goes on from" not in err


def test_a_few_steps_without_numbers_change_nothing_and_many_end_the_run(
    root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_step, spoilt = Fold.step, range(2, 4)

    def spoiling(self: Fold, images: torch.Tensor, labels: torch.Tensor) -> None:
        before = {name: each.clone() for name, each in self.model.state_dict().items()}
        steps = [each["step"].clone() for each in self.optimizer.state.values()]
        scale = self.normalise.scale
        if self.state.step in spoilt:
            self.normalise.scale = scale * float("nan")
        train_step(self, images, labels)
        self.normalise.scale = scale
        if self.state.step - 1 in spoilt:
            assert all(torch.equal(before[name], each) for name, each in self.model.state_dict().items())
            assert steps == [each["step"] for each in self.optimizer.state.values()]
            assert self.state.skipped.item() > 0

    monkeypatch.setattr(Fold, "step", spoiling)
    status, _, err = podium(*SIX)
    assert status == 0
    for epoch in (3, 4):
        assert f"the gradients of 1 step of epoch {epoch} were not numbers, so they changed nothing" in err
    monkeypatch.setattr(fold_module, "CHECK_EVERY", 1)
    spoilt = range(4, 1000)  # an epoch has one step
    said = one_line(podium(*SIX, "--name", "other", "--epochs", "99"))
    assert "not numbers, 10 steps in a row and more, by step 14 of fold 0" in said
    assert "checkpoint-000000013.safetensors is from before" in said
    assert "try a lower --lr" in said


def test_training_goes_on_when_nobody_reads_what_it_says(root: Path) -> None:
    command = [sys.executable, "-m", "podium", "--root", str(root), *ONE]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stderr is not None
    started.stdout.close()
    started.stderr.close()
    assert started.wait(timeout=100) == 0
    assert (root / "runs" / "tiny" / "test_vit" / "fold0" / "oof.npz").exists()


def test_processes_that_cannot_start_end_the_command(
    root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork = os.fork
    forked: list[int] = []

    def failing() -> int:
        if len(forked) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        number = fork()
        forked.append(number)
        return number

    monkeypatch.setattr(os, "fork", failing)
    said = one_line(podium(*ONE, "--workers", "3"))
    assert "cannot start 3 loader processes (Resource temporarily unavailable); use --workers 0" in said


def test_a_gpu_too_small_to_validate_is_told_in_one_line(
    root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*given: object, **more: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(fold_module, "predict_proba", failing)
    assert "does hold one of 4; use --batch-size 4 under another --name" in one_line(podium(*ONE))


HOLDING = """
import os, sys, time
from pathlib import Path
from podium.disk import locked
ready, begun = os.pipe()
with locked(Path(sys.argv[1])) as mine:
    if os.fork() == 0:
        os.write(begun, b"1")
        time.sleep(60)
        os._exit(0)
    os.read(ready, 1)
    print(mine, flush=True)
    time.sleep(60)
"""


def test_a_killed_process_whose_children_live_on_holds_no_lock(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLDING, str(tmp_path / "lock")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        with locked(tmp_path / "lock") as mine:
            assert not mine
        holder.kill()
        holder.wait()
        with locked(tmp_path / "lock") as mine:
            assert mine
        os.killpg(holder.pid, signal.SIGKILL)  # the child


# --- images ------------------------------------------------------------------------------------------


def test_training_goes_on_without_bad_images_only_where_that_is_said(root: Path, podium: Podium) -> None:
    for name in ("003", "011"):
        (root / "data" / "raw" / "tiny" / "train_image" / f"{name}.jpg").write_bytes(b"<html>")
    for store in ("on", "off"):
        said = one_line(podium(*ONE, "--store", store))
        assert "2 training images cannot be read" in said
        assert "train_image/003.jpg first (it is a web page" in said
        assert "--skip-bad" in said
    status, _, err = podium(*ONE, "--skip-bad")
    assert status == 0, err
    assert "warning: 2 training images cannot be read" in err
    recipe = json.loads((root / "runs" / "tiny" / "test_vit" / "recipe.json").read_text())
    assert recipe["skip_bad"] is True


def test_a_test_image_that_cannot_be_read_keeps_its_row(run: Path, podium: Podium) -> None:
    root = run.parents[2]
    (root / "data" / "raw" / "tiny" / "test_image" / "002.jpg").write_bytes(b"")
    for store in ("on", "off"):
        status, out, err = podium("submit", "-c", "tiny", "--store", store)
        assert status == 0, err
        assert "1 test image CANNOT BE READ, test_image/002.jpg first (the file is empty)" in err
        rows = dict(line.split(",") for line in Path(out.strip()).read_text().splitlines())
        assert len(rows) == 8
        assert rows["002"] == "blue"  # of three classes of one size the first


def test_where_no_test_image_can_be_read_all_rows_are_there(run: Path, podium: Podium) -> None:
    for path in (run.parents[2] / "data" / "raw" / "tiny" / "test_image").iterdir():
        path.write_bytes(b"junk")
    status, out, err = podium("submit", "-c", "tiny")
    assert status == 0, err
    assert "7 test images CANNOT BE READ" in err
    assert len(Path(out.strip()).read_text().splitlines()) == 8


def test_what_is_trained_does_not_depend_on_the_store(root: Path, podium: Podium) -> None:
    """The images are larger than what is kept, so that they are shrunk."""
    for path in (root / "data" / "raw" / "tiny" / "train_image").glob("*.jpg"):
        write_image(path, (200, 30, int(path.stem) * 9), int(path.stem), (90, 150))
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    found = []
    for store in ("on", "off"):
        assert podium(*ONE, "--store", store, "--name", store)[0] == 0
        found.append((root / "runs" / "tiny" / store / "fold0" / "model.safetensors").read_bytes())
    assert found[0] == found[1]


# --- from Python -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ({}, "which model?"),
        ({"model": "convnxt"}, "no model 'convnxt'"),
        ({"model": "test_vit", "epoch": 1}, "no knob 'epoch'; did you mean epochs?"),
        ({"model": "test_vit", "epochs": 1.7}, "--epochs must be int, not 1.7"),
        ({"model": "test_vit", "epochs": "1"}, "--epochs must be int, not '1'"),
        ({"model": "test_vit", "weights": "no.pth"}, "--weights no.pth: no such file"),
    ],
)
def test_python_is_answered_as_the_command_line_is(root: Path, given: dict[str, object], answer: str) -> None:
    from podium import PodiumError
    from podium.competition.load import load

    with pytest.raises(PodiumError) as refused:
        train(load("tiny", root), root, given)
    assert answer in str(refused.value)
    assert submit.__doc__
