"""Shows what a run would do, without training it: every option, where it comes from, and how long it would take.

    podium train --model NAME --dry-run

Reads the competition's files and folds.csv. Writes nothing.
"""

import numpy as np

from podium.basics.terminal import duration, plural, say, show, table
from podium.models.device import device_name, pick_device
from podium.options.recipe import differences, recorded_values
from podium.training.memory_forecast import forecast_memory
from podium.training.plan import Plan
from podium.training.timing.fold_work import estimate_seconds
from podium.training.timing.measure_step import measure_training


def show_plan(plan: Plan) -> None:
    recipe, folds, run = plan.recipe, plan.folds_to_train, plan.run
    rows = [
        [name, value if value != "" else "none", plan.origins[name]]
        for name, value in plan.identity().items()
        if name in plan.origins
    ]
    show(table(["option", "value", "from"], rows, text_columns=3))
    asked = plan.asked_identity()
    changes = differences(recorded_values(run.recipe, asked), asked) if run.has_begun() else []
    if changes:
        say(f"podium: note: {run.path} was started with other options ({'; '.join(changes)}); this needs another name")
    if plan.may_choose:
        say("podium: note: auto will try several models and take the best; this is what it takes unseen")
    if plan.request.budget is not None:
        say("podium: note: --budget would measure the first steps, and train fewer epochs or folds if needed")
    unfinished = list(plan.folds_to_train) if changes else plan.unfinished_folds()
    counts = np.array([plan.folds.validates(fold).sum() for fold in folds])
    training = np.array([plan.folds.trains(fold).sum() for fold in folds])
    joined = _joined(plan, training.mean())
    show(
        f"\n{run.path}: {plural(len(folds), 'fold')}, {plural(len(unfinished), 'fold')} left to train;"
        f" about {training.mean():,.0f} images to train on{f', {joined:,.0f} that join them,' if joined else ''}"
        f" and {counts.mean():,.0f} to validate"
    )
    if unfinished and recipe.takes_steps:
        _show_memory(plan)
    if unfinished:
        choice = plan.request.machine.device
        rate = measure_training(recipe, plan.competition.classes, choice)
        images = int(training.mean() + joined), int(counts.mean())
        of_all = estimate_seconds(recipe, *images, rate, len(unfinished))
        where, left = device_name(pick_device(choice)), plural(len(unfinished), "fold")
        show(f"about {duration(of_all)} for {left} on {where}, from a quick measurement ({rate:,.1f} images/s)")
    say("podium: nothing was trained or written; the same command without --dry-run trains")


def _show_memory(plan: Plan) -> None:
    recipe = plan.recipe
    memory = forecast_memory(recipe, plan.competition.classes, plan.request.machine.checkpointing)
    needed, held, step = (f"{size / 1e9:.2g} GB" for size in (sum(memory), *memory))
    images = f"{plural(recipe.part_size, 'image')} of {recipe.largest_size} px"
    show(f"a GPU needs about {needed}: {held} for weights and optimizer, {step} for {images} at once")


def _joined(plan: Plan, training: float) -> int:
    """Returns how many images join those of an epoch at most: copies among extra images are not known yet."""
    recipe, competition = plan.recipe, plan.competition
    weights: list[float] = []
    if competition.extra and recipe.weight_of_extra:
        weights = competition.extra.rows["weight"].tolist()
    if not recipe.takes_steps:  # a head sees each once, whatever its weight
        return len(weights)
    return round(
        recipe.weight_of_extra * sum(weights)
        + (min(competition.without_labels, training) if recipe.joins_test_images else 0)
    )
