"""Pseudo-labels: what finished runs answer for images without labels, and how sure they are (`--pseudo RUN[+RUN...]`).

These are the test images, and those of the card's [[unlabelled]].

Fold k learns from the answers of the fold-k models only, which have not seen the images that it holds out. With the
answers of other models, or of a blend of all folds, the held-out score would rise without the true one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import plural, say
from podium.competition.load import Competition
from podium.models.device import prepare_device
from podium.saved_runs.fold_names import fold_name
from podium.saved_runs.run_folder import Run, keep_of_fold
from podium.tasks.metrics import evaluate
from podium.tasks.task import Targets, Task, joined
from podium.training.context import Context
from podium.training.test_predictions import open_stores, predict_test, predict_unlabelled

Probs = NDArray[Any]
POWERS = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 15.0)  # that the answers may be sharpened by; winners have used up to 15
KEY = "pseudo_power"  # in recipe.json: by fold
LEAST = 1e-12  # probability, whose logarithm is finite


class PseudoLabels(NamedTuple):
    targets: Probs  # [images, classes]: probabilities, or numbers
    confidence: NDArray[np.float64]  # of each image, above 0


def pseudo_labels(context: Context, fold: int) -> PseudoLabels:
    """Returns what the fold's models of the named runs answer for the images without labels that can be read."""
    runs, task = context.plan.earlier_runs["pseudo"], context.competition.task
    columns = task.columns_of(context.competition.classes)
    probs = np.mean([_answers(context, run, fold) for run in runs], 0)
    power = 1.0
    if task.are_labels:
        power = _kept_power(context, runs, fold)
    targets = sharpened(probs, power, task, columns)
    how = f", sharpened by the power {power:g}" if power != 1 else ""
    counts = {"test image": len(targets) - (beyond := len(context.images.unlabelled)), "unlabelled image": beyond}
    which = " and ".join(plural(count, what) for what, count in counts.items() if count)
    say(f"podium: {fold_name(fold)} also learns from {which}{how}")
    return PseudoLabels(targets.astype(np.float32), confidence_of(targets, task, columns))


def sharpened(probs: Probs, power: float, task: Task, columns: Sequence[int] = ()) -> Probs:
    """Returns the probabilities to this power, so that they sum to 1 again; numbers stay as they are."""
    if power == 1 or not task.are_labels:
        return probs
    logs = power * np.log(probs.clip(LEAST))
    parts = task.parts(probs.shape[1], columns)
    if not parts:  # each class is a question of its own
        others = power * np.log((1 - probs).clip(LEAST))
        return np.asarray(1 / (1 + np.exp((others - logs).clip(-500, 500))))
    for part in parts:
        raised = np.exp(logs[:, part] - logs[:, part].max(1, keepdims=True))
        logs[:, part] = raised / raised.sum(1, keepdims=True)
    return np.asarray(logs)


def confidence_of(targets: Probs, task: Task, columns: Sequence[int] = ()) -> NDArray[np.float64]:
    """Returns how sure each answer is, from nearly 0 (all classes are alike) to 1; of numbers, nothing says it."""
    if not task.are_labels:
        return np.ones(len(targets))
    parts = task.parts(targets.shape[1], columns)
    if not parts:
        return np.asarray(np.maximum(np.abs(2 * targets - 1).mean(1), LEAST), np.float64)
    chances = [1 / (part.stop - part.start) for part in parts]
    highest = [targets[:, part].max(1) for part in parts]
    sure = [(best - chance) / (1 - chance) for best, chance in zip(highest, chances, strict=True) if chance < 1]
    return np.asarray(np.maximum(np.mean(sure, 0), LEAST), np.float64)


def _answers(context: Context, run: Run, fold: int) -> Probs:
    """Returns a run's answers for the images of `pseudo`, by its model of this fold."""
    competition, images, machine = context.competition, context.images, context.machine
    store = open_stores(competition, [run], machine)[run].of_fold(fold)
    number = torch.get_num_threads()
    with context.processes.first_then_others():  # the others find what the first has predicted
        probs = []
        if len(competition.test):
            probs.append(predict_test(competition, store, run, fold, machine).probs[images.readable_test])
        if len(images.unlabelled):
            probs.append(predict_unlabelled(competition, images.unlabelled, store, run, fold, machine).probs)
    prepare_device(context.device, machine.deterministic, number)  # prediction has chosen other kernels
    return _of_taught_classes(competition, np.concatenate(probs))


def _of_taught_classes(competition: Competition, probs: Probs) -> Probs:
    """Returns the probabilities without that of the class that no image teaches, if there is one."""
    unknown = competition.unknown
    if unknown is None:
        return probs
    taught = probs.copy()
    taught[:, competition.classes.index(unknown.name)] = 0
    return np.asarray(taught / taught.sum(1, keepdims=True))


def _are_of_taught_classes(competition: Competition, targets: Targets) -> NDArray[np.bool_]:
    unknown = competition.unknown
    if unknown is None:
        return np.ones(len(targets), bool)
    return np.asarray(targets.values != competition.classes.index(unknown.name))


def _kept_power(context: Context, runs: Sequence[Run], fold: int) -> float:
    """Returns the power that recipe.json records for this fold, or else the best one, which it then records."""
    run, path = context.run, context.run.path / "recipe.json"  # a trial may have none
    kept = run.recipe.get(KEY, {}) if path.exists() else {}
    power = float(kept.get(str(fold)) or _best_power(context, runs, fold))
    if context.processes.is_first and path.exists() and str(fold) not in kept:
        keep_of_fold(run, KEY, fold, power)
    return power


def _best_power(context: Context, runs: Sequence[Run], fold: int) -> float:
    """Returns the power under which the runs' answers for images of the other folds have the lowest loss."""
    competition = context.competition
    targets: list[Targets] = []
    probs: list[Probs] = []
    for other in sorted(set.intersection(*(set(run.finished()) for run in runs)) - {fold}):
        held_out = [run.out_of_fold(other, competition.classes).with_labels(competition.label_of) for run in runs]
        if any(not np.array_equal(predictions.id, held_out[0].id) for predictions in held_out):
            raise PodiumError(
                f"--pseudo {'+'.join(run.name for run in runs)}: these runs hold out different images in fold"
                f" {other}; name runs of the same images"
            )
        is_known = _are_of_taught_classes(context.competition, held_out[0].target)
        targets.append(held_out[0].target[is_known])
        mean = np.mean([predictions.probs for predictions in held_out], 0)
        probs.append(_of_taught_classes(context.competition, mean)[is_known])
    if not probs:
        return 1.0
    task, truth, said = competition.task, joined(targets), np.concatenate(probs)
    answers = (sharpened(said, power, task, task.columns_of(competition.classes)) for power in POWERS)
    return POWERS[int(np.argmin([evaluate(task.loss, truth, sharper) for sharper in answers]))]
