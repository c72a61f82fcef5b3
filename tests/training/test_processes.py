"""Several processes train as one: the same images, sums over exactly the images there are, and one end for all."""

import os
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from podium.disk import sha256
from podium.models.tensors import load_tensors
from podium.training.augment import generator, mix
from podium.training.checkpoint import checkpoints
from podium.training.loader import BatchSampler
from podium.training.processes import Processes
from podium.training.run_folder import Run
from tiny import write_competition

KNOBS = ("--weights", "none", "--image-size", "32", "--batch-size", "8", "--precision", "float32", "--mix", "0.7")
PLAIN = ("--model", "test_vit", "--drop-path", "0", "--ema", "0.5")  # whose dropped paths would be each process's own


@given(st.integers(2, 64), st.integers(1, 8), st.integers(0, 5))
def test_the_shares_of_a_batch_are_the_batch_and_keep_its_pairs_together(batch: int, size: int, seed: int) -> None:
    whole = list(BatchSampler(70, batch, 2, seed, fold=0))
    shares = [BatchSampler(70, batch, 2, seed, 0, Processes(rank, size)) for rank in range(size)]
    assert [list(chain(*parts)) for parts in zip(*shares, strict=True)] == whole
    assert all(share.mine.start is None or share.mine.start % 2 == 0 for share in shares)


@given(st.integers(2, 20), st.integers(1, 4), st.integers(0, 200))
def test_what_is_mixed_does_not_depend_on_who_mixes_it(images: int, size: int, seed: int) -> None:
    batch = torch.rand(images, 3, 8, 6, generator=torch.Generator().manual_seed(seed))
    targets = torch.eye(images)
    mine = [BatchSampler(images, images, 1, 0, 0, Processes(rank, size)).mine for rank in range(size)]
    whole = mix(batch, targets, generator(9, seed))
    parts = [mix(batch[each], targets[each], generator(9, seed)) for each in mine if len(batch[each])]
    for which in (0, 1):
        assert torch.equal(torch.cat([part[which] for part in parts]), whole[which])


def test_the_shares_of_what_is_predicted_are_all_of_it() -> None:
    rows = np.arange(11)
    assert np.concatenate([Processes(rank, 4).share(rows) for rank in range(4)]).tolist() == rows.tolist()


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("group")
    write_competition(folder, each=16)
    done = podium(folder, "folds", "-c", "tiny", "--k", "2")
    assert done.returncode == 0, done.stderr
    return folder


