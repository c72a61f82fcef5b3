"""The time that a run may take: `podium train --budget 8h`. training/fit_to_budget.py fits a run into it."""

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

SPARE = 0.01  # of the time: a reserve for what was not foreseen
MIN_EPOCHS = 1 / 3  # of the recipe's: with fewer, a model has only begun to learn, so fewer folds are better
SUBMIT_START = 12.0  # seconds that `podium submit` takes to start, on two cores


class Budget:
    """The time of one command, and the part of it that is reserved for the submission."""

    def __init__(self, seconds: float, started: float) -> None:
        """`started` is on the clock of time.monotonic()."""
        self.seconds, self.started = seconds, started
        self.end = started + seconds * (1 - SPARE)
        self.reserved = SUBMIT_START
        self.test_share = 0.0  # of a fold's time: what it takes to predict the test images

    def seconds_left(self) -> float:
        return self.end - self.reserved - time.monotonic()

    def start_fold(self, folds_left: float) -> float:
        """Reserves time for the fold's part of the submission; returns when its training has to be finished.

        Every fold gets a share of the time by its size; `folds_left` is in units of this fold's.
        """
        share = self.seconds_left() / folds_left
        self.reserved += share * self.test_share
        return time.monotonic() + share * (1 - self.test_share)


def choose_epochs(
    fold_seconds: Callable[[int], float], seconds: float, sizes: Sequence[float], epochs: int
) -> tuple[int, int]:
    """Returns how many folds, of how many epochs, fit into the seconds.

    The first fold, which is the unit of `sizes`, takes `fold_seconds(n)` with n epochs.
    """
    for fold_count in range(len(sizes), 0, -1):
        fitting = bisect_right(range(1, epochs + 1), seconds / sum(sizes[:fold_count]), key=fold_seconds)
        if fitting >= epochs * MIN_EPOCHS or fold_count == 1:
            break
    return fold_count, fitting


def process_start() -> float:
    """Returns when this process started, on the clock of time.monotonic()."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError):
        return time.monotonic()
