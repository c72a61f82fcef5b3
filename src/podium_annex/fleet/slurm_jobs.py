"""Hands cells to Slurm, as one array of jobs, and follows them until all have ended.

    podium train | search | submit ... --on slurm[:partition] [--at-once 8] [--job timeout_min=480 mem_gb=32]

A job is the command of one cell, `--on here --cell RUN@fold0`, so it takes the cell's lease as any worker does: a
job that is started twice trains nothing twice. submitit writes runs/<slug>/.cells/jobs/: scripts, logs, and pickles of
these command lines (of no data and no weights). `--on local` runs the jobs on this machine, to try them.
"""

import getpass
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from podium import __version__
from podium.basics.disk import write_json
from podium.basics.errors import STOPPED, PodiumError
from podium.basics.extras import refuse_without
from podium.basics.terminal import first_few, first_line, plural, podium_command, say
from podium_annex.fleet.cell_board import DONE, ENDED, FAILED, FREE, TAKEN, Board, Step, Watch, take
from podium_annex.fleet.cell_sweep import Cell, Sweep
from podium_annex.fleet.visible_gpus import environment_with, visible_gpus
from podium_annex.fleet.where import LOCAL, SLURM, Where

OF_ONE_MACHINE = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # folders that other machines do not see
LARGEST_ARRAY = 1000  # Slurm's own limit, MaxArraySize, is 1,001 as a rule
TIME_TO_SAVE = 120  # seconds between Slurm's signal and the end of a job
DEFAULTS: dict[str, dict[str, Any]] = {
    LOCAL: {"timeout_min": 60 * 24},
    SLURM: {
        "timeout_min": 240,
        "gpus_per_node": 1,
        "cpus_per_task": 8,
        "slurm_signal_delay_s": TIME_TO_SAVE,
        "slurm_additional_parameters": {"requeue": True},
    },
}
ALIVE = (
    *("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"),
    *("RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED", "RESV_DEL_HOLD"),
)
PREEMPTED = "PREEMPTED"  # and not queued again: that depends on how Slurm is set up
UNKNOWN = "UNKNOWN"  # to Slurm's accounting, which has not heard of the job yet, or is switched off


@dataclass
class CellCommand:
    """A job: it runs the command of one cell, and asks to be queued again when the command has saved and stopped."""

    words: Sequence[str]
    version: str = __version__
    gpus: Sequence[str] | None = None  # that it may use; None: those that the scheduler gives
    process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    def __call__(self) -> None:
        import submitit

        if self.version != __version__:
            raise PodiumError(f"this node has Podium {__version__}, not {self.version}; install one version on all")
        command = [sys.executable, "-m", "podium", *self.words]
        self.process = subprocess.Popen(command, env=environment_with(self.gpus))
        while (status := self.process.poll()) is None:  # `wait` would hold a lock that `checkpoint` needs
            time.sleep(0.1)
        if status == STOPPED:
            signal.raise_signal(submitit.JobEnvironment._usr_sig())  # submitit's handler queues the job again
        if status:
            raise PodiumError(f"the command ended with status {status}; its last line is above")

    def checkpoint(self) -> Any:
        """Stops the command once it has saved, and returns the job that resumes it: submitit calls this."""
        import submitit

        deadline = time.monotonic() + TIME_TO_SAVE - 20
        if self.process and self.process.poll() is None:
            self.process.terminate()
            while self.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
        return submitit.helpers.DelayedSubmission(replace(self, process=None))


