"""Pools held-out and test images into answers, where a row of the submission is for several images.

pool.py has the ways to do it, and choose_pooling.py chooses one.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from podium.blending.blend import Probs
from podium.blending.held_out import HeldOut
from podium.competition.decide.answer_groups import DECISIVE, OTHER, Answers
from podium.competition.load import Competition
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import evaluate
from podium.tasks.pool import MEAN, Grouping, Ints, Pool
from podium.tasks.task import ONE_LABEL, SEVERAL_LABELS, Targets


def _grouping(competition: Competition, answers: Ints, count: int) -> Grouping:
    """Returns which images the answers are for; `answers` has the number of each image's, of so many."""
    # where the submission asks for the probability of 0
    has_decisive_first = competition.classes == (DECISIVE, OTHER)
    return Grouping(answers, count, competition.task.sums_to_one, has_decisive_first)


def pool_test(competition: Competition, probs: Probs, pool: Pool) -> Probs:
    """Returns the probabilities of the submission's rows; `probs` are those of the test images."""
    answers = competition.answers
    if answers is None:
        return probs
    return pool.apply(probs, _grouping(competition, _answer_numbers(answers), len(answers.ids)))


def _answer_numbers(answers: Answers) -> Ints:
    """Returns the row of the submission that each test image belongs to."""
    place = {name: number for number, name in enumerate(answers.ids)}
    return np.array([place[name] for name in answers.test], np.int64)


def pool_held_out(held_out: HeldOut, competition: Competition, pool: Pool = MEAN) -> HeldOut:
    """Returns the held-out answers: of each, the images that were held out. Without such groups, nothing changes.

    An answer is in the part of its first image; images of an answer share a fold and a group.
    """
    held_out = replace(held_out, targets=competition.as_submitted(held_out.targets))
    if competition.answers is None or not len(held_out):
        return held_out
    names = [competition.answers.train[image_id] for image_id in held_out.ids]
    ids, first, numbers = np.unique(names, return_index=True, return_inverse=True)
    grouping = _grouping(competition, numbers, len(ids))
    return replace(
        held_out,
        probs=np.array([pool.apply(probs, grouping) for probs in held_out.probs]),
        targets=_pool_targets(competition, held_out.targets, first, numbers),
        parts=held_out.parts[first],
        groups=np.unique(held_out.groups[first], return_inverse=True)[1],
        ids=ids.tolist(),
        features=None if held_out.features is None else held_out.features.pooled(numbers, len(ids)),
    )


def fold_scores(run: Run, competition: Competition, labels: Mapping[str, str]) -> list[float]:
    """Returns the score of each finished fold; where a row of the submission is for several images, a row counts."""
    metric, classes = competition.metric, competition.classes
    scores = []
    for fold in run.finished():
        known = run.out_of_fold(fold, classes).with_labels(labels)
        if known.classes != classes or not len(known.id):
            scores.append(run.score(fold, metric, labels, classes))
            continue
        zeros = np.zeros(len(known.id), np.int64)
        images = HeldOut(known.probs[None].astype(np.float64), known.target, zeros, zeros, ids=known.id.tolist())
        answers = pool_held_out(images, competition)
        scores.append(evaluate(metric, answers.targets, answers.probs[0]))
    return scores


def _pool_targets(competition: Competition, targets: Targets, first: Ints, numbers: Ints) -> Targets:
    """Returns the targets of the answers; `first` is the first image of each, `numbers` are the answers of the images.

    Images of an answer have the same labels (answer_groups.py), except for 0 and 1: one image with 1 is enough.
    """
    pooled = targets.values[first].copy()
    if targets.task is SEVERAL_LABELS:
        np.maximum.at(pooled, numbers, targets.values)
    elif targets.task is ONE_LABEL and DECISIVE in competition.classes:
        number = competition.classes.index(DECISIVE)
        pooled[numbers[targets.values == number]] = number
    return replace(targets, values=pooled)


def answer_targets(competition: Competition) -> Targets:
    """Returns the targets of the training images, or of the answers where a row of the submission is for several."""
    targets = competition.targets
    if competition.answers is None:
        return targets
    names = [competition.answers.train[image_id] for image_id in competition.train["id"]]
    _, first, numbers = np.unique(names, return_index=True, return_inverse=True)
    return _pool_targets(competition, targets, first, numbers)


def rows_of(competition: Competition) -> str:
    """Returns what the rows of a submission are for."""
    return f"answers ({competition.answers.column})" if competition.answers else "images"
