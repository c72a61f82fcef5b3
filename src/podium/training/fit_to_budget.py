"""Fits a run into a given time, with some of it left for the submission: `podium train --budget 8h`.

Podium measures the first steps. Then it chooses the largest number of epochs with which all folds fit. If that leaves
too few epochs, it trains fewer folds. If training becomes slower than at first, the rest of the schedule is shortened.
"""

import math
import time
from dataclasses import replace
from typing import Any, NamedTuple

from podium.basics.errors import PodiumError
from podium.basics.terminal import duration, plural, say
from podium.training.context import Context
from podium.training.loop import work_of_fold
from podium.training.timing.budget import SPARE, Budget, choose_epochs
from podium.training.trial_steps import measure_steps

MARGIN = 0.05  # of the time, when epochs are chosen: later steps are seldom faster than the first


def fit_to_budget(context: Context, budget: Budget) -> tuple[Context, dict[str, Any]]:
    """Returns the context with the epochs and folds that fit, and what recipe.json records for the next call."""
    plan, run = context.plan, context.run
    if run.has_begun():  # it resumes with the epochs and folds of its first call
        recorded = run.recipe.get("budget", {})
        budget.test_share = recorded.get("tests", 0.0)
        folds = tuple(fold for fold in recorded.get("folds", plan.folds_to_train) if fold in plan.folds_to_train)
        if not set(folds) - set(run.models()):
            folds = plan.folds_to_train
        return _with(context, run.recipe["epochs"], folds), {}
    epochs, folds, budget.test_share = _fit(context, budget)
    facts = {"seconds": budget.seconds, "folds": list(folds), "tests": round(budget.test_share, 4)}
    return _with(context, epochs, folds), {"budget": facts}


def _with(context: Context, epochs: int, folds: tuple[int, ...]) -> Context:
    recipe = context.recipe.but(epochs=epochs)
    return context.with_plan(replace(context.plan, recipe=recipe, folds_to_train=folds))


class Fit(NamedTuple):
    epochs: int
    folds: tuple[int, ...]
    test_share: float  # of a fold's time: what it takes to predict the test images


def _fit(context: Context, budget: Budget) -> Fit:
    recipe, processes, folds = context.recipe, context.processes, context.plan.folds_to_train
    measured = measure_steps(context, folds[0])
    held_out = len(context.images.held_out_rows(folds[0]))
    # One process predicts the submission, even if several train.
    test_images = work_of_fold(context, folds[0], recipe).prediction * len(context.competition.test) / held_out
    test_seconds = test_images * measured.seconds_per_step * processes.size

    def fold_seconds(epochs: int) -> float:
        work = work_of_fold(context, folds[0], recipe.but(epochs=epochs))
        return measured.start_up + measured.settling + test_seconds + measured.seconds_per_step * work.total

    (missing,) = processes.maximum(MARGIN * budget.seconds - budget.seconds_left())
    fold_count, epochs = choose_epochs(
        fold_seconds, -missing, context.images.folds.sizes(folds, folds[0]), recipe.epochs
    )
    if not epochs:
        spent = time.monotonic() - budget.started + budget.reserved
        needed = duration(math.ceil(1.05 * (fold_seconds(1) + spent) / (1 - SPARE - MARGIN)))
        raise PodiumError(
            f"--budget: one epoch of one fold and a submission take {needed}; allow more, or take a smaller model"
        )
    say(
        f"podium: in {duration(budget.seconds)}: {plural(fold_count, 'fold')} of {plural(epochs, 'epoch')} (without"
        f" --budget: {plural(len(folds), 'fold')} of {recipe.epochs})"
    )
    return Fit(epochs, folds[:fold_count], test_seconds / fold_seconds(epochs))