@dataclass
class Queue:
    """The jobs of a sweep: those of this process, and those that an earlier call of the same command has submitted."""

    sweep: Sweep
    where: Where
    words: Sequence[str]  # of the command, without its cell
    executor: Any
    jobs: dict[str, Any]  # of submitit, by the name of their cell
    queued: set[str] | None = None  # the numbers of the jobs in Slurm's queue
    looked: float = -math.inf  # when that was known
    new: dict[str, float] = field(default_factory=dict)  # the jobs that were submitted last, and when

    def submit(self, cells: Sequence[Cell], after: str = "") -> None:
        """Submits an array, which waits for the end of these."""
        import submitit

        if self.where.kind == SLURM:
            own = {"dependency": f"afterany:{after}"} if after else {}
            own = {**DEFAULTS[SLURM]["slurm_additional_parameters"], **own}
            self.executor.update_parameters(slurm_additional_parameters=own)
        gpus = visible_gpus() if self.where.kind == LOCAL else None  # submitit hides them from jobs of this machine
        commands = [CellCommand([*self.words, "--cell", cell.name], gpus=gpus) for cell in cells]
        try:
            with self.executor.batch():
                new = [self.executor.submit(command) for command in commands]
            numbers = {cell.name: job.job_id for cell, job in zip(cells, new, strict=True)}
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            raise PodiumError(f"--on {self.where}: {first_line(error)}; correct --job or the partition") from None
        self.jobs |= dict(zip(numbers, new, strict=True))
        self.looked = -math.inf  # the queue's list has grown
        self.new = {str(job.job_id): time.monotonic() for job in new}
        write_json(_jobs_path(self.sweep), {cell: job.job_id for cell, job in self.jobs.items()})
        say(f"podium: submitted {plural(len(cells), 'job')}: {first_few(numbers.values())}")

    def has_job(self, cell: str) -> bool:
        """Returns whether a job of the cell waits or runs."""
        job = self.jobs.get(cell)
        if job is None:
            return False
        if self.where.kind == SLURM:
            state = self.state_of(cell)
            return self._is_in_queue(str(job.job_id)) if state == UNKNOWN else state in ALIVE
        if job.state != "NO PROCESS AND NO RESULT":  # a job of this process
            return bool(job.state == "RUNNING")
        with suppress(OSError):
            os.kill(int(job.job_id), 0)
            return True
        return False

    def _is_in_queue(self, number: str) -> bool:
        """Returns whether Slurm's queue, which is asked once for all jobs, has the job; True if it does not answer."""
        if time.monotonic() > self.looked + self.sweep.rhythm.beat / 2:
            self.queued, self.looked = _numbers_in_queue(), time.monotonic()
        is_young = time.monotonic() < self.new.get(number, -math.inf) + self.sweep.rhythm.beat
        return self.queued is None or number in self.queued or is_young

    def arrays(self) -> str:
        """Returns the numbers of the arrays that have jobs now, as Slurm's dependencies name several."""
        alive = (str(job.job_id) for cell, job in self.jobs.items() if self.has_job(cell))
        return ":".join(dict.fromkeys(number.partition("_")[0] for number in alive))

    def state_of(self, cell: str) -> str:
        """Returns what Slurm's accounting calls the state of a cell's job, in one word."""
        words = str(self.jobs[cell].state).split() or [UNKNOWN]
        return words[0].rstrip("+")

    def was_taken_away(self, cell: str) -> bool:
        """Returns whether Slurm has taken the machine away from the cell's job, and has not queued it again."""
        return self.where.kind == SLURM and self.state_of(cell) == PREEMPTED

    def cancel(self, cell: str) -> None:
        """Takes a job that nobody needs out of Slurm's queue. On this machine, it ends by itself."""
        if self.where.kind == SLURM and self.has_job(cell):
            self.jobs[cell].cancel(check=False)

    def wait_for_ends(self) -> None:
        """Waits for the processes of this machine whose cells have ended. Slurm clears away its own."""
        while self.where.kind != SLURM and any(map(self.has_job, self.jobs)):
            time.sleep(0.1)

    def last_line(self, cell: str) -> str:
        """Returns the last line of the log of a job that has ended before its cell."""
        path = self.jobs[cell].paths.stderr
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        said = [line for line in lines if line.strip() and not line.startswith("submitit")]
        return said[-1].strip() if said else f"its job has ended without a log; can its machine see {path.parent}?"


def check_queue(where: Where, root: Path) -> None:
    """Refuses what would fail on every node."""
    refuse_without("slurm", f"--on {where}")
    if where.kind != SLURM:
        return
    if missing := [name for name in ("sbatch", "srun") if shutil.which(name) is None]:
        raise PodiumError(
            f"--on {where}: there is no {missing[0]} on PATH; run this on a machine that submits to Slurm, or use"
            " --on here on each machine"
        )
    if any(root.resolve().is_relative_to(folder) for folder in OF_ONE_MACHINE):
        raise PodiumError(
            f"--on {where}: the nodes do not see {root.resolve()}; move the project to a folder that all machines share"
        )


