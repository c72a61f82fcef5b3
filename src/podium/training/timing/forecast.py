"""Forecasts how long a fold takes from its latest steps, and shortens its schedule to meet a deadline."""

import math
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from podium.basics.terminal import duration, plural, say
from podium.training.timing.fold_work import FoldWork

WINDOW = 60.0  # seconds: of the steps that a forecast looks at, and between two that are said
MOVED = 0.25  # of the time left: then the end is said again


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
        self.latest: deque[tuple[float, float]] = deque()  # time and work done, once a second
        self.best_pace = math.inf  # seconds per step, of the quickest time between two looks
        self.reported_at = self.reported_end = -math.inf

    def start_step(self, step: int) -> None:
        """Call it before each step. The first step does not count: it allocates memory and chooses kernels."""
        if step == self.first_step:
            return
        now = time.monotonic()
        if math.isnan(self.started_at):
            self.started_at, self.start = now, step
        elif self.is_settled(step) and self._is_news(step, now):
            self._report(step, now)
        if not self.latest or now - self.latest[-1][0] >= 1:
            self.latest.append((now, self._work_done(step)))
            self.best_pace = min(self.best_pace, self.recent_pace(step) if len(self.latest) > 1 else math.inf)
            while len(self.latest) > 2 and now - self.latest[1][0] > WINDOW:
                self.latest.popleft()

    def is_settled(self, step: int) -> bool:
        """True once enough steps are done to forecast the next ones."""
        done = step - self.start
        return done >= 20 or (done >= 2 and time.monotonic() - self.started_at > 5)

    def seconds_per_step(self, step: int) -> float:
        """Returns the seconds per step, with validation and saving."""
        return (time.monotonic() - self.started_at) / (self._work_done(step) - self._work_done(self.start))

    def recent_pace(self, step: int) -> float:
        """Returns the seconds per step of the last minute: other programs come and go."""
        at, done = self.latest[0] if self.latest else (self.started_at, self._work_done(self.start))
        work = self._work_done(step) - done
        return (time.monotonic() - at) / work if work > 0 else self.seconds_per_step(step)

    def work_left(self, step: int) -> float:
        """Returns the work until the fold is finished."""
        return self.work.total - self._work_done(step)

    def seconds_left(self, step: int) -> float:
        """Returns the seconds until the fold is finished."""
        return min(self.recent_pace(step) * self.work_left(step), self.deadline - time.monotonic())

    def seconds_left_of_all(self, step: int) -> float:
        """Returns the seconds until this fold and those after it are finished."""
        later = sum(self.later)
        return self.recent_pace(step) * (self.work_left(step) + later * self.work_left(0)) if later else math.nan

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

    def _is_news(self, step: int, now: float) -> bool:
        """Returns whether nothing was said yet, or the end lies elsewhere than was said."""
        if now - self.reported_at < WINDOW:
            return False
        moved = abs(now + self._seconds_of_all(step) - self.reported_end)
        return moved > max(WINDOW, MOVED * self._seconds_of_all(step))

    def _seconds_of_all(self, step: int) -> float:
        return self.seconds_left_of_all(step) if self.later else self.seconds_left(step)

    def _report(self, step: int, now: float) -> None:
        seconds, is_first = self._seconds_of_all(step), self.reported_at == -math.inf
        self.reported_at, self.reported_end = now, now + seconds
        end = time.strftime("%a %H:%M", time.localtime(time.time() + seconds))
        folds = f"{1 + len(self.later)} folds" if self.later else "this fold"
        rate = f"{self.batch_size / self.recent_pace(step):,.1f} images/s"
        epochs, more = plural(self.work.epochs, "epoch"), "" if is_first else " more"
        say(f"podium: {rate}; {folds} of {epochs} will take about {duration(seconds)}{more}, to about {end}")
