"""The plan of a fold's steps: how fast it learns at each, and how long all will take."""

import math
import os
import time
from pathlib import Path

import numpy as np

from podium.recipe import Recipe, image_size_at
from podium.terminal import duration, plural, say
from podium.training.loader import BatchSampler


def learning_rate(step: int, total: int, warmup: float, peak: float) -> float:
    """Linear from nothing to the peak, then a half cosine to nothing."""
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


class Forecast:
    """How long a fold will take, from how long its first steps took. Work is counted in steps of full size."""

    def __init__(
        self, steps: BatchSampler, held_out: float, recipe: Recipe, folds_left: int = 1, until: float = math.inf
    ) -> None:
        self.steps, self.epochs, self.folds_left = steps, recipe.epochs, folds_left
        self.until = until  # on the clock of time.monotonic(): what is left of the schedule then has to go
        areas = [(image_size_at(epoch, recipe) / recipe.image_size) ** 2 for epoch in range(recipe.epochs)]
        self.ends = steps.per_epoch * np.arange(recipe.epochs + 1)
        self.work = steps.per_epoch * np.append(0.0, np.cumsum(areas))
        # Predicting an image is a forward pass, a third of a training step; the last time with all its views.
        self.look = steps.per_epoch * held_out / 3 * (recipe.test_size / recipe.image_size) ** 2
        self.last_look = self.look * recipe.looks
        self.began, self.start, self.first, self.said = math.nan, steps.start, math.nan, False

    def at(self, step: int) -> None:
        """Called before each step; the very first step allocates memory and chooses kernels."""
        if step == self.steps.start:
            self.first = time.monotonic()
        elif math.isnan(self.began):
            self.began, self.start = time.monotonic(), step
        elif not self.said and self.settled(step):
            self.said = True
            self._say(step)

    def settled(self, step: int) -> bool:
        """Enough steps were seen to tell the next ones' time."""
        done = step - self.start
        return done >= 20 or (done >= 2 and time.monotonic() - self.began > 5)

    def pace(self, step: int) -> float:
        """Seconds of a step, with all that is around it."""
        return (time.monotonic() - self.began) / (self._done(step) - self._done(self.start))

    def left(self, step: int) -> float:
        """Work until the fold is finished."""
        return float(self.work[-1] + self.look * (self.epochs - 1) + self.last_look - self._done(step))

    def last_step(self, step: int, planned: int) -> int:
        """The step after which training ends: as planned, or as the clock has it."""
        if self.until == math.inf or not self.settled(step):
            return planned
        whole = self.work + self.look * np.arange(len(self.work))
        units = (self.until - time.monotonic()) / self.pace(step) - self.last_look
        last = int(np.interp(np.interp(step, self.ends, whole) + units, whole, self.ends))
        return max(step, min(planned, last))

    def _done(self, step: int) -> float:
        return float(np.interp(step, self.ends, self.work) + self.look * (step // self.steps.per_epoch))

    def _say(self, step: int) -> None:
        pace = self.pace(step)
        ahead = pace * (self.left(step) + (self.folds_left - 1) * self.left(0))
        ahead = min(ahead, self.until - time.monotonic()) if self.folds_left == 1 else ahead
        until = time.strftime("%a %H:%M", time.localtime(time.time() + ahead))
        folds = f"{self.folds_left} folds" if self.folds_left > 1 else "this fold"
        speed = f"{self.steps.batch_size / pace:,.1f} images/s"
        epochs = plural(self.epochs, "epoch")
        say(f"podium: {speed}; {folds} of {epochs} will take about {duration(ahead)}, until {until}")


def process_start() -> float:
    """On the clock of time.monotonic()."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.monotonic() - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, AttributeError):
        return time.monotonic()
