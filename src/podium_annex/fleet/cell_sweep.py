"""A command and its cells: what one worker does at a time.

    runs/<slug>/.cells/sweep-<digest>.json     the cells of a command, for all who take part

A cell of `train` trains a fold of a run, one of `submit` predicts the test images with such a fold's model, and one of
`search` is a worker that tries trials until they or the time are over. The digest is that of what the command was asked
for, so the same command is the same sweep on all machines.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from podium import __version__
from podium.basics.disk import write_json
from podium.basics.errors import PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import seconds_of
from podium.saved_runs.fold_names import fold_folder_name
from podium_annex.fleet.cell_board import DONE, FAILED, FOLDER, FREE, Board, Rhythm, Step, reopen, take, write_new_file

BEAT = "PODIUM_BEAT"  # environment variable: the time between two beats of a worker
TRAIN, PREDICT, SEARCH = "train", "predict", "search"  # what a cell does


@dataclass(frozen=True)
class Cell:
    run: str  # or the name of a search
    fold: int  # or the number of a worker
    kind: str = TRAIN

    @property
    def name(self) -> str:
        if self.kind == SEARCH:
            return f"{prefix_of_workers(self.run)}{self.fold}"
        return f"{self.run}@{fold_folder_name(self.fold)}{'@test' if self.kind == PREDICT else ''}"


def prefix_of_workers(search: str) -> str:
    """Returns how the names of the cells of a search begin."""
    return f"{search}@worker-"


@dataclass(frozen=True)
class Sweep:
    folder: Path  # .cells
    digest: str
    runs: Mapping[str, Sequence[int]]  # the folds of each run; none: they are not made yet
    rhythm: Rhythm
    kind: str = TRAIN

    @property
    def cells(self) -> list[Cell]:
        return [Cell(run, fold, self.kind) for run, folds in self.runs.items() for fold in folds]

    @property
    def preparation(self) -> str:
        """Returns the name of the cell that makes what all others read."""
        return f"prepare-{self.digest}"

    def with_runs(self, runs: Mapping[str, Sequence[int]]) -> "Sweep":
        """Returns the sweep with these folds of each run, and writes it for all who take part."""
        sweep = replace(self, runs=runs)
        write_json(_path(self.folder, self.digest), sweep.as_json())
        return sweep

    def as_json(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "beat": self.rhythm.beat,
            "kind": self.kind,
            "runs": {run: list(folds) for run, folds in self.runs.items()},
        }

    def reopen(self, cells: Sequence[Cell], is_finished: Callable[[Cell], bool]) -> None:
        """Frees cells that failed, or whose files are gone, and ends those whose files were made without a worker."""
        board = Board(self.folder)
        steps, again = board.last_steps(), []
        for cell in cells:
            step = steps.get(cell.name, Step())
            if step.state == FAILED or (step.state == DONE and not is_finished(cell)):
                again.append(cell.name)
            elif step.state == FREE and is_finished(cell):
                lease = take(board, cell.name, step, self.rhythm)
                if lease is not None:
                    lease.end(DONE)
        reopen(board, again)


def open_sweep(slug: str, root: Path, kind: str, asked: object, runs: Mapping[str, Sequence[int]]) -> Sweep:
    """Returns the sweep of a command; refuses one that another version of Podium has begun.

    The first machine writes it, before anything is prepared, so all machines have one rhythm. `asked` is what the
    command was asked for, as JSON has it.
    """
    folder = runs_folder(slug, root) / FOLDER
    digest = hashlib.sha256(json.dumps([kind, asked]).encode()).hexdigest()[:12]
    path = _path(folder, digest)
    if not path.exists():
        new = Sweep(folder, digest, runs, Rhythm(seconds_of(os.environ.get(BEAT, "")) or 60.0), kind)
        write_new_file(path, json.dumps(new.as_json()) + "\n")
    found = _read(path)
    return found if found.cells else replace(found, runs=runs)  # those of a sweep that is not prepared


def read_sweeps(slug: str, root: Path) -> list[Sweep]:
    """Returns the sweeps of a competition, the oldest first."""
    paths = (runs_folder(slug, root) / FOLDER).glob("sweep-*.json")
    return [_read(path, any_version=True) for path in sorted(paths, key=lambda path: path.stat().st_mtime)]


def _path(folder: Path, digest: str) -> Path:
    return folder / f"sweep-{digest}.json"


def _read(path: Path, any_version: bool = False) -> Sweep:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, rhythm, kind = str(content["version"]), Rhythm(float(content["beat"])), str(content["kind"])
        runs = {str(run): tuple(map(int, folds)) for run, folds in content["runs"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise PodiumError(f"{path}: cannot be read ({error}); delete it, and run the same command again") from None
    if version != __version__ and not any_version:
        raise PodiumError(
            f"{path} was begun by Podium {version}, but this machine has {__version__}; install one version on all, or"
            " delete that file"
        )
    return Sweep(path.parent, path.stem.partition("-")[2], runs, rhythm, kind)