def podium(root: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "podium", "--root", root, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def train(root: Path, name: str, processes: int, *more: object) -> subprocess.CompletedProcess[str]:
    words = ("--device", "cpu", "--processes", processes) if processes else ("--device", "cpu")
    return podium(root, "train", "-c", "tiny", *KNOBS, "--name", name, *words, *more)


def weights(run: Run, fold: int = 0) -> torch.Tensor:
    tensors, _ = load_tensors(run.fold(fold) / "model.safetensors")
    return torch.cat([each.flatten().float() for each in tensors.values()])


def of(root: Path, name: str) -> Run:
    return Run(root / "runs" / "tiny" / name)


@pytest.mark.parametrize("processes", [2, 4])
def test_a_fold_of_several_processes_is_that_of_one(root: Path, processes: int) -> None:
    words = (*PLAIN, "--folds", "0", "--epochs", "3", "--parallel", "data")
    if not of(root, "alone").finished():
        assert train(root, "alone", 0, *words).returncode == 0
    done = train(root, f"all{processes}", processes, *words)
    assert done.returncode == 0, done.stderr
    assert f"{processes} processes" in done.stderr
    assert done.stdout.count("over 1 of 2 folds") == 1  # one of them speaks
    assert done.stderr.count("next:") == 1
    one, all_ = of(root, "alone"), of(root, f"all{processes}")
    assert torch.allclose(weights(one), weights(all_), atol=2e-4)
    begun = train(root, "begun", 0, *PLAIN, "--folds", "0", "--epochs", "1", "--seed", "1")
    assert begun.returncode == 0
    assert not torch.allclose(weights(one), weights(of(root, "begun")), atol=2e-2)  # it could have differed
    first, second = one.out_of_fold(0), all_.out_of_fold(0)
    assert first.id.tolist() == second.id.tolist()
    assert np.allclose(first.probs, second.probs, atol=1e-3)
    for mine, theirs in zip(one.history(0), all_.history(0), strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
        assert mine["log_loss"] == pytest.approx(theirs["log_loss"], rel=1e-3)


def test_each_process_may_have_folds_of_its_own(root: Path) -> None:
    words = ("--model", "test_resnet", "--epochs", "2")
    assert train(root, "one", 0, *words).returncode == 0
    done = train(root, "two", 2, *words)  # two folds for two: what --parallel auto chooses
    assert done.returncode == 0, done.stderr
    for fold in (0, 1):
        one, two = (of(root, name).fold(fold) / "model.safetensors" for name in ("one", "two"))
        assert sha256(one) == sha256(two)
    assert "over 2 of 2 folds" in done.stdout


def started(root: Path, name: str, processes: int, *more: str) -> subprocess.Popen[str]:
    words = ["--model", "test_resnet", "--sam", "0.05", "--folds", "0", "--epochs", "12", "--parallel", "data", *more]
    both = [*KNOBS, "--name", name, "--device", "cpu", "--processes", str(processes)]
    return subprocess.Popen(
        [sys.executable, "-m", "podium", "--root", str(root), "train", "-c", "tiny", *both, *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def wait_for_a_checkpoint(root: Path, name: str) -> None:
    until = time.monotonic() + 120
    while not checkpoints(of(root, name).fold(0)):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_signal_saves_and_the_same_command_ends_with_the_same_bits(root: Path) -> None:
    words = ("--model", "test_resnet", "--sam", "0.05", "--folds", "0", "--epochs", "12", "--parallel", "data")
    with started(root, "signalled", 2) as training:
        wait_for_a_checkpoint(root, "signalled")
        training.send_signal(signal.SIGTERM)
        _, err = training.communicate(timeout=120)
    assert training.returncode == 75, err
    assert "all is saved; run the same command again to go on" in err
    assert "Traceback" not in err
    assert train(root, "signalled", 2, *words).returncode == 0
    assert train(root, "undisturbed", 2, *words).returncode == 0
    one, other = of(root, "signalled"), of(root, "undisturbed")
    assert torch.equal(weights(one), weights(other))
    assert one.out_of_fold(0).probs.tobytes() == other.out_of_fold(0).probs.tobytes()


def test_when_one_process_dies_all_end_and_another_number_goes_on(root: Path) -> None:
    with started(root, "killed", 2) as training:
        wait_for_a_checkpoint(root, "killed")
        children = subprocess.run(["pgrep", "-P", str(training.pid)], capture_output=True, text=True).stdout.split()
        os.kill(int(children[-1]), signal.SIGKILL)
        _, err = training.communicate(timeout=120)
    assert training.returncode == 1
    assert err.splitlines()[-1].startswith("podium: error: process ")
    assert "killed by signal 9, and the others ended with it" in err
    words = ("--model", "test_resnet", "--sam", "0.05", "--folds", "0", "--epochs", "12", "--parallel", "data")
    done = train(root, "killed", 0, *words)
    assert done.returncode == 0, done.stderr
    assert "goes on from step" in done.stderr
    assert of(root, "killed").finished() == [0]


def test_a_teacher_a_head_and_a_budget_go_with_several_processes(root: Path) -> None:
    assert train(root, "teacher", 0, "--model", "test_vit", "--epochs", "1", "--folds", "0").returncode == 0
    more = ("--teacher", "teacher", "--head-first", "--budget", "10m", "--folds", "0", "--epochs", "2")
    done = train(root, "student", 2, "--model", "test_vit", "--parallel", "data", *more)
    assert done.returncode == 0, done.stderr
    assert "hold 1 fold of 2 epochs" in done.stderr
    assert "taught by teacher" in done.stderr
    assert [entry["epoch"] for entry in of(root, "student").history(0)] == [1, 2]
    assert not list(of(root, "student").path.glob(".trial-*"))


def test_a_process_whose_device_is_not_there_says_so_and_all_end(root: Path) -> None:
    done = podium(root, "train", "-c", "tiny", *KNOBS, "--model", "test_vit", "--processes", 2, "--device", "cuda")
    assert done.returncode == 1
    assert "needs as many GPUs" in done.stderr.splitlines()[-1]
    for number in (0, 1_000_000):
        done = podium(root, "train", "-c", "tiny", *KNOBS, "--model", "test_vit", "--processes", number)
        assert f"--processes {number}: at least 1" in done.stderr.splitlines()[-1]
    done = podium(root, "train", "-c", "tiny", *KNOBS, "--model", "test_vit", "--processes", 2, "--device", "cuda:1")
    assert "is one device" in done.stderr.splitlines()[-1]


def test_a_mistake_is_told_once(root: Path) -> None:
    done = train(root, "wrong", 2, "--model", "test_vit", "--folds", "7")
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if "error" in line] == [
        "podium: error: there is no fold 7; the folds of tiny are 0 to 1"
    ]
    done = train(root, "small", 2, "--model", "test_vit", "--folds", "0", "--batch-size", "2")
    assert done.stderr.splitlines()[-1] == "podium: error: a batch of 2 images is too small for 2 processes"
