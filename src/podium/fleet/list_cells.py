"""Lists the cells of a competition: which are waiting, running, done or have failed.

    podium jobs [-c SLUG]

Reads the sweeps and the last steps of their cells (cell_board.py), and metrics.jsonl of those that are running.
"""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from podium.errors import PodiumError
from podium.fleet.cell_board import DONE, FAILED, FOLDER, FREE, TAKEN, Board, Step
from podium.fleet.cell_sweep import Cell, read_sweeps
from podium.fleet.slurm_jobs import read_jobs
from podium.project_root import runs_folder
from podium.saved_runs.run_folder import Run
from podium.terminal import command_for, duration, say, show, table

NAMES = {FREE: "waiting", TAKEN: "running", DONE: "done", FAILED: "failed"}


def list_cells(slug: str, root: Path) -> None:
    cells = list(dict.fromkeys(cell for sweep in read_sweeps(slug, root) for cell in sweep.cells))
    folder = runs_folder(slug, root)
    if not cells:
        command = command_for("train", slug, model="NAME")
        raise PodiumError(f"{folder / FOLDER}: no command has made cells; one does with: {command} --on here")
    steps, jobs = Board(folder / FOLDER).last_steps(), read_jobs(folder / FOLDER)
    rows, counts = [], Counter[str]()
    for cell in cells:
        step = steps.get(cell.name, Step())
        state = NAMES[step.state]
        counts[state] += 1
        rows.append([cell.run, cell.fold, state, step.who.partition(":")[0], _detail(folder, cell, step, jobs)])
    show(table(["run", "fold", "state", "machine", ""], rows, text_columns=5))
    say(f"podium: {', '.join(f'{counts[name]:,} {name}' for name in NAMES.values() if counts[name])}")


def _detail(folder: Path, cell: Cell, step: Step, jobs: Mapping[str, str]) -> str:
    if step.state == FAILED:
        return step.why
    if step.state == TAKEN:
        return _progress(Run(folder / cell.run), cell.fold)
    return f"job {jobs[cell.name]}" if step.state == FREE and cell.name in jobs else ""


def _progress(run: Run, fold: int) -> str:
    """Returns how far a fold is and when it ends, by its epochs so far; nothing before the first of them."""
    try:
        records = [record for record in run.history(fold) if not record.is_start]
        epochs = int(run.recipe["epochs"])
    except PodiumError:
        return ""
    if not records:
        return ""
    seconds = sum(record.seconds + record.validation_seconds for record in records) / len(records)
    left = (epochs - records[-1].epoch) * seconds
    return f"epoch {records[-1].epoch} of {epochs}, about {duration(left)} left"
