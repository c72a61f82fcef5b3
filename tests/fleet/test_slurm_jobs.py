"""podium train --on slurm: the jobs, through submitit's executor of this machine; what is refused before one starts."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import submitit

from podium.basics.errors import STOPPED, PodiumError
from podium_annex.fleet import slurm_jobs
from podium_annex.fleet.cell_board import DONE, FAILED, Board, Rhythm
from podium_annex.fleet.cell_sweep import Cell, Sweep
from podium_annex.fleet.slurm_jobs import CellCommand, check_queue, follow, open_queue
from podium_annex.fleet.visible_gpus import VARIABLE
from podium_annex.fleet.where import LOCAL, SLURM, Where
from podium_annex.fleet.work import work
from tiny import FAST, Podium, assert_same_fold, one_line, run_of

TRAIN = ("train", *FAST, "--epochs", "1", "--model", "test_vit", "--folds", "0")
CELLS = [Cell("a", 0), Cell("b", 0), Cell("c", 0)]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    folder = tmp_path / ".cells"
    folder.mkdir()
    return Sweep(folder, "abc", {}, Rhythm(0.02)).with_runs(dict.fromkeys("abc", (0,)))


class Job:
    """A job of a queue, whose state a test decides."""

    def __init__(self, number: int) -> None:
        self.job_id, self.state = str(number), "PENDING"


class Executor:
    """Takes jobs, and plays the node: it ends cells as workers do, or lets jobs die."""

    def __init__(self, sweep: Sweep, dying: str = "") -> None:
        self.sweep, self.dying, self.jobs, self.given = sweep, dying, list[Job](), list[dict[str, Any]]()
        self.commands = list[CellCommand]()

    def batch(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()

    def update_parameters(self, **given: Any) -> None:
        self.given.append(given)

    def submit(self, command: CellCommand) -> Job:
        job, cell = Job(len(self.jobs)), command.words[-1]
        self.jobs.append(job)
        self.commands.append(command)
        if cell != self.dying:
            work(Board(self.sweep.folder), [cell], lambda _: None, self.sweep.rhythm)
        job.state = "FAILED" if cell == self.dying else "COMPLETED"
        return job


def queue_of(sweep: Sweep, executor: Executor, monkeypatch: pytest.MonkeyPatch) -> slurm_jobs.Queue:
    monkeypatch.setattr(slurm_jobs.Queue, "last_line", lambda *_: "CUDA is not there")
    return slurm_jobs.Queue(sweep, Where(SLURM), ["train"], executor, {})


def test_all_cells_are_submitted_at_once_and_followed_to_their_end(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = Executor(sweep)
    last = follow(queue_of(sweep, executor, monkeypatch), CELLS, at_once=1)
    assert {step.state for step in last.values()} == {DONE}
    assert len(executor.jobs) == 3
    assert slurm_jobs.read_jobs(sweep.folder) == {"a@fold0": "0", "b@fold0": "1", "c@fold0": "2"}


def test_a_job_that_dies_before_its_cell_fails_it_with_the_last_line_of_its_log(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = follow(queue_of(sweep, Executor(sweep, dying="b@fold0"), monkeypatch), CELLS, at_once=8)
    assert (last["b@fold0"].state, last["b@fold0"].why) == (FAILED, "CUDA is not there")
    assert last["a@fold0"].state == last["c@fold0"].state == DONE


def test_the_same_command_follows_jobs_and_submits_none_twice(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = Executor(sweep)
    queue = queue_of(sweep, executor, monkeypatch)
    queue.jobs = {cell.name: Job(number) for number, cell in enumerate(CELLS)}  # of an earlier call; they wait
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        for cell in CELLS:
            work(Board(sweep.folder), [cell.name], lambda _: None, sweep.rhythm)

    monkeypatch.setattr("time.sleep", sleep)
    assert {step.state for step in follow(queue, CELLS, at_once=8).values()} == {DONE}
    assert (executor.jobs, looks) == ([], [0.02])


@pytest.mark.parametrize(
    ("state", "queue_says", "is_there"),
    [
        ("PENDING", "", True),
        ("REQUEUED", "", True),
        ("CANCELLED by 12", "", False),
        ("PREEMPTED", "", False),
        ("REVOKED", "", False),
        ("UNKNOWN", "5\n7_1\n", True),
        ("UNKNOWN", "5\n7_2\n", False),
        ("UNKNOWN", None, True),
    ],
)
def test_slurms_queue_is_asked_where_its_accounting_knows_nothing(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str, queue_says: str | None, is_there: bool
) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\n" + ("exit 1\n" if queue_says is None else f"printf '{queue_says}'\n"))
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    queue = queue_of(sweep, Executor(sweep), monkeypatch)
    job = Job(0)
    job.job_id, job.state = "7_1", state
    queue.jobs = {"a@fold0": job}
    assert queue.has_job("a@fold0") == is_there


def test_a_job_that_was_preempted_for_good_is_submitted_again(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    class Preempting(Executor):
        def submit(self, command: CellCommand) -> Job:
            self.dying = "a@fold0" if not self.jobs else ""
            job = super().submit(command)
            job.state = "PREEMPTED" if self.dying else job.state
            return job

    executor = Preempting(sweep)
    last = follow(queue_of(sweep, executor, monkeypatch), CELLS[:1], at_once=8)
    assert ([step.state for step in last.values()], len(executor.jobs)) == ([DONE], 2)


def test_more_cells_than_an_array_holds_are_arrays_one_after_the_other(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Running(Executor):
        def submit(self, command: CellCommand) -> Job:
            job = super().submit(command)
            job.state = "RUNNING"  # it has ended its cell only just
            return job

    monkeypatch.setattr(slurm_jobs, "LARGEST_ARRAY", 2)
    executor = Running(sweep)
    follow(queue_of(sweep, executor, monkeypatch), CELLS, at_once=8)
    assert len(executor.jobs) == 3
    after = [given["slurm_additional_parameters"].get("dependency") for given in executor.given]
    assert after == [None, "afterany:0:1"]


def test_jobs_that_slurm_does_not_know_yet_are_waited_for(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Executor):
        def submit(self, command: CellCommand) -> Job:
            self.jobs.append(Job(len(self.jobs)))
            self.jobs[-1].state = "UNKNOWN"
            return self.jobs[-1]

    monkeypatch.setattr(slurm_jobs, "LARGEST_ARRAY", 2)
    executor = Slow(sweep)
    monkeypatch.setattr(slurm_jobs, "_numbers_in_queue", lambda: {job.job_id for job in executor.jobs})

    def sleep(seconds: float) -> None:
        assert len(executor.jobs) == 3
        assert not Board(sweep.folder).last_steps()
        for cell in CELLS:
            work(Board(sweep.folder), [cell.name], lambda _: None, sweep.rhythm)

    monkeypatch.setattr("time.sleep", sleep)
    last = follow(queue_of(sweep, executor, monkeypatch), CELLS, at_once=8)
    assert [step.state for step in last.values()] == [DONE] * 3


@pytest.mark.parametrize(("visible", "gpus"), [(None, "0,1"), ("3,GPU-7f3a", "3,GPU-7f3a"), ("", "")])
def test_a_job_of_this_machine_sees_the_gpus_that_submitit_hides(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, visible: str | None, gpus: str
) -> None:
    monkeypatch.setattr("podium.models.device.gpu_names", lambda: ["cuda:0", "cuda:1"])
    monkeypatch.delenv(VARIABLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(VARIABLE, visible)
    executor = Executor(sweep)
    replace(queue_of(sweep, executor, monkeypatch), where=Where(LOCAL)).submit(CELLS[:1])
    (command,) = executor.commands
    monkeypatch.setenv(VARIABLE, "hidden by submitit")
    start = subprocess.Popen
    seen = f"import os; raise SystemExit(os.environ['{VARIABLE}'] != '{gpus}')"
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: start([sys.executable, "-c", seen], **options))
    command()
    assert command.checkpoint().function.gpus == command.gpus


def test_ctrl_c_leaves_the_jobs_and_says_how_to_follow_them(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = queue_of(sweep, Executor(sweep), monkeypatch)
    queue.jobs = {cell.name: Job(0) for cell in CELLS}

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        follow(queue, CELLS, at_once=8)
    assert "jobs lists them, and the same command follows them again" in capsys.readouterr().err


# --- one job -----------------------------------------------------------------------------------------


def test_a_command_that_saved_and_stopped_is_queued_again(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    command = CellCommand(["train"])
    start = subprocess.Popen
    stopping = [sys.executable, "-c", f"raise SystemExit({STOPPED})"]
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: start(stopping))
    with pytest.raises(PodiumError, match="status 75"):  # only if the handler of the signal does not end the process
        command()
    assert raised == [submitit.JobEnvironment._usr_sig()]


def test_a_job_that_is_preempted_stops_its_command_and_resumes_with_the_same_words() -> None:
    command = CellCommand(["train", "--cell", "a@fold0"])
    command.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    again = command.checkpoint().function
    assert command.process.poll() == -signal.SIGTERM
    assert (again.words, again.process) == (command.words, None)


def test_another_version_on_the_node_is_refused_before_the_cell_starts() -> None:
    with pytest.raises(PodiumError, match=r"this node has Podium .*, not 0\.0\.9"):
        CellCommand(["train"], version="0.0.9")()


def test_the_last_line_of_a_log_is_that_of_the_command(sweep: Sweep) -> None:
    queue = open_queue(sweep, Where(LOCAL), ["train"], 1, {})
    job: submitit.LocalJob[None] = submitit.LocalJob(sweep.folder / "jobs", "77")
    queue.jobs["a@fold0"] = job
    assert "its job has ended without a log" in queue.last_line("a@fold0")
    job.paths.stderr.write_text("podium: error: no space left\nsubmitit WARNING (2026)\n\n")
    assert queue.last_line("a@fold0") == "podium: error: no space left"


# --- what is refused ---------------------------------------------------------------------------------


def test_slurm_is_refused_where_there_is_none(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    message = one_line(podium(*TRAIN, "--on", "slurm:gpu"))
    assert "--on slurm:gpu: there is no sbatch on PATH" in message
    assert "--on here" in message


def test_a_folder_that_nodes_do_not_see_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(slurm_jobs, "OF_ONE_MACHINE", (str(tmp_path),))
    with pytest.raises(PodiumError, match="move the project to a folder that all machines share"):
        check_queue(Where(SLURM), tmp_path / "project")


def test_without_submitit_the_extra_that_brings_it_is_named(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "submitit" else find(name, *rest)
    )
    assert "pip install 'podium[slurm]'" in one_line(podium(*TRAIN, "--on", "slurm"))


@pytest.mark.parametrize("option", ["timeout_min", "=3", "timeout_min="])
def test_an_option_of_a_job_needs_a_name_and_a_value(tiny: Path, podium: Podium, option: str) -> None:
    assert "write NAME=VALUE" in one_line(podium(*TRAIN, "--on", "local", "--job", option))


def test_an_option_that_submitit_does_not_know_is_refused(sweep: Sweep) -> None:
    with pytest.raises(PodiumError, match="the names are those of submitit"):
        open_queue(sweep, Where(LOCAL), ["train"], 1, {"time_min": "3"})


# --- real jobs ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.all
def test_jobs_train_what_the_command_trains_to_the_bit(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_BEAT", "0.5s")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    words = ("train", *FAST, "--epochs", "1", "--device", "cpu", "--model", "test_vit", "--seeds", "0-1")
    status, _, err = podium(*words, "--on", "local", "--at-once", "2")
    assert status == 0, err
    assert "submitted 2 jobs" in err
    for seed in (0, 1):
        run_of(tiny, f"test_vit-seed{seed}").path.rename(tiny / f"by-jobs-{seed}")
    assert podium(*words)[0] == 0
    for seed in (0, 1):
        for fold in (0, 1):
            run = run_of(tiny, f"test_vit-seed{seed}")
            assert_same_fold(run, type(run)(tiny / f"by-jobs-{seed}"), fold)


@pytest.mark.slow
@pytest.mark.all
def test_a_job_whose_time_is_over_saves_is_queued_again_and_finishes(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    cells = tiny / "runs/tiny/.cells"
    words = ["--root", str(tiny), *TRAIN[:-2], "--epochs", "60", "--folds", "0", "--on", "here"]
    executor = submitit.LocalExecutor(cells / "jobs")
    job = executor.submit(CellCommand([*words, "--device", "cpu", "--cell", "test_vit@fold0"]))
    fold = run_of(tiny).fold_folder(0)
    while not (fold / "metrics.jsonl").exists():
        time.sleep(0.05)
    (task,) = [
        pid
        for pid in Path("/proc").glob("[0-9]*")
        if b"submitit.core._submit" in (pid / "cmdline").read_bytes()
        and str(cells).encode() in (pid / "cmdline").read_bytes()
    ]
    os.kill(int(task.name), submitit.JobEnvironment._usr_sig())
    job.result()
    assert json.loads((fold / "metrics.jsonl").read_text().splitlines()[-1])["epoch"] == 60
    assert "Requeued" in (job.stdout() or "")
    assert "resumes from step" in (job.stderr() or "")
    assert Board(cells).last_steps()["test_vit@fold0"].number == 4  # taken, freed, taken, done
