"""Lists the cells of a competition: which are waiting, running, done or have failed.

    podium jobs [-c SLUG]

Reads the sweeps and the last steps of their cells (cell_board.py), and metrics.jsonl of folds that train.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from podium.basics.errors import PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import command_for, duration, say, show, table
from podium.saved_runs.fold_names import fold_folder_name
from podium_annex.fleet.cell_board import DONE, FAILED, FOLDER, FREE, TAKEN, Board, Step
from podium_annex.fleet.cell_sweep import PREDICT, SEARCH, TRAIN, Cell, Sweep, prefix_of_workers, read_sweeps
from podium_annex.fleet.slurm_jobs import read_jobs

STATES = {FREE: "waiting", TAKEN: "running", DONE: "done", FAILED: "failed"}
HEADERS = {TRAIN: ("run", "fold"), PREDICT: ("predicts", "fold"), SEARCH: ("search", "worker")}


def list_cells(slug: str, root: Path, trials_of: Callable[[str], str]) -> None:
    """Shows a table for each kind of cells; `trials_of` says how many trials of a search are done."""
    folder, sweeps = runs_folder(slug, root), read_sweeps(slug, root)
    if not sweeps:
        command = command_for("train", slug, model="NAME")
        raise PodiumError(f"{folder / FOLDER}: no command has made cells; one does with: {command} --on here")
    board, jobs = Board(folder / FOLDER), read_jobs(folder / FOLDER)
    steps = board.last_steps()
    silences, patience = board.silences(steps), max(sweep.rhythm.patience for sweep in sweeps)
    counts, tables = Counter[str](), []
    if rows := _preparations(sweeps, steps):
        tables.append(table(["prepares", "state", "machine", ""], rows, text_columns=4))
    for kind, header in HEADERS.items():
        rows = []
        for name, run_and_number in _cells_of(kind, sweeps, steps).items():
            step = steps.get(name, Step())
            counts[step.state] += 1
            detail = _reason(step, name, jobs)
            if silences.get(name, 0.0) > patience:
                detail = f"silent for {duration(silences[name])}: its machine may be dead"
            elif kind == TRAIN and step.state == TAKEN:
                detail = _progress(folder, name)
            rows.append([*run_and_number, STATES[step.state], step.who.partition(":")[0], detail])
        if rows:
            tables.append(table([*header, "state", "machine", ""], rows, text_columns=5))
    show("\n\n".join(tables))
    for search in _searches(sweeps):
        say(f"podium: search {search}: {trials_of(search)}")
    say(f"podium: {', '.join(f'{counts[state]:,} {name}' for state, name in STATES.items() if counts[state])}")


def _preparations(sweeps: Sequence[Sweep], steps: Mapping[str, Step]) -> list[list[str]]:
    """Returns a row for each command whose audit, folds and pixels are being made, or could not be made."""
    found = [(sweep.kind, steps.get(sweep.preparation, Step())) for sweep in sweeps]
    return [
        [kind, STATES[step.state], step.who.partition(":")[0], step.why]
        for kind, step in found
        if step.state in (TAKEN, FAILED)
    ]


def _cells_of(kind: str, sweeps: Sequence[Sweep], steps: Mapping[str, Step]) -> dict[str, tuple[str, str]]:
    """Returns the first two columns of each cell, by its name."""
    cells = [cell for sweep in sweeps if sweep.kind == kind for cell in sweep.cells]
    named = {cell.name: (cell.run, _number_of(cell)) for cell in cells}
    for search in _searches(sweeps) if kind == SEARCH else ():  # workers of machines, which no sweep has foreseen
        prefix = prefix_of_workers(search)
        named |= {name: (search, name.removeprefix(prefix)) for name in steps if name.startswith(prefix)}
    return named


def _number_of(cell: Cell) -> str:
    return str(cell.fold) if cell.kind == SEARCH else fold_folder_name(cell.fold).removeprefix("fold")


def _searches(sweeps: Sequence[Sweep]) -> list[str]:
    return list(dict.fromkeys(search for sweep in sweeps if sweep.kind == SEARCH for search in sweep.runs))


def _reason(step: Step, name: str, jobs: Mapping[str, str]) -> str:
    """Returns why a cell has failed, or for which job it waits."""
    return f"job {jobs[name]}" if step.state == FREE and name in jobs else step.why


def _progress(folder: Path, cell: str) -> str:
    """Returns how far a fold is and when it ends, by its epochs so far; nothing before the first of them."""
    from podium.saved_runs.run_folder import Run  # it imports numpy

    name, _, fold_folder = cell.partition("@")
    run = Run(folder / name)
    try:
        records = [record for record in run.history(int(fold_folder.removeprefix("fold"))) if not record.is_start]
        epochs = int(run.recipe["epochs"])
    except PodiumError:
        return ""
    if not records:
        return ""
    seconds = sum(record.seconds + record.validation_seconds for record in records) / len(records)
    left = (epochs - records[-1].epoch) * seconds
    return f"epoch {records[-1].epoch} of {epochs}, about {duration(left)} left"
