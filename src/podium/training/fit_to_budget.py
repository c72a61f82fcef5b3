"""Fits a run into a given time, with some of it left for the submission: `podium train --budget 8h`.

The first steps are measured. Then as many epochs are chosen as let all folds fit, or fewer folds where too few epochs
would be left. If training gets slower than it was at first, the rest of the schedule is shortened.
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
from podium.models.hardware_errors import explain_hardware_errors
from podium.recipe import Recipe
from podium.terminal import duration, plural, say
from podium.training.budget import SPARE, Budget
from podium.training.context import Context
from podium.training.forecast import Forecast
from podium.training.learner import Learner
from podium.training.loop import make_forecast, start_or_resume, training_batches
from podium.training.run_folder import TRIAL_PREFIX, Run

FEWEST_EPOCHS = 1 / 3  # of the recipe's: with fewer, a model has only begun to learn, so rather fewer folds
MARGIN = 0.05  # of the time, when epochs are chosen: later steps are seldom faster than the first


def fit_to_budget(context: Context, chosen: list[int], budget: Budget) -> tuple[Context, list[int], dict[str, Any]]:
    """Returns the context with fewer epochs, the folds that fit, and what recipe.json records for the next call."""
    run = context.run
    if run.has_begun():  # it resumes with the epochs and folds of its first call
        recorded = run.recipe.get("budget", {})
        budget.test_share = recorded.get("tests", 0.0)
        folds = [fold for fold in recorded.get("folds", chosen) if fold in chosen]
        unfinished = folds if set(folds) - set(run.finished()) else chosen
        return context.with_recipe(replace(context.recipe, epochs=run.recipe["epochs"])), unfinished, {}
    recipe, folds, budget.test_share = _fit(context, chosen, budget)
    facts = {"seconds": budget.seconds, "folds": folds, "tests": round(budget.test_share, 4)}
    return context.with_recipe(recipe), folds, {"budget": facts}


def _fit(context: Context, chosen: list[int], budget: Budget) -> tuple[Recipe, list[int], float]:
    """Returns the recipe and the folds that fit, and the share of a fold's time that the test images take."""
    recipe, processes = context.recipe, context.processes
    learner, forecast, pace, start_up = _measure(context, chosen[0])
    held_out = len(context.held_out_rows(chosen[0]))
    # One process predicts a submission, however many train.
    test_images = forecast.last_validation_work * len(context.competition.test) / held_out
    test_seconds = test_images * pace * processes.size

    def fold_seconds(epochs: int) -> float:
        work = make_forecast(learner, replace(recipe, epochs=epochs)).work_left(0)
        return start_up + test_seconds + pace * work

    (missing,) = processes.maximum(MARGIN * budget.seconds - budget.left())
    fold_count, epochs = choose_epochs(fold_seconds, -missing, len(chosen), recipe.epochs)
    if not epochs:
        spent = time.monotonic() - budget.started + budget.reserved
        needed = duration(math.ceil(1.05 * (fold_seconds(1) + spent) / (1 - SPARE - MARGIN)))
        raise PodiumError(
            f"--budget: one epoch of one fold and a submission take {needed}; allow more, or take a smaller model"
        )
    say(
        f"podium: the budget of {duration(budget.seconds)} holds {plural(fold_count, 'fold')} of"
        f" {plural(epochs, 'epoch')} (without it: {plural(len(chosen), 'fold')} of {recipe.epochs})"
    )
    return replace(recipe, epochs=epochs), chosen[:fold_count], test_seconds / fold_seconds(epochs)


def _measure(context: Context, fold: int) -> tuple[Learner, Forecast, float, float]:
    """Takes a few steps of a trial run; returns also the seconds per step, and those until the first one."""
    recipe, processes = context.recipe, context.processes
    started = time.monotonic()
    context.run.path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=TRIAL_PREFIX, dir=context.run.path) as folder:
        run = Run(Path(folder))
        if processes.is_first:
            run.begin(asdict(recipe), {"folds": 1})
        trial = replace(context, plan=replace(context.plan, run=run))
        learner = start_or_resume(trial, fold, folds_left=1)
        forecast = make_forecast(learner, recipe)
        start_up = time.monotonic() - started
        try_batch = learner.try_batch if processes.size == 1 else None
        with (
            explain_hardware_errors(recipe.batch_size, try_batch),
            closing(training_batches(learner)) as batches,
        ):
            for images, labels in batches:
                forecast.start_step(learner.progress.step)
                learner.step(images, labels)
                if not processes.maximum(not forecast.is_settled(learner.progress.step))[0]:
                    break
            pace, start_up = processes.maximum(forecast.seconds_per_step(learner.progress.step), start_up)
    return learner, forecast, pace, start_up


def choose_epochs(fold_seconds: Callable[[int], float], seconds: float, folds: int, epochs: int) -> tuple[int, int]:
    """Returns how many folds, of how many epochs, fit into the seconds; a fold of n epochs takes `fold_seconds(n)`."""
    for fold_count in range(folds, 0, -1):
        most = bisect_right(range(1, epochs + 1), seconds / fold_count, key=fold_seconds)
        if most >= epochs * FEWEST_EPOCHS or fold_count == 1:
            break
    return fold_count, most
