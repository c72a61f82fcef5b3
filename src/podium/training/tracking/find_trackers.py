"""Finds the programs that can follow a fold: packages beside this one bring them (podium_annex/trackers.py)."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from podium.basics.beside import brought
from podium.basics.errors import PodiumError
from podium.basics.extras import refuse_without
from podium.saved_runs.fold_names import fold_folder_name

LONGEST_TEXT = 500  # characters of an option; MLflow limits them
TOLD_NOTHING = -1  # comes before the first epoch, 0


@dataclass(frozen=True)
class TrackedFold:
    folder: Path  # runs/<competition>/<run>
    fold: int
    recipe: Mapping[str, Any]  # recipe.json
    id: str = ""  # that the tracker gave it when it began; resuming goes on there
    last_epoch: int = TOLD_NOTHING  # that the tracker knows

    @property
    def competition(self) -> str:
        return self.folder.parent.name

    @property
    def name(self) -> str:
        return f"{self.folder.name}/{fold_folder_name(self.fold)}"

    @property
    def options(self) -> dict[str, str]:
        """Returns the recipe as short texts."""
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.recipe.items()}
        return {name: text[:LONGEST_TEXT] for name, text in texts.items()}


class Tracker(Protocol):
    """A fold that a program follows: it begins, or goes on, when the object is made."""

    id: str

    def record(self, epoch: int, numbers: Mapping[str, float]) -> None:
        """Shows the numbers of an epoch."""

    def end(self, is_finished: bool) -> None:
        """Lets go of the fold; one that is not finished may be resumed later."""


@cache
def all_trackers() -> dict[str, Callable[[TrackedFold], Tracker]]:
    """Returns the programs that can follow a fold, by the names of machine.py, their packages and their extras."""
    found: dict[str, Callable[[TrackedFold], Tracker]] = {}
    for trackers in brought("trackers", "TRACKERS"):
        found |= trackers
    return found


def refuse_missing_packages(names: Sequence[str]) -> None:
    for name in names:
        if name not in all_trackers():
            raise PodiumError(f"--track {name}: podium_annex has it, and is not installed; install all of podium")
        refuse_without(name, f"--track {name}")
