"""Forecasts how long a fold takes from its first steps, and shortens its schedule to meet a deadline."""

import math
import time
from collections.abc import Sequence

import numpy as np

from podium.recipe import Recipe, image_size_at, relative_area
from podium.terminal import duration, plural, say
from podium.training.loader import BatchSampler

FORWARD_SHARE = 1 / 3  # of the time of a training step


class Forecast:
    """Work is counted in training steps at full image size; validation counts by its images."""

    def __init__(
        self,
        sampler: BatchSampler,
        held_out_ratio: float,  # number of held-out images / number of training images
        recipe: Recipe,
        later: Sequence[float] = (),  # the sizes of the folds after this one, in units of this one's
        deadline: float = math.inf,  # on the clock of time.monotonic()
        checked_ratio: float = 0.0,  # number of predictions of kept_start.py at a validation / training images
    ) -> None:
        self.sampler, self.epochs, self.later, self.deadline = sampler, recipe.epochs, later, deadline
        areas = [relative_area(image_size_at(epoch, recipe), recipe) for epoch in range(recipe.epochs)]
        self.epoch_ends = sampler.per_epoch * np.arange(recipe.epochs + 1)
        self.training_work = sampler.per_epoch * np.append(0.0, np.cumsum(areas))
        forward_work = sampler.per_epoch * FORWARD_SHARE * relative_area(recipe.test_size, recipe)
        self.prediction_work = forward_work * held_out_ratio * recipe.view_count
        self.validation_work = forward_work * (held_out_ratio + checked_ratio)
        self.last_validation_work = forward_work * checked_ratio + self.prediction_work
        self.first_step_at, self.started_at, self.start = math.nan, math.nan, sampler.start
        self.is_reported = False

    def start_step(self, step: int) -> None:
        """Call it before each step. The first step does not count: it allocates memory and chooses kernels."""
        if step == self.sampler.start:
            self.first_step_at = time.monotonic()
        elif math.isnan(self.started_at):
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
        validations = self.validation_work * (self.epochs - 1) + self.last_validation_work
        return float(self.training_work[-1] + validations - self._work_done(step))

    def seconds_left(self, step: int) -> float:
        """Returns the seconds until the fold is finished."""
        return min(self.seconds_per_step(step) * self.work_left(step), self.deadline - time.monotonic())

    def last_step(self, step: int, planned: int) -> int:
        """Returns the step after which training ends: as planned, or earlier to meet the deadline."""
        if self.deadline == math.inf or not self.is_settled(step):
            return planned
        work = self.training_work + self.validation_work * np.arange(len(self.training_work))
        affordable = (self.deadline - time.monotonic()) / self.seconds_per_step(step) - self.last_validation_work
        last = int(np.interp(np.interp(step, self.epoch_ends, work) + affordable, work, self.epoch_ends))
        return max(step, min(planned, last))

    def _work_done(self, step: int) -> float:
        training = np.interp(step, self.epoch_ends, self.training_work)
        return float(training + self.validation_work * (step // self.sampler.per_epoch))

    def _report(self, step: int) -> None:
        pace = self.seconds_per_step(step)
        seconds = pace * (self.work_left(step) + sum(self.later) * self.work_left(0))
        if not self.later:
            seconds = min(seconds, self.deadline - time.monotonic())
        end = time.strftime("%a %H:%M", time.localtime(time.time() + seconds))
        folds = f"{1 + len(self.later)} folds" if self.later else "this fold"
        rate = f"{self.sampler.batch_size / pace:,.1f} images/s"
        epochs = plural(self.epochs, "epoch")
        say(f"podium: {rate}; {folds} of {epochs} will take about {duration(seconds)}, to about {end}")
