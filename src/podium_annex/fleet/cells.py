"""A cell: what one command line of podium does with one fold, one prediction, or as one worker of a search.

    podium train --model A B --cell A@fold0       does one of the cells of --on: tasks of Ray and jobs of Slurm run this

Whether a cell is done, the files of its run say, as without cells. The locks of the run say who writes: a cell that is
started while another process has it waits for that one, and then goes on from what it has left.
"""

import argparse
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

from podium.basics.errors import InUse, PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import first_few, plural, say, say_once
from podium.saved_runs.fold_names import fold_folder_name
from podium.training.stop_signals import stop_signals
from podium_annex.fleet.cell_command import BEGINS, LOOK, CellCommand, follow_parent
from podium_annex.fleet.ray_tasks import RayTasks, check_ray
from podium_annex.fleet.slurm_jobs import SlurmJobs, check_slurm

RAY, SLURM, SKY = "ray", "slurm", "sky"


def parse_where(text: str) -> str:
    """Checks --on; the message of its ValueError says what it may be."""
    kind, colon, detail = text.partition(":")
    if text in ("here", "gpus", "local"):  # of earlier versions
        raise PodiumError(f"--on {text} is gone: use --on ray here, or --on ray:ADDRESS on all machines of a cluster")
    if kind not in (RAY, SLURM, SKY) or (colon and (kind == SKY or not re.fullmatch(r"[^\s/]+", detail))):
        raise ValueError(f"ray, ray:ADDRESS, slurm, slurm:PARTITION or sky, not {text}")
    return text


def check_flags(args: argparse.Namespace) -> None:
    """Refuses flags of cells where there are none, and what would fail with every cell."""
    if args.cell:
        follow_parent()
        return
    starts_cells = args.on not in (None, SKY)
    for flag, value in {"--at-once": args.at_once, "--job": args.job}.items():
        if value and not starts_cells:
            raise PodiumError(f"{flag} is for cells on machines; leave it out, or add --on ray or --on slurm")
    if wrong := [word for word in args.job or () if not re.fullmatch(r"\w+=\S+", word)]:
        raise PodiumError(f"--job {wrong[0]}: write NAME=VALUE, such as timeout_min=480")
    if starts_cells:
        (check_ray if args.on.startswith(RAY) else check_slurm)(args)


def name_of(run: str, fold: int) -> str:
    return f"{run}@{fold_folder_name(fold)}"


def chosen(cell: str, cells: Mapping[str, Any]) -> Any:
    if cell not in cells:
        raise PodiumError(f"--cell {cell}: no such cell; this command has {first_few(cells)}")
    return cells[cell]


def run_cells(
    args: argparse.Namespace, words: Sequence[str], cells: Sequence[str], is_over: Callable[[], bool] = lambda: False
) -> dict[str, str]:
    """Runs the cells where --on says, until all have ended, or a search is over; returns what went wrong with some."""
    logs = runs_folder(args.competition, args.root).resolve() / ".logs"
    logs.mkdir(parents=True, exist_ok=True)
    words = [*words, "--root", str(args.root.resolve()), "-c", args.competition]
    commands = [CellCommand(cell, words, logs / f"{cell}.log") for cell in cells]
    say(f"podium: {plural(len(cells), 'cell')} on {args.on}; what they say is in {logs}")
    ended = dict[str, str]()
    # Ray says on standard output, among results, that a node is lost.
    with stop_signals() as signals, (logs / "engine.log").open("a") as asides, redirect_stdout(asides):
        engine: Any = RayTasks(args, commands) if args.on.startswith(RAY) else SlurmJobs(args, commands, is_over)
        while len(ended) < len(cells) and not signals.stop_requested:
            new = engine.ended()  # waits for a moment
            for line in [line for command in commands if command.cell not in ended for line in command.said(BEGINS)]:
                say_once(line)
            for cell, problem in new.items():
                ended[cell] = problem
                count = f"{len(ended)} of {len(cells)}"
                say(f"podium: error: cell {cell}: {problem}" if problem else f"podium: cell {cell} is done, {count}")
        if signals.stop_requested:
            engine.stop()
    return {cell: problem for cell, problem in ended.items() if problem}


def refuse_failed(failed: Mapping[str, str], count: int) -> None:
    if failed:
        what = f"{len(failed)} of {count} cells failed: {first_few(failed)}"
        raise PodiumError(f"{what}; the reasons are above, and the same command tries them again")


def work_alone(work: Callable[[], object]) -> None:
    """Does the work of a cell once no other process has the run: one that lives may have been thought dead."""
    while True:
        try:
            work()
            return
        except InUse as problem:
            say_once(f"podium: note: {str(problem).partition(';')[0]}; this cell waits for that one")
            time.sleep(5 * LOOK)
