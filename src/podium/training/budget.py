"""A schedule that fits into a given time, and leaves some of it for the submission: `podium train --budget 8h`.

The first steps are measured, and the epochs chosen with which all folds fit, or fewer folds where too few epochs
would be left. What then goes slower than it did at first shortens what is left of the schedule, to the end.
"""

import math
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from podium import PodiumError
from podium.recipe import Recipe
from podium.terminal import duration, plural, say
from podium.training.context import Context
from podium.training.loop import Fold
from podium.training.run_folder import TRIAL, Run
from podium.training.schedule import Forecast

FEWEST = 1 / 3  # of a recipe's epochs: rather fewer folds than less, where models only begin to learn
SPARE = 0.01  # of the time, for what nobody foresees
START = 12.0  # seconds that the submission's command takes to start, on two cores
MARGIN = 0.05  # of the time, when epochs are chosen: later steps are seldom faster than the first


class Budget:
    """The time of one command, and what of it is promised to the submission."""

    def __init__(self, seconds: float, began: float | None = None) -> None:
        """From now on, or from a moment of time.monotonic()."""
        self.seconds, self.began = seconds, time.monotonic() if began is None else began
        self.end = self.began + seconds * (1 - SPARE)
        self.promised = START
        self.tests = 0.0  # what predicting the test images takes of a fold's time

    def left(self) -> float:
        return self.end - self.promised - time.monotonic()

    def until(self, folds_left: int) -> float:
        """When the next fold has to be finished, if each gets as much."""
        each = self.left() / folds_left
        self.promised += each * self.tests
        return time.monotonic() + each * (1 - self.tests)


def fit_to_budget(setting: Context, chosen: list[int], budget: Budget) -> tuple[Context, list[int], dict[str, Any]]:
    """What fits: the setting with fewer epochs, the folds, and what recipe.json has to say for the next call, which
    goes on with the same epochs."""
    run = setting.run
    if run.begun():
        before = run.recipe.get("budget", {})
        budget.tests = before.get("tests", 0.0)
        folds = [fold for fold in before.get("folds", chosen) if fold in chosen]
        left = folds if set(folds) - set(run.finished()) else chosen
        return replace(setting, recipe=replace(setting.recipe, epochs=run.recipe["epochs"])), left, {}
    recipe, folds, budget.tests = _fit(setting, chosen, budget)
    facts = {"seconds": budget.seconds, "folds": folds, "tests": round(budget.tests, 4)}
    return replace(setting, recipe=recipe), folds, {"budget": facts}


def _fit(setting: Context, chosen: list[int], budget: Budget) -> tuple[Recipe, list[int], float]:
    """The recipe and the folds that fit, and the share of a fold's time that predicting the test images takes."""
    recipe, group = setting.recipe, setting.group
    began = time.monotonic()
    setting.run.path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=TRIAL, dir=setting.run.path) as folder:
        run = Run(Path(folder))
        if group.first:
            run.begin(asdict(recipe), {"folds": 1})
        trial = Fold(replace(setting, run=run), chosen[0])
        started = time.monotonic() - began
        with trial.hints(), closing(trial.each_step()) as steps:
            for _ in steps:
                if not group.most(not trial.forecast.settled(trial.state.step))[0]:
                    break
            pace, started = group.most(trial.forecast.pace(trial.state.step), started)
    # A submission is predicted by one process.
    test = trial.forecast.last_look * len(setting.competition.test) / len(trial.held_out) * pace * group.size

    def seconds(epochs: int) -> float:
        return started + test + pace * _work(trial, epochs)

    (missing,) = group.most(MARGIN * budget.seconds - budget.left())
    folds, epochs = _choose(seconds, -missing, len(chosen), recipe.epochs)
    if not epochs:
        spent = time.monotonic() - budget.began + budget.promised
        needed = duration(math.ceil(1.05 * (seconds(1) + spent) / (1 - SPARE - MARGIN)))
        raise PodiumError(
            f"--budget: one epoch of one fold and a submission take {needed}; allow more, or take a smaller model"
        )
    say(
        f"podium: the budget's {duration(budget.seconds)} hold {plural(folds, 'fold')} of {plural(epochs, 'epoch')}"
        f" (without it: {plural(len(chosen), 'fold')} of {recipe.epochs})"
    )
    return replace(recipe, epochs=epochs), chosen[:folds], test / seconds(epochs)


def _work(trial: Fold, epochs: int) -> float:
    steps, recipe = trial.steps, replace(trial.recipe, epochs=epochs)
    held_out = len(trial.held_out) / len(trial.training)
    return Forecast(steps, held_out, recipe).left(0)


def _choose(seconds: Callable[[int], float], left: float, folds: int, epochs: int) -> tuple[int, int]:
    """How many folds, of how many epochs, when a fold of n epochs takes `seconds(n)`."""
    for wanted in range(folds, 0, -1):
        most = bisect_right(range(1, epochs + 1), left / wanted, key=seconds)
        if most >= epochs * FEWEST or wanted == 1:
            break
    return wanted, most
