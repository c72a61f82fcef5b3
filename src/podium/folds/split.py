"""Deals images into folds: stratified by class, seeded, and with all images of a group in one fold.

A group is a set of images that must share a fold. An image that belongs to none is a group of one. An image with
several labels counts in each of its classes, like a group that holds images of several classes. The range of numbers
counts as the class.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.folds.folds import Ints
from podium.tasks.task import ONE_LABEL, SEPARATOR, SEVERAL_LABELS, Task

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]

NO_LABEL = "(none)"  # the class of images without a label
MOST_RANGES, IN_A_RANGE = 10, 20  # of numbers: the ranges of a column, and the images of a range

# The exchange of groups between folds: the most rounds over all pairs of folds, the most groups of a fold in a round,
# and the relative improvement below which the exchange ends.
ROUNDS, CANDIDATES, MIN_IMPROVEMENT = 30, 256, 1e-7


class Labels(NamedTuple):
    """The labels of all images; an image without a label has the class NO_LABEL."""

    image: Ints  # of each label: which image has it
    label: Ints  # its number in `classes`
    classes: tuple[str, ...]

    def of_images(self, is_chosen: NDArray[np.bool_]) -> "Labels":
        """Returns the labels of these images, whose numbers close up."""
        is_kept = is_chosen[self.image]
        return Labels((np.cumsum(is_chosen) - 1)[self.image[is_kept]], self.label[is_kept], self.classes)


def strata_of(targets: Sequence[str], task: Task) -> tuple[Sequence[str], Task]:
    """Returns labels for numbers: the range that each one lies in. Each range holds about as many images."""
    if task.are_labels:
        return targets, task
    numbers = task.encode(targets, targets[0].split(SEPARATOR)).values
    most = MOST_RANGES if numbers.shape[1] == 1 else 1 + MOST_RANGES // 2
    columns = [_ranges_of(column, number, most) for number, column in enumerate(numbers.T)]
    if len(columns) == 1:
        return columns[0], ONE_LABEL
    return [SEPARATOR.join(filter(None, cells)) for cells in zip(*columns, strict=True)], SEVERAL_LABELS


def _ranges_of(column: Floats, number: int, most: int) -> list[str]:
    """Returns the name of the range of each number; "" if it is unknown."""
    is_known = ~np.isnan(column)
    known = column[is_known]
    names = np.full(len(column), "", dtype=object)
    edges = np.unique(np.quantile(known, np.linspace(0, 1, max(1, min(most, len(known) // IN_A_RANGE)) + 1)[1:-1]))
    while len(edges):  # equal numbers share a range, so others may be small
        counts = np.bincount(np.searchsorted(edges, known, side="right"), minlength=len(edges) + 1)
        if counts.min() >= IN_A_RANGE // 2:
            break
        edges = np.delete(edges, min(int(counts.argmin()), len(edges) - 1))
    starts = [f"number {number + 1} from {edge:g}" for edge in (known.min(), *edges)]
    names[is_known] = np.array(starts, dtype=object)[np.searchsorted(edges, known, side="right")]
    return names.tolist()


def labels_of(targets: Sequence[str], task: Task = ONE_LABEL) -> Labels:
    targets, task = strata_of(targets, task)
    if task is ONE_LABEL:
        label, classes = pd.factorize(np.asarray(targets, dtype=object), sort=True)
        return Labels(np.arange(len(label)), label, tuple(map(str, classes)))
    lists = [task.labels_of(target) or (NO_LABEL,) for target in targets]
    image = np.repeat(np.arange(len(lists)), [len(labels) for labels in lists])
    label, classes = pd.factorize(np.array([name for labels in lists for name in labels], dtype=object), sort=True)
    return Labels(image, label, tuple(map(str, classes)))


def assign_folds(
    targets: Sequence[str], k: int, seed: int, groups: Sequence[str] | Ints | None = None, task: Task = ONE_LABEL
) -> NDArray[np.int64]:
    """Returns the fold of every image; the images of a group share a fold.

    If every group holds one class only, the folds differ by at most one group in the images of each class. The sizes of
    the folds are as even as that allows. Fold -1 (always trained on, never validated) gets the groups of a class with
    fewer than K images, unless these groups hold other classes too, and every group that holds all images of a class.
    """
    labels, count = labels_of(targets, task), len(targets)
    group_of_image = np.arange(count) if groups is None else pd.factorize(np.asarray(groups, dtype=object))[0]
    is_barred = np.zeros(len(labels.classes), dtype=bool)  # classes that a fold's model would not see in training
    most_validated = 0
    while True:
        is_free = can_be_validated(labels, group_of_image, k, is_barred)
        if is_free.sum() < most_validated / 2:
            break  # too few images would be validated: keep the last folds; their certificate names the classes
        most_validated = max(most_validated, int(is_free.sum()))
        folds = np.full(count, -1, dtype=np.int64)
        if is_free.any():
            rng = np.random.default_rng([seed, k])
            folds[is_free] = deal(labels.of_images(is_free), group_of_image[is_free], k, rng)
        # If groups hold several classes, all images of a class may be in one fold. Its model would not know the class.
        counts = pd.crosstab(labels.label, folds[labels.image]).reindex(columns=range(-1, k), fill_value=0).to_numpy()
        is_in_one_fold = counts[:, 1:].max(1) == counts.sum(1)
        if not is_in_one_fold.any():
            break
        is_barred |= is_in_one_fold
    if not most_validated:
        hint = "try fewer folds (--k 2) or smaller groups" if k > 2 else "add images, or make the groups smaller"
        raise PodiumError(
            f"nothing could be validated: no class has {k} images in two or more groups that can be held out; {hint}"
        )
    empty = sorted(set(range(k)) - set(folds.tolist()))
    if empty:
        raise PodiumError(f"there are too few groups to fill {k} folds; use fewer folds: --k {k - len(empty)}")
    return folds


def validation_fold(
    is_validation: NDArray[np.bool_], labels: Labels, group_of_image: Ints, may_be_unseen: bool = False
) -> Ints:
    """Returns fold 0 for the images for validation, and -1 for all others.

    Those that share a group with a training image are trained on, and so are classes that would not be otherwise,
    unless they may be unseen.
    """
    is_validated = is_validation.copy()
    while True:
        held_labels = labels.label[is_validated[labels.image]]
        trained_labels = labels.label[~is_validated[labels.image]]
        only_validated = np.isin(labels.label, np.setdiff1d(held_labels, trained_labels))
        stays = ~is_validated
        if not may_be_unseen:
            stays[labels.image[only_validated]] = True
        stays = np.isin(group_of_image, group_of_image[stays])
        if (stays == ~is_validated).all():
            return np.where(is_validated, 0, -1)
        is_validated = ~stays


class Cells(NamedTuple):
    """The cells of a table, groups by classes, that hold images; ordered by group, then by class."""

    group: Ints
    label: Ints
    images: Ints  # how many


def cells_of(label: Ints, group: Ints, class_count: int) -> Cells:
    cell, images = np.unique(group * class_count + label, return_counts=True)
    return Cells(cell // class_count, cell % class_count, images)


def can_be_validated(labels: Labels, group_of_image: Ints, k: int, is_barred: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns a mask of the images in groups that hold no class which must stay in training.

    That is a class with too few images for K folds, a class with all images in one group, and a class that is barred. A
    small class that shares groups with other classes need not stay, because their images would have to stay too.
    """
    class_count = len(labels.classes)
    cells = cells_of(labels.label, group_of_image[labels.image], class_count)
    is_kept = np.zeros(group_of_image.max() + 1, dtype=bool)  # groups that stay in training
    is_mixed = np.bincount(cells.group)[cells.group] > 1
    shares_groups = np.bincount(cells.label[is_mixed], minlength=class_count) > 0
    while True:
        is_left = ~is_kept[cells.group]
        images = np.bincount(cells.label[is_left], cells.images[is_left], class_count)
        groups = np.bincount(cells.label[is_left], minlength=class_count)
        must_stay = ((images < k) & ~shares_groups) | (groups < 2) | is_barred
        newly_kept = cells.group[is_left & must_stay[cells.label]]
        if not len(newly_kept):
            return ~is_kept[group_of_image]
        is_kept[newly_kept] = True  # this may leave another class with too few images


