"""Several processes train as one: the same images, gradients over exactly those images, and one end for all.

Most groups are forked here and get the environment that torchrun gives, because torchrun's processes take many seconds
to start. Two tests start them as users do, with --processes.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import timm
import torch

from forked_podium import SERVER, exit_status, group_environments, run_group, start_podium
from podium.models.tensors import load_tensors
from podium.saved_runs.run_folder import Run
from podium.training.context import open_context
from podium.training.learner import Learner
from podium.training.loop import training_batches
from podium.training.processes import Processes
from second_round import first_of
from tiny import Podium, assert_same_fold, assert_says, one_line, podium_at, run_of, weights_hash, write_competition
from training.learners import TASKS, plan_of_task

SMALL = "test_efficientnet"
TRAIN = (
    *("train", "-c", "tiny", "--device", "cpu", "--weights", "none", "--image-size", "32", "--batch-size", "8"),
    *("--precision", "float32", "--mix", "0.7", "--workers", "0"),
)
# Three steps per epoch. Without drop path, whose draws differ between processes.
ONE_FOLD = (*TRAIN, "--model", "test_vit", "--drop-path", "0", "--ema", "0.5", "--folds", "0", "--parallel", "data")
LONG = (*TRAIN, "--model", "test_resnet", "--sam", "0.05", "--folds", "0", "--epochs", "8", "--parallel", "data")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A competition of 49 training images with two folds."""
    folder = tmp_path_factory.mktemp("processes")
    write_competition(folder, per_class=16)
    podium_at(folder, "folds", "-c", "tiny", "--k", "2")
    return folder


def weights(run: Run) -> torch.Tensor:
    tensors, _ = load_tensors(run.weights_path(0))
    return torch.cat([tensor.flatten().float() for tensor in tensors.values()])


def train_in_group(root: Path, size: int, *words: object) -> str:
    """Trains in a group of processes that all succeed; returns what they print."""
    log = root / "group.log"
    log.unlink(missing_ok=True)
    assert run_group(size, ("--root", root, *words), log) == [0] * size, log.read_text()
    return log.read_text()


def test_the_shares_of_all_processes_are_all_rows() -> None:
    rows = np.arange(11)
    assert np.concatenate([Processes(rank, 4).share(rows) for rank in range(4)]).tolist() == rows.tolist()


# --- groups ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("size", first_of([2], [2, 4]))
def test_a_fold_of_several_processes_is_that_of_one(root: Path, size: int) -> None:
    command = (*ONE_FOLD, "--epochs", "2")
    podium_at(root, *command, "--name", "one")
    podium_at(root, *command, "--name", "other", "--seed", "1")
    one = run_of(root, "one")
    assert not torch.allclose(weights(one), weights(run_of(root, "other")), atol=2e-2)  # weights could differ
    output = train_in_group(root, size, *command, "--name", f"group{size}")
    assert f"{size} processes" in output
    assert output.count("over 1 of 2 folds") == 1  # only the first process prints
    assert output.count("next:") == 1
    group = run_of(root, f"group{size}")
    assert torch.allclose(weights(one), weights(group), atol=2e-4)
    assert one.out_of_fold(0).id.tolist() == group.out_of_fold(0).id.tolist()
    assert np.allclose(one.out_of_fold(0).probs, group.out_of_fold(0).probs, atol=1e-3)
    for alone, together in zip(one.history(0), group.history(0), strict=True):
        assert alone.loss == pytest.approx(together.loss, rel=1e-3)
        assert alone.scores["log_loss"] == pytest.approx(together.scores["log_loss"], rel=1e-3)


