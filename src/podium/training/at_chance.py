"""Says that a fold has learned nothing that its held-out images show, and what its losses advise."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium.basics.terminal import plural, say
from podium.options.recipe import Recipe
from podium.saved_runs.epoch_record import EpochRecord
from podium.saved_runs.fold_names import fold_name
from podium.tasks.chance import is_better_than_chance
from podium.tasks.metrics import evaluate
from podium.tasks.task import Task
from podium.training.context import Context

FELL = 0.9  # a training loss below this share of what guessing has was lowered by the images
UNSTEADY = 1.5  # one above so many times what guessing has was raised by too large steps


def warn_if_at_chance(context: Context, fold: int, probs: NDArray[np.float32], history: Sequence[EpochRecord]) -> None:
    """Compares the fold's held-out predictions with chance."""
    competition, targets = context.competition, context.images.scored_targets(fold, context.images.held_out_rows(fold))
    metric = competition.metric
    if not len(targets) or is_better_than_chance(targets, probs, metric):
        return
    words = ["accuracy", "log loss", "the order of the images"] if competition.task.are_labels else ["squared error"]
    words += [metric] if metric.replace("_", " ") not in words else []
    ways = f"in {', '.join(words[:-1])} and {words[-1]}"
    guessing = loss_of_guessing(competition.task, competition.classes)
    say(
        f"podium: warning: {fold_name(fold)}: {metric} {evaluate(metric, targets, probs):z.4f} of"
        f" {plural(len(targets), 'held-out image')} is not clearly better than chance ({ways});"
        f" {advice(context.recipe, guessing, [record.loss for record in history])}"
    )


def loss_of_guessing(task: Task, classes: Sequence[str]) -> float:
    """Returns the training loss of a model that takes all classes for equally probable, or says the mean number."""
    if not task.are_labels:
        return 1.0
    counts = [part.stop - part.start for part in task.parts(len(classes), task.columns_of(classes))]
    return float(np.mean(np.log(counts or [2])))  # without parts, each label is there or not


def advice(recipe: Recipe, guessing: float, losses: Sequence[float]) -> str:
    """Returns what to try, by the training losses of the epochs."""
    if not recipe.takes_steps:
        return "the frozen features do not tell these classes apart: try another --model or a larger --image-size"
    head = "" if recipe.weights == "none" else "; --linear shows in a minute what the frozen features know"
    first, last = losses[0], losses[-1]
    if any(move.has_own_unit for move in recipe.moves):  # in units of its own
        guessing = first
    said = f"the training loss went from {first:.3g} to {last:.3g} ({guessing:.3g} is guessing)"
    if last > UNSTEADY * guessing:
        return f"{said}: the steps are too large; try a lower --lr under another --name{head}"
    if last < FELL * guessing:
        return f"{said}: it knows the training images alone; look at the labels and the folds (podium audit){head}"
    return f"{said}: it has hardly begun to learn; try more --epochs or a higher --lr under another --name{head}"