# --- dealing -----------------------------------------------------------------------------------------


def deal(labels: Labels, group: Ints, k: int, rng: np.random.Generator) -> Ints:
    """Returns the fold of every image.

    The groups of the rarest class come first, and among these the largest. Images of one label without a group come
    last, because they can make the folds even again.
    """
    group = np.unique(group, return_inverse=True)[1]
    cells = cells_of(labels.label, group[labels.image], len(labels.classes))
    dealer = _Dealer(cells, np.bincount(labels.label, minlength=len(labels.classes)), np.bincount(group), k)
    order = dealer.order(rng)
    is_single = (dealer.sizes == 1) & (np.diff(dealer.starts) == 1)
    large, single = order[~is_single[order]], order[is_single[order]]
    dealer.deal_large_groups(large)
    if dealer.has_mixed_groups:  # a fold that was right for an early group may be wrong after the last one
        dealer.exchange_groups(large, rng)
    dealer.deal_single_images(single)
    return dealer.fold[group]


class _Dealer:
    """Deals groups to folds, and keeps count of the images that each fold has got."""

    def __init__(self, cells: Cells, class_sizes: Ints, sizes: Ints, k: int) -> None:
        self.cells, self.class_sizes, self.sizes, self.k = cells, class_sizes, sizes, k
        self.starts = np.searchsorted(cells.group, np.arange(len(sizes) + 1))  # of each group's cells
        by_size = np.lexsort((class_sizes[cells.label], cells.group))
        self.rarest = cells.label[by_size][self.starts[:-1]]  # the rarest class of each group
        self.has_mixed_groups = len(cells.group) > len(sizes)
        self.fold = np.full(len(sizes), -1)
        self.counts, self.totals = np.zeros((len(class_sizes), k)), np.zeros(k)  # images of each class, and of all

    def order(self, rng: np.random.Generator) -> Ints:
        """Returns the groups in the order in which they are dealt; groups that tie are shuffled."""
        order = rng.permutation(len(self.sizes))
        rarest = self.rarest[order]
        return order[np.lexsort((-self.sizes[order], rarest, self.class_sizes[rarest]))]

    def deal_large_groups(self, groups: Ints) -> None:
        """Deals each group to the fold that has the smallest share of the classes in it."""
        for group in groups:
            cells = slice(self.starts[group], self.starts[group + 1])
            labels, images = self.cells.label[cells], self.cells.images[cells]
            overlap = (images / self.class_sizes[labels]) @ self.counts[labels]
            fold = int(np.lexsort((self.totals, overlap))[0])
            self.fold[group] = fold
            self.counts[labels, fold] += images
            self.totals[fold] += self.sizes[group]

    def exchange_groups(self, groups: Ints, rng: np.random.Generator) -> None:
        from scipy.sparse import coo_array, hstack

        cells = self.cells
        shares = coo_array((cells.images / self.class_sizes[cells.label], (cells.group, cells.label))).tocsr()
        shares = hstack([shares, self.sizes[:, None] / self.sizes.sum()], format="csr")[groups]
        self.fold[groups] = _Exchange(shares, self.fold[groups], self.k).run(rng)
        is_large = np.zeros(len(self.sizes), dtype=bool)
        is_large[groups] = True
        is_large = is_large[cells.group]
        self.counts[:] = 0
        np.add.at(self.counts, (cells.label[is_large], self.fold[cells.group[is_large]]), cells.images[is_large])
        self.totals[:] = np.bincount(self.fold[groups], self.sizes[groups], self.k)

    def deal_single_images(self, images: Ints) -> None:
        """Deals the images class by class, first to the folds that have the fewest of the class."""
        for same_class in np.split(images, np.flatnonzero(np.diff(self.rarest[images])) + 1):
            if len(same_class):
                additions = _level(self.counts[self.rarest[same_class[0]]], self.totals, len(same_class))
                self.fold[same_class] = np.repeat(np.arange(self.k), additions)
                self.totals += additions


