"""A command and its cells: each a fold of a run, which one worker trains.

    runs/<slug>/.cells/sweep-<digest>.json     the runs and folds of a command, for all who take part

The digest is that of the runs and folds that were asked for, so the same command is the same sweep on all machines.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from podium import __version__
from podium.disk import write_json
from podium.errors import PodiumError
from podium.fleet.cell_board import DONE, FAILED, FOLDER, FREE, Board, Rhythm, Step, reopen, take
from podium.project_root import runs_folder
from podium.saved_runs.fold_names import fold_folder_name
from podium.terminal import seconds_of

BEAT = "PODIUM_BEAT"  # environment variable: the time between two beats of a worker


@dataclass(frozen=True)
class Cell:
    run: str
    fold: int

    @property
    def name(self) -> str:
        return f"{self.run}@{fold_folder_name(self.fold)}"


@dataclass(frozen=True)
class Sweep:
    folder: Path  # .cells
    digest: str
    runs: tuple[str, ...]
    folds: tuple[int, ...]  # none: they are not made yet
    rhythm: Rhythm

    @property
    def cells(self) -> list[Cell]:
        return [Cell(run, fold) for run in self.runs for fold in self.folds]

    @property
    def preparation(self) -> str:
        """Returns the name of the cell that makes what all others read."""
        return f"prepare-{self.digest}"

    def with_folds(self, folds: Sequence[int]) -> "Sweep":
        """Returns the sweep with its folds, and writes it for all who take part."""
        sweep = replace(self, folds=tuple(folds))
        content = {"version": __version__, "beat": self.rhythm.beat, "runs": list(self.runs), "folds": list(folds)}
        write_json(_path(self.folder, self.digest), content)
        return sweep

    def reopen(self, cells: Sequence[Cell]) -> None:
        """Frees cells that failed, or whose files are gone, and ends those that were trained without a worker."""
        from podium.saved_runs.run_folder import Run  # it imports numpy

        board = Board(self.folder)
        steps, finished = board.last_steps(), {run: Run(self.folder.parent / run).models() for run in self.runs}
        again = []
        for cell in cells:
            step, is_finished = steps.get(cell.name, Step()), cell.fold in finished[cell.run]
            if step.state == FAILED or (step.state == DONE and not is_finished):
                again.append(cell.name)
            elif (
                step.state == FREE and is_finished and (lease := take(board, cell.name, step, self.rhythm)) is not None
            ):
                lease.end(DONE)
        reopen(board, again)


def open_sweep(slug: str, root: Path, runs: Sequence[str], folds: Sequence[int]) -> Sweep:
    """Returns the sweep of a command; refuses one that another version of Podium has begun."""
    folder = runs_folder(slug, root) / FOLDER
    digest = hashlib.sha256(json.dumps([list(runs), list(folds)]).encode()).hexdigest()[:12]
    if _path(folder, digest).exists():
        return _read(_path(folder, digest))
    return Sweep(folder, digest, tuple(runs), tuple(folds), Rhythm(seconds_of(os.environ.get(BEAT, "")) or 60.0))


def read_sweeps(slug: str, root: Path) -> list[Sweep]:
    """Returns the sweeps of a competition, the oldest first."""
    paths = (runs_folder(slug, root) / FOLDER).glob("sweep-*.json")
    return [_read(path, any_version=True) for path in sorted(paths, key=lambda path: path.stat().st_mtime)]


def _path(folder: Path, digest: str) -> Path:
    return folder / f"sweep-{digest}.json"


def _read(path: Path, any_version: bool = False) -> Sweep:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, rhythm = str(content["version"]), Rhythm(float(content["beat"]))
        runs, folds = tuple(map(str, content["runs"])), tuple(map(int, content["folds"]))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise PodiumError(f"{path}: cannot be read ({error}); delete it, and run the same command again") from None
    if version != __version__ and not any_version:
        raise PodiumError(
            f"{path} was begun by Podium {version}, but this machine has {__version__}; install one version on all, or"
            " delete that file"
        )
    return Sweep(path.parent, path.stem.partition("-")[2], runs, folds, rhythm)
