"""Gives cells to Slurm, as arrays of jobs, and follows them until all have ended.

    podium train | search | submit | compete ... --on slurm[:partition] [--at-once 8] [--job timeout_min=480 mem_gb=32]

submitit writes .logs/jobs/: scripts, logs, pickles of command lines. A job that is preempted, or whose time is over, is
queued again. Jobs outlive the command, which knows them by jobs.json.
"""

import argparse
import json
import shutil
import time
from collections.abc import Callable, Sequence
from typing import Any

from podium.basics.disk import write_json
from podium.basics.errors import PodiumError
from podium.basics.extras import refuse_without
from podium.basics.terminal import first_line, plural, say
from podium_annex.fleet.cell_command import LOOK, TIME_TO_SAVE, CellCommand, job_options

CLUSTER = "slurm"
OF_ONE_MACHINE = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # folders that other machines do not see
AT_ONCE, LARGEST_ARRAY = (
    8,
    1000,
)  # Slurm's own limit, MaxArraySize, is 1,001 as a rule; each has --at-once jobs at a time
DEFAULTS: dict[str, Any] = {"name": "podium", "timeout_min": 240, "gpus_per_node": 1, "cpus_per_task": 8}
QUEUED_AGAIN = {"slurm_signal_delay_s": int(TIME_TO_SAVE) + 20, "slurm_additional_parameters": {"requeue": True}}


def check_slurm(args: argparse.Namespace) -> None:
    refuse_without("slurm", f"--on {args.on}")
    if missing := [name for name in ("sbatch", "srun") if shutil.which(name) is None]:
        elsewhere = "run this on a machine that submits to Slurm, or use --on ray"
        raise PodiumError(f"--on {args.on}: there is no {missing[0]} on PATH; {elsewhere}")
    root = args.root.resolve()
    if any(root.is_relative_to(folder) for folder in OF_ONE_MACHINE):
        remedy = "move the project to a folder that all machines share"
        raise PodiumError(f"--on {args.on}: the nodes do not see {root}; {remedy}")


class SlurmJobs:
    def __init__(self, args: argparse.Namespace, commands: Sequence[CellCommand], is_over: Callable[[], bool]) -> None:
        import submitit

        self.is_over, self.folder = is_over, commands[0].log.with_name("jobs")
        executor = submitit.AutoExecutor(self.folder, cluster=CLUSTER, slurm_max_num_timeout=1000)
        own = {"slurm_array_parallelism": args.at_once or AT_ONCE, "slurm_partition": args.on.partition(":")[2] or None}
        try:
            executor.update_parameters(**DEFAULTS, **QUEUED_AGAIN, **own)
            executor.update_parameters(**job_options(args))
        except (NameError, TypeError, ValueError) as error:
            names = "the names are those of submitit, such as timeout_min"
            raise PodiumError(f"--job: {first_line(error)}; {names}") from None
        known = self.known_jobs()
        new = [command for command in commands if command.cell not in known]
        for command in new:
            command.log.unlink(missing_ok=True)  # of an earlier call
        try:
            for start in range(0, len(new), LARGEST_ARRAY):
                with executor.batch():
                    known |= {one.cell: executor.submit(one) for one in new[start : start + LARGEST_ARRAY]}
        except (submitit.core.utils.FailedJobError, submitit.core.utils.FailedSubmissionError) as error:
            raise PodiumError(f"--on {args.on}: {first_line(error)}; correct --job or the partition") from None
        self.left = {command.cell: known[command.cell] for command in commands}
        write_json(self.folder / "jobs.json", {cell: str(job.job_id) for cell, job in known.items()})
        say(f"podium: {plural(len(new), 'job')} submitted; squeue lists them")

    def known_jobs(self) -> dict[str, Any]:
        """Returns the jobs of earlier commands that have not ended, by their cells."""
        import submitit

        path = self.folder / "jobs.json"
        numbers = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        jobs: dict[str, Any] = {cell: submitit.SlurmJob(self.folder, number) for cell, number in numbers.items()}
        return {cell: job for cell, job in jobs.items() if job.state != "UNKNOWN" and not job.done()}

    def ended(self) -> dict[str, str]:
        time.sleep(LOOK)
        problems = {cell: _problem(job) for cell, job in self.left.items() if job.done()}
        waiting = [cell for cell, job in self.left.items() if job.state == "PENDING"]
        for cell in waiting if problems and self.is_over() else ():  # of a search: they would find nothing to try
            self.left[cell].cancel(check=False)
            problems[cell] = ""
        self.left = {cell: job for cell, job in self.left.items() if cell not in problems}
        return problems

    def stop(self) -> None:
        say("podium: the jobs go on: squeue lists them, scancel stops them, and the same command follows them again")


def _problem(job: Any) -> str:
    """Returns what went wrong with a job that has ended, or nothing."""
    try:
        return str(job.result())
    except Exception as error:  # it has left no result: its machine, or Slurm, has ended it
        return f"job {job.job_id}: {first_line(error)}; its log is {job.paths.stderr}"