def save_gradients(root: Path, slug: str, file: Path, environment: Mapping[str, str]) -> None:
    """Saves the gradients of the first batch; in a group, each process has its share."""
    os.environ.update(environment)
    options = {"model": "test_vit", "drop_path": 0.0, "mix": 1.0, "batch_size": 10, "accumulate": 2}
    with open_context(plan_of_task(root, slug, **options)) as context:
        learner = Learner(context, fold=0)
        with closing(training_batches(learner)) as batches:
            learner.forward_backward(*learner.prepare(*next(batches)))
        if context.processes.is_first:
            torch.save({name: weight.grad for name, weight in learner.model.named_parameters()}, file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slug", "write", "sizes"),
    [("tiny", write_competition, (2, 3)), *(pytest.param(*task, (2,), marks=pytest.mark.all) for task in TASKS)],
)
def test_the_gradients_of_several_processes_are_those_of_one(
    tmp_path: Path, slug: str, write: Callable[[Path], object], sizes: tuple[int, ...]
) -> None:
    write(tmp_path)
    podium_at(tmp_path, "folds", "-c", slug, "--k", "3")
    save_gradients(tmp_path, slug, tmp_path / "alone", {})
    alone = torch.load(tmp_path / "alone")
    for size in sizes:
        group = [
            SERVER.Process(target=save_gradients, args=(tmp_path, slug, tmp_path / "group", environment), daemon=True)
            for environment in group_environments(size)
        ]
        for process in group:
            process.start()
        assert [exit_status(process) for process in group] == [0] * size
        together = torch.load(tmp_path / "group")
        for name, gradient in alone.items():
            assert (largest := gradient.abs().max()) > 0, name
            assert (gradient - together[name]).abs().max() <= 1e-4 * largest + 1e-7, name


@pytest.mark.slow
def test_all_processes_know_the_fitted_head(root: Path) -> None:
    """Its score decides the learning rate and whether a share of it is kept, in all processes alike."""
    torch.manual_seed(0)
    torch.save(timm.create_model(SMALL).state_dict(), root / "small.pt")
    words = ("--model", SMALL, "--weights", root / "small.pt", "--epochs", "2", "--mix", "0", "--keep", "0.3")
    command = (*ONE_FOLD, *words)
    podium_at(root, *command, "--name", "one-from-head")
    assert "the frozen head leaves little to learn" in train_in_group(root, 2, *command, "--name", "group-from-head")
    one, group = run_of(root, "one-from-head"), run_of(root, "group-from-head")
    assert np.allclose(one.out_of_fold(0).probs, group.out_of_fold(0).probs, atol=1e-3)
    facts = [[(record.lr, record.kept) for record in run.history(0)] for run in (one, group)]
    assert facts[0] == facts[1]
    assert [kept is None for _, kept in facts[0]] == [True, False, False]  # the head's own record first


@pytest.mark.slow
def test_each_process_may_train_folds_of_its_own(root: Path) -> None:
    command = (*TRAIN, "--model", "test_resnet", "--epochs", "2")
    podium_at(root, *command, "--name", "both-by-one")
    output = train_in_group(root, 2, *command, "--name", "one-each")  # --parallel auto gives each process a fold
    assert "over 2 of 2 folds" in output
    for fold in (0, 1):
        assert weights_hash(root, "both-by-one", fold) == weights_hash(root, "one-each", fold)


@pytest.mark.slow
def test_a_teacher_a_head_and_a_budget_go_with_several_processes(root: Path) -> None:
    podium_at(root, *ONE_FOLD, "--epochs", "1", "--name", "teacher")
    words = ("--teacher", "teacher", "--head-first", "--keep", "0.3", "--budget", "10m", "--epochs", "2")
    output = train_in_group(root, 2, *ONE_FOLD, *words, "--name", "student")
    assert_says(output, "in 10 min: 1 fold of 2 epochs", "taught by teacher")
    student = run_of(root, "student")
    assert [record.epoch for record in student.history(0)] == [0, 1, 2]  # 0: the head
    assert student.history(0)[-1].kept in (0, 0.3)
    assert not list(student.path.glob(".trial-*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--folds", "7"), "there is no fold 7; the folds of tiny are 0 to 1"),
        (("--batch-size", "2"), "a batch of 2 images is too small for 2 processes; use a larger --batch-size"),
        (("--linear",), "--linear cannot be combined with --processes"),
    ],
)
def test_a_mistake_is_reported_once(root: Path, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    log = tmp_path / "log"
    statuses = run_group(2, ("--root", root, *ONE_FOLD, *words, "--name", "wrong"), log)
    assert statuses[0] == 1
    assert statuses[1] != 0
    (line,) = [line for line in log.read_text().splitlines() if "error" in line]
    assert line.startswith(f"podium: error: {message}")


# --- with --processes --------------------------------------------------------------------------------


TOO_MANY_GPUS = str(torch.cuda.device_count() + 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--processes", TOO_MANY_GPUS, "--device", "cuda"), f"--processes {TOO_MANY_GPUS} needs as many GPUs"),
        (("--processes", "0"), "--processes 0: use at least 1"),
        (("--processes", "1000000"), "--processes 1000000: use at least 1"),
        (("--processes", "2", "--device", "cuda:1"), "--processes cannot be used with --device cuda:1"),
        (("--processes", "2", "--model", "test_vti"), "no model 'test_vti'"),
    ],
)
def test_an_impossible_group_is_refused_before_it_starts(
    tiny: Path, podium: Podium, words: tuple[str, ...], message: str
) -> None:
    assert message in one_line(podium(*TRAIN, "--model", "test_vit", *words))
    assert not (tiny / "runs").exists()


