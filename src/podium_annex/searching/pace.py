"""How long the folds of a search take, so that a budget ends with a judgement and not in the middle of one."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from podium.options.recipe import Recipe
from podium.training.plan import Plan
from podium.training.timing.fold_work import estimate_seconds
from podium.training.timing.measure_step import measure_training

SPARE = 0.03  # of the time: what was not foreseen


class Pace:
    """Forecasts a fold: a measured step times its work, corrected by how long the folds so far took."""

    def __init__(self, budget: float | None, started: float) -> None:
        """`started` is on the clock of time.monotonic()."""
        self.end = math.inf if budget is None else started + budget * (1 - SPARE)
        self.rates: dict[tuple[object, ...], float] = {}  # images per second
        self.forecast, self.taken = 0.0, 0.0  # seconds of the folds so far

    @property
    def is_limited(self) -> bool:
        return self.end < math.inf

    def seconds_left(self) -> float:
        return self.end - time.monotonic()

    def seconds(self, plan: Plan) -> float:
        """Returns the seconds that the unfinished folds of the plan will take; 0 if nothing limits the time."""
        if not self.is_limited:
            return 0.0
        return sum(self._estimate(plan, fold) for fold in plan.unfinished_folds()) * self._correction()

    @contextmanager
    def timed(self, plan: Plan) -> Iterator[None]:
        """Learns from the training of the plan's unfinished folds."""
        forecast = sum(self._estimate(plan, fold) for fold in plan.unfinished_folds()) if self.is_limited else 0.0
        started = time.monotonic()
        yield
        if forecast:
            self.forecast, self.taken = self.forecast + forecast, self.taken + time.monotonic() - started

    def _correction(self) -> float:
        return self.taken / self.forecast if self.forecast else 1.0

    def _estimate(self, plan: Plan, fold: int) -> float:
        training, held_out = int(plan.folds.trains(fold).sum()), int(plan.folds.validates(fold).sum())
        return estimate_seconds(plan.recipe, training, held_out, self._rate(plan, plan.recipe))

    def _rate(self, plan: Plan, recipe: Recipe) -> float:
        key = (recipe.model, recipe.image_size, recipe.batch_size, recipe.optimizer, recipe.added_cost)
        if key not in self.rates:
            self.rates[key] = measure_training(recipe, plan.competition.classes, plan.request.machine.device)
        return self.rates[key]
