"""Tells the trackers of a run about its epochs, each epoch once, even if the run is killed and resumed.

Keeps runs/<slug>/<run>/fold<k>/tracked.json: what each tracker calls the fold, and the last epoch that it knows.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from podium.basics.disk import write_json
from podium.basics.terminal import first_line, say
from podium.saved_runs.epoch_record import EpochRecord
from podium.saved_runs.run_folder import Run
from podium.training.tracking.find_trackers import TOLD_NOTHING, TrackedFold, Tracker, all_trackers

FILE = "tracked.json"


class Tracking:
    """The trackers that follow a run, one fold after another.

    They only look on: a tracker that fails is left out from then on, with one warning, and training continues.
    """

    def __init__(self, run: Run, names: Sequence[str]) -> None:
        self.run, self.names = run, list(names)
        self.fold: int | None = None
        self.trackers: dict[str, Tracker] = {}  # of this fold

    def follow(self, fold: int, history: Sequence[EpochRecord]) -> None:
        """Tells each tracker the epochs of a fold that it does not know."""
        if fold != self.fold:
            self.close()
            self.fold = fold
        for name in [*self.names]:
            with self._left_out_if_it_fails(name):
                self._tell(name, fold, history)

    def close(self) -> None:
        """Lets all trackers go of their fold."""
        for name in [*self.trackers]:
            with self._left_out_if_it_fails(name):
                self.trackers.pop(name).end(is_finished=self.fold in self.run.models())

    def _tell(self, name: str, fold: int, history: Sequence[EpochRecord]) -> None:
        path = self.run.fold_folder(fold) / FILE
        marks = _read_marks(path)
        mark = marks.get(name, {"id": "", "last_epoch": TOLD_NOTHING})
        if name not in self.trackers:
            self.trackers[name] = all_trackers()[name](TrackedFold(self.run.path, fold, self.run.recipe, **mark))
        for record in history:
            if record.epoch > mark["last_epoch"]:
                self.trackers[name].record(record.epoch, _numbers_of(record))
                mark = {"id": self.trackers[name].id, "last_epoch": record.epoch}
        write_json(path, {**marks, name: mark})

    @contextmanager
    def _left_out_if_it_fails(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # each program has its own
            self.names.remove(name)
            self.trackers.pop(name, None)
            say(f"podium: warning: {name} fails ({first_line(error)}) and no longer follows {self.run.name}")


def _numbers_of(record: EpochRecord) -> dict[str, float]:
    numbers = {name: value for name, value in record.to_json().items() if isinstance(value, int | float)}
    del numbers["epoch"]  # it is the axis
    return numbers


def _read_marks(path: Path) -> dict[str, Any]:
    """Returns what is known of each tracker; nothing if the file is not there or damaged: they begin anew."""
    try:
        marks = json.loads(path.read_text(encoding="utf-8"))
        return {name: {"id": str(mark["id"]), "last_epoch": int(mark["last_epoch"])} for name, mark in marks.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