def start_and_interrupt(
    root: Path, fifo: Path, name: str, line_to_wait_for: str, interrupt: Callable[[int], None]
) -> tuple[int, str]:
    """Starts two processes, interrupts them after a line of their output; returns exit status and later output."""
    os.mkfifo(fifo)
    launcher = start_podium(("--root", root, *LONG, "--processes", "2", "--name", name), fifo)
    assert launcher.pid is not None
    with fifo.open() as output:
        for line in output:
            if line_to_wait_for in line:
                interrupt(launcher.pid)
                break
        later_output = output.read()
    return exit_status(launcher), later_output


@pytest.mark.slow
def test_a_signal_saves_and_the_same_command_ends_with_the_same_bits(root: Path, tmp_path: Path) -> None:
    status, output = start_and_interrupt(
        root, tmp_path / "output", "signalled", "epoch 2/8", lambda launcher: os.kill(launcher, signal.SIGTERM)
    )
    assert status == 75, output
    assert "all is saved; run the same command again to resume" in output
    assert "Traceback" not in output
    assert "resumes from step" in train_in_group(root, 2, *LONG, "--name", "signalled")
    train_in_group(root, 2, *LONG, "--name", "undisturbed")
    assert_same_fold(run_of(root, "signalled"), run_of(root, "undisturbed"))


@pytest.mark.slow
def test_when_one_process_ends_the_others_end_too_and_one_alone_resumes(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "output")
    words = ("--root", root, *LONG, "--name", "lost")
    processes = [
        start_podium(words, tmp_path / "output", environment=environment) for environment in group_environments(2)
    ]
    with (tmp_path / "output").open() as output:
        for line in output:
            if "epoch 3/8" in line:  # the checkpoint of the first epoch is on disk
                processes[1].kill()
                break
        later_output = output.read()
    assert [exit_status(process) for process in processes] == [1, -signal.SIGKILL]
    message = later_output.splitlines()[-1]
    assert message.startswith("podium: error: another process of this training has ended or does not answer")
    assert "the same command resumes" in message
    assert not run_of(root, "lost").finished()
    podium_at(root, *LONG, "--name", "lost")
    assert "resumes from step" in capsys.readouterr().err
    assert run_of(root, "lost").finished() == [0]


def kill_one_process(launcher: int) -> None:
    children = subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True).stdout.split()
    os.kill(int(children[-1]), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.all
def test_when_one_process_dies_all_end_and_another_number_of_processes_resumes(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # By the third line the checkpoint of the first epoch is on disk.
    status, output = start_and_interrupt(root, tmp_path / "output", "killed", "epoch 3/8", kill_one_process)
    assert status == 1, output
    message = output.splitlines()[-1]
    assert message.startswith("podium: error: signal 9 killed process ")
    assert_says(message, "the others ended with it", "the same command resumes")
    assert not run_of(root, "killed").finished()
    podium_at(root, *LONG, "--name", "killed")
    assert "resumes from step" in capsys.readouterr().err
    assert run_of(root, "killed").finished() == [0]