def open_queue(sweep: Sweep, where: Where, words: Sequence[str], at_once: int, options: Mapping[str, str]) -> Queue:
    import submitit

    executor = submitit.AutoExecutor(sweep.folder / "jobs", cluster=where.kind, slurm_max_num_timeout=1000)
    slurm = {"slurm_array_parallelism": at_once, "name": "podium"}
    if where.partition:
        slurm["slurm_partition"] = where.partition
    given = {name: _number_or_text(value) for name, value in options.items()}
    try:
        executor.update_parameters(**DEFAULTS[where.kind], **(slurm if where.kind == SLURM else {}))
        executor.update_parameters(**given)
    except (NameError, TypeError, ValueError) as error:
        raise PodiumError(f"--job: {first_line(error)}; the names are those of submitit, such as timeout_min") from None
    kind = submitit.SlurmJob if where.kind == SLURM else submitit.LocalJob
    numbers = _read(_jobs_path(sweep))
    jobs: dict[str, Any] = {cell: kind(sweep.folder / "jobs" / "%j", number) for cell, number in numbers.items()}
    return Queue(sweep, where, words, executor, jobs)


def follow(
    queue: Queue, cells: Sequence[Cell], at_once: int, is_over: Callable[[], bool] | None = None
) -> dict[str, Step]:
    """Submits the cells that have no job, and waits until all have ended; returns their last steps.

    Of a search, `is_over` says whether nothing is left to try.
    """
    sweep = queue.sweep
    board, tried, again = Board(sweep.folder), set[str](), set[str]()
    watch, is_slurm = Watch(board, sweep.rhythm), queue.where.kind == SLURM
    try:
        while True:
            steps = board.last_steps()
            last = {cell: steps.get(cell.name, Step()) for cell in cells}
            if is_over is not None and is_over():
                last = _without_late_workers(queue, board, last)
            left = {cell: step for cell, step in last.items() if step.state not in ENDED}
            if not left:
                queue.wait_for_ends()
                return {cell.name: step for cell, step in last.items()}
            waiting = {cell: step for cell, step in left.items() if not queue.has_job(cell.name)}
            for cell, step in waiting.items():
                if cell.name in tried and (step.state == FREE or watch.is_dead(cell.name, step)):
                    if queue.was_taken_away(cell.name):
                        again.add(cell.name)
                    else:
                        _fail(board, cell, step, queue)
            new = [cell for cell in waiting if cell.name not in tried or cell.name in again]
            room = LARGEST_ARRAY if is_slurm else at_once - (len(left) - len(waiting))
            if new and room > 0:
                # Each array has a cap of its own, so the next one waits for those before it.
                names = {cell.name for cell in new[:room]}
                queue.submit(new[:room], after=queue.arrays() if is_slurm and not names & again else "")
                tried, again = tried | names, again - names
            else:
                time.sleep(sweep.rhythm.beat)
    except KeyboardInterrupt:
        follows = "the jobs go on", "the same command follows them again"
        starts = "the jobs of this machine stop, too, after they have saved", "the same command starts them again"
        what, then = follows if is_slurm else starts
        say(f"podium: {what}; {podium_command()} jobs lists them, and {then}")
        raise


def _without_late_workers(queue: Queue, board: Board, last: Mapping[Cell, Step]) -> dict[Cell, Step]:
    """Ends the workers of a search that have never begun, once nothing is left to try and none works."""
    states = [step.state for step in last.values()]
    if TAKEN in states or DONE not in states:
        return dict(last)
    after = dict(last)
    for cell, step in last.items():
        if step.state == FREE and not board.beats_so_far(cell.name, step):
            lease = take(board, cell.name, step, queue.sweep.rhythm)
            if lease is not None:
                after[cell] = lease.end(DONE) or step
                queue.cancel(cell.name)
    return after


def read_jobs(folder: Path) -> dict[str, str]:
    """Returns the numbers of all jobs by the name of their cell."""
    return {cell: number for path in sorted(folder.glob("jobs-*.json")) for cell, number in _read(path).items()}


def _fail(board: Board, cell: Cell, step: Step, queue: Queue) -> None:
    """Ends a cell whose job has ended before it."""
    lease = take(board, cell.name, step, queue.sweep.rhythm)
    if lease is not None:
        lease.end(FAILED, queue.last_line(cell.name))


def _numbers_in_queue() -> set[str] | None:
    """Returns the numbers of this user's jobs that wait or run, as Slurm's own queue has them; None: no answer."""
    with suppress(OSError, KeyError, subprocess.SubprocessError):  # a container's user may have no name
        command = ["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i"]
        return set(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split())
    return None


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _jobs_path(sweep: Sweep) -> Path:
    return sweep.folder / f"jobs-{sweep.digest}.json"


def _read(path: Path) -> dict[str, str]:
    try:
        return {str(cell): str(number) for cell, number in json.loads(path.read_text(encoding="utf-8")).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise PodiumError(f"{path}: cannot be read ({error}); delete it, and run the same command again") from None
