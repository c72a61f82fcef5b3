"""How the folds of a run are trained: step by step, or by a head that is fitted to the features of a frozen backbone.

`trainer_of` chooses between the two once, by the recipe; what calls a trainer does not ask again.
"""

import math
from collections.abc import Sequence
from typing import Protocol

from podium.basics.errors import PodiumError
from podium.options.recipe import Recipe
from podium.saved_runs.run_folder import Run
from podium.training.clean_labels import clean_labels_of_fold
from podium.training.context import Context
from podium.training.loop import train_fold
from podium.training.train_head import train_head


class Trainer(Protocol):
    takes_budget: bool  # of time: it may take fewer epochs, or fewer folds

    def train(self, context: Context, fold: int, later_folds: Sequence[int] = (), deadline: float = math.inf) -> None:
        """Trains a fold, or goes on with it, and writes its files; raises `Crowded` where it should begin again."""

    def refuse_to_repeat(self, context: Context, run: Run, fold: int) -> None:
        """Raises if a finished fold cannot come out the same again."""


class HeadTrainer:
    takes_budget = False  # a head takes seconds

    def train(self, context: Context, fold: int, later_folds: Sequence[int] = (), deadline: float = math.inf) -> None:
        train_head(context, fold)

    def refuse_to_repeat(self, context: Context, run: Run, fold: int) -> None:
        pass


class StepTrainer:
    takes_budget = True

    def train(self, context: Context, fold: int, later_folds: Sequence[int] = (), deadline: float = math.inf) -> None:
        train_fold(context, fold, later_folds, deadline)

    def refuse_to_repeat(self, context: Context, run: Run, fold: int) -> None:
        own = clean_labels_of_fold(context.of_fold(fold), fold)
        steps, planned = run.history(fold)[-1].step, own.batch_sampler(fold).stop
        if steps != planned:
            raise PodiumError(
                f"fold {fold} of {run.name} took {steps:,} of {planned:,} steps, because of its time limit; what a"
                " clock has shortened cannot be repeated to the bit"
            )


def trainer_of(recipe: Recipe) -> Trainer:
    return StepTrainer() if recipe.takes_steps else HeadTrainer()