def _level(counts: Floats, totals: Floats, new: int) -> Ints:
    """Returns how many of `new` images each fold gets, so that the folds with the lowest counts become equal."""
    order = np.lexsort((totals, counts))
    sums = np.cumsum(counts[order])
    lowest_count = 1  # folds that get any
    while lowest_count < len(counts) and new >= counts[order[lowest_count]] * lowest_count - sums[lowest_count - 1]:
        lowest_count += 1
    level, remainder = divmod(int(sums[lowest_count - 1]) + new, lowest_count)
    lowest = order[:lowest_count]
    additions = np.zeros(len(counts), dtype=np.int64)
    additions[lowest] = level - counts[lowest]
    additions[lowest[np.argsort(totals[lowest], kind="stable")][:remainder]] += 1  # to the smallest of these folds
    return additions


# --- exchanging groups between folds -----------------------------------------------------------------


class _Exchange:
    """Moves groups between folds, or swaps two of them, while that makes the folds more similar.

    A row of `shares` holds a group's share of each class and of all images. The aim is the lowest sum of the squares of
    the shares that the folds hold.
    """

    def __init__(self, shares: "csr_array", folds: Ints, k: int) -> None:
        self.shares, self.folds, self.k = shares, folds.copy(), k
        self.squares = shares.multiply(shares).sum(1)
        self.held = np.stack([shares[folds == fold].sum(0) for fold in range(k)])

    def run(self, rng: np.random.Generator) -> Ints:
        """Returns the folds of the groups after the last move."""
        for _ in range(ROUNDS):
            before = np.square(self.held).sum()
            for pair in combinations(range(self.k), 2):
                candidates = [rng.permutation(np.flatnonzero(self.folds == fold))[:CANDIDATES] for fold in pair]
                self._improve(pair, *candidates)
            if np.square(self.held).sum() > before * (1 - MIN_IMPROVEMENT):
                break
        return self.folds

    def _improve(self, pair: tuple[int, int], groups_a: Ints, groups_b: Ints) -> None:
        """Moves these groups of two folds, the best move first, until no move makes the two more similar."""
        (fold_a, fold_b), held = pair, self.held
        shares_a, shares_b = self.shares[groups_a], self.shares[groups_b]
        # Half of the change that an exchange of two groups brings. The last row and column stand for no group.
        own_change = np.zeros((len(groups_a) + 1, len(groups_b) + 1))
        own_change[:-1] = self.squares[groups_a][:, None]
        own_change[:, :-1] += self.squares[groups_b]
        own_change[:-1, :-1] -= 2 * (shares_a @ shares_b.T).toarray()
        while True:
            difference = held[fold_b] - held[fold_a]
            change = own_change + np.append(shares_a @ difference, 0)[:, None] - np.append(shares_b @ difference, 0)
            i, j = np.unravel_index(change.argmin(), change.shape)
            if change[i, j] > -1e-12:
                break
            moved = np.zeros(len(difference))
            if i < len(groups_a):
                self.folds[groups_a[i]], own_change[i] = fold_b, np.inf
                moved += shares_a[[i]].toarray()[0]
            if j < len(groups_b):
                self.folds[groups_b[j]], own_change[:, j] = fold_a, np.inf
                moved -= shares_b[[j]].toarray()[0]
            held[fold_a] -= moved
            held[fold_b] += moved
