"""Forecasts how long a fold takes from its first steps, and shortens its schedule to meet a deadline."""

import math
import time
from collections.abc import Sequence

import numpy as np

from podium.terminal import duration, plural, say
from podium.timing.fold_work import FoldWork


class Forecast:
    def __init__(
        self,
        work: FoldWork,  # in steps
        batch_size: int,
        start: int = 0,  # the step that a resumed fold begins with
        later: Sequence[float] = (),  # the sizes of the folds after this one, in units of this one's
        deadline: float = math.inf,  # on the clock of time.monotonic()
    ) -> None:
        self.work, self.batch_size, self.later, self.deadline = work, batch_size, later, deadline
        self.epoch_ends = work.per_epoch * np.arange(work.epochs + 1)
        self.first_step, self.start, self.started_at = start, start, math.nan
        self.is_reported = False

    def start_step(self, step: int) -> None:
        """Call it before each step. The first step does not count: it allocates memory and chooses kernels."""
        if step == self.first_step:
            return
        if math.isnan(self.started_at):
            self.started_at, self.start = time.monotonic(), step
        elif not self.is_reported and self.is_settled(step):
            self.is_reported = True
            self._report(step)

    def is_settled(self, step: int) -> bool:
        """True once enough steps are done to forecast the next ones."""
        done = step - self.start
        return done >= 20 or (done >= 2 and time.monotonic() - self.started_at > 5)

    def seconds_per_step(self, step: int) -> float:
        """Returns the seconds per step, with validation and saving."""
        return (time.monotonic() - self.started_at) / (self._work_done(step) - self._work_done(self.start))

    def work_left(self, step: int) -> float:
        """Returns the work until the fold is finished."""
        return self.work.total - self._work_done(step)

    def seconds_left(self, step: int) -> float:
        """Returns the seconds until the fold is finished."""
        return min(self.seconds_per_step(step) * self.work_left(step), self.deadline - time.monotonic())

    def last_step(self, step: int, planned: int) -> int:
        """Returns the step after which training ends: as planned, or earlier to meet the deadline."""
        if self.deadline == math.inf or not self.is_settled(step):
            return planned
        work = self.work.training + self.work.validation * np.arange(len(self.work.training))
        affordable = (self.deadline - time.monotonic()) / self.seconds_per_step(step) - self.work.last_validation
        last = int(np.interp(np.interp(step, self.epoch_ends, work) + affordable, work, self.epoch_ends))
        return max(step, min(planned, last))

    def _work_done(self, step: int) -> float:
        training = np.interp(step, self.epoch_ends, self.work.training)
        return float(training + self.work.validation * (step // self.work.per_epoch))

    def _report(self, step: int) -> None:
        pace = self.seconds_per_step(step)
        seconds = pace * (self.work_left(step) + sum(self.later) * self.work_left(0))
        if not self.later:
            seconds = min(seconds, self.deadline - time.monotonic())
        end = time.strftime("%a %H:%M", time.localtime(time.time() + seconds))
        folds = f"{1 + len(self.later)} folds" if self.later else "this fold"
        rate = f"{self.batch_size / pace:,.1f} images/s"
        epochs = plural(self.work.epochs, "epoch")
        say(f"podium: {rate}; {folds} of {epochs} will take about {duration(seconds)}, to about {end}")
