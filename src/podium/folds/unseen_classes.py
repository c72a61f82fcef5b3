"""Chooses classes that are held out whole, where a competition has an unknown class that no training image has.

All images of such a class are in one fold, whose model has never seen the class: they show how models answer for
unknown images. The other folds are taught the class as any other. Classes that could not be validated otherwise, such
as those with a single image, are chosen first, because they cost nothing. A hash of the seed and the name decides the
order.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium.folds.folds import Ints, Mask
from podium.folds.split import Labels, assign_folds, can_be_validated, cells_of, labels_of
from podium.tasks.task import ONE_LABEL

FEWEST_KNOWN = 2  # classes that are validated and known, else nothing can be told apart


def assign_with_unseen(targets: Sequence[str], k: int, seed: int, groups: Ints, share: float) -> Ints:
    """Returns the fold of every image, as `assign_folds` does, with `share` of the validated images in unseen classes.

    Groups stay whole. Which share is possible depends on the sizes of the classes; at least one is chosen if enough
    others are left.
    """
    labels = labels_of(targets, ONE_LABEL)
    is_unseen = choose_unseen(labels, groups, k, seed, share)
    is_of_unseen = is_unseen[labels.label]
    folds = np.empty(len(targets), np.int64)
    known = np.array(targets, dtype=object)[~is_of_unseen].tolist()
    folds[~is_of_unseen] = assign_folds(known, k, seed, groups[~is_of_unseen])
    counts = np.bincount(labels.label, minlength=len(labels.classes))
    fold_of_class, totals = np.full(len(counts), -1), np.zeros(k, np.int64)
    for number in sorted(np.flatnonzero(is_unseen), key=lambda one: (-counts[one], _draw(seed, labels.classes[one]))):
        fold_of_class[number] = totals.argmin()
        totals[fold_of_class[number]] += counts[number]
    folds[is_of_unseen] = fold_of_class[labels.label[is_of_unseen]]
    return folds


def choose_unseen(labels: Labels, groups: Ints, k: int, seed: int, share: float) -> Mask:
    """Marks the classes that are held out whole.

    A class is added if that brings the share of its images among the validated ones nearer to `share`.
    """
    class_count = len(labels.classes)
    group_of_image = np.unique(groups, return_inverse=True)[1]
    images = np.bincount(labels.label, minlength=class_count)
    could_be = can_be_validated(labels, group_of_image, k, np.zeros(class_count, dtype=bool))
    validated = np.bincount(labels.label[could_be], minlength=class_count)
    candidates = np.flatnonzero(~_share_groups(labels, group_of_image))
    order = sorted(candidates, key=lambda one: (validated[one] > 0, _draw(seed, labels.classes[one])))
    is_unseen, unseen, known, left = np.zeros(class_count, dtype=bool), 0, validated.sum(), (validated > 0).sum()

    def distance(number: int | np.int64 | None) -> float:
        """Returns how far the share is from the wanted one, with a further class."""
        more, fewer = (0, 0) if number is None else (images[number], validated[number])
        return float(abs((unseen + more) / max(1, unseen + more + known - fewer) - share))

    smallest = sorted(order, key=lambda one: (validated[one] > 0, images[one]))[:1]
    for number in [*order, *smallest]:  # the smallest again: where each one is too large, it is taken all the same
        is_forced = not is_unseen.any() and number is smallest[0]
        leaves_enough = left - (validated[number] > 0) >= FEWEST_KNOWN
        if leaves_enough and not is_unseen[number] and (distance(number) < distance(None) or is_forced):
            is_unseen[number] = True
            unseen, known = unseen + images[number], known - validated[number]
            left -= validated[number] > 0
    return is_unseen


def _share_groups(labels: Labels, group_of_image: NDArray[np.int64]) -> Mask:
    """Marks the classes of which a group holds images of another class, too: the group cannot follow both."""
    cells = cells_of(labels.label, group_of_image, len(labels.classes))
    is_mixed = np.bincount(cells.group)[cells.group] > 1
    return np.asarray(np.bincount(cells.label[is_mixed], minlength=len(labels.classes)) > 0)


def _draw(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()
