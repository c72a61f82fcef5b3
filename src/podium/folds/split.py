"""Deals images into folds: stratified, seeded, and the images of one group into one fold."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, hstack

from podium import PodiumError

Ints = NDArray[np.int64]

# Of the exchange of groups between folds: how often each pair of folds, how many groups of each, and the relative
# improvement that is not worth another round.
ROUNDS, CANDIDATES, ENOUGH = 30, 256, 1e-7


def assign_folds(
    targets: Sequence[str], k: int, seed: int, groups: Sequence[str] | Ints | None = None
) -> NDArray[np.int64]:
    """A fold for every image; images of one group share theirs. Each class is spread over the folds to within one
    group, where groups are of one class, and the whole as evenly as that allows. -1, always trained on: a class of
    fewer than K images, unless its groups hold others too, and every group that holds all of a class."""
    label = pd.factorize(np.asarray(targets, dtype=object), sort=True)[0]
    group = np.arange(len(label)) if groups is None else pd.factorize(np.asarray(groups, dtype=object))[0]
    barred = np.zeros(label.max() + 1, dtype=bool)
    most = 0
    while True:
        free = _can_be_validated(label, group, k, barred)
        if free.sum() < most / 2:
            break  # too dear: the last folds stay, and their certificate names the classes
        most = max(most, int(free.sum()))
        folds = np.full(len(label), -1, dtype=np.int64)
        if free.any():
            folds[free] = _deal(label[free], group[free], k, np.random.default_rng([seed, k]))
        # Where groups hold several classes, all of one may have come into one fold, whose model would lack it.
        spread = pd.crosstab(label, folds).reindex(columns=range(-1, k), fill_value=0).to_numpy()
        alone = spread[:, 1:].max(1) == spread.sum(1)
        if not alone.any():
            break
        barred |= alone
    if not most:
        few = "; fewer folds (--k 2) or smaller groups may help" if k > 2 else ""
        raise PodiumError(
            f"no class has {k} images, in two groups or more, that others can do without, so nothing could be"
            f" validated{few}"
        )
    empty = sorted(set(range(k)) - set(folds.tolist()))
    if empty:
        raise PodiumError(f"the groups are too few to fill {k} folds; take fewer: --k {k - len(empty)}")
    return folds


def _can_be_validated(label: Ints, group: Ints, k: int, barred: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The images of all groups but those that hold a class which some fold's training would lack or hardly see; the
    `barred` are known to be such."""
    classes, groups, images = _contents(label, group)
    never = np.zeros(group.max() + 1, dtype=bool)
    mixed = np.bincount(groups)[groups] > 1
    amid_others = np.bincount(classes[mixed], minlength=label.max() + 1) > 0  # not worth the other classes' images
    while True:
        left = ~never[groups]
        few = (np.bincount(classes[left], images[left], label.max() + 1) < k) & ~amid_others
        few |= (np.bincount(classes[left], minlength=label.max() + 1) < 2) | barred
        more = groups[left & few[classes]]
        if not len(more):
            return ~never[group]
        never[more] = True  # which may leave another class with too few


def _deal(label: Ints, group: Ints, k: int, draws: np.random.Generator) -> Ints:
    """The rarest class first, of each its largest groups first: to the fold that has the least of what they hold.
    Single images come last and make even what can be."""
    group = np.unique(group, return_inverse=True)[1]
    classes, groups, images = _contents(label, group)
    ends = np.searchsorted(groups, np.arange(groups[-1] + 2))  # of each group's contents
    of_class, size = np.bincount(label), np.bincount(group)
    rarest = classes[np.lexsort((of_class[classes], groups))][ends[:-1]]  # class of each group
    order = draws.permutation(len(size))
    order = order[np.lexsort((-size[order], rarest[order], of_class[rarest[order]]))]

    counts, total = np.zeros((len(of_class), k)), np.zeros(k)
    chosen = np.full(len(size), -1)
    large, single = order[size[order] > 1], order[size[order] == 1]
    for one in large:
        held, many = classes[ends[one] : ends[one + 1]], images[ends[one] : ends[one + 1]]
        had = (many / of_class[held]) @ counts[held]
        best = int(np.lexsort((total, had))[0])
        chosen[one] = best
        counts[held, best] += many
        total[best] += size[one]
    if len(groups) > len(size):  # groups of several classes: what suited the first may not suit the last
        shares = coo_array((images / of_class[classes], (groups, classes))).tocsr()
        shares = hstack([shares, size[:, None] / size.sum()], format="csr")[large]
        chosen[large] = _exchange(shares, chosen[large], k, draws)
        some = size[groups] > 1
        counts[:] = 0
        np.add.at(counts, (classes[some], chosen[groups[some]]), images[some])
        total[:] = np.bincount(chosen[large], size[large], k)
    for some in np.split(single, np.flatnonzero(np.diff(rarest[single])) + 1):
        if len(some):
            more = _levelling(counts[rarest[some[0]]], total, len(some))
            chosen[some] = np.repeat(np.arange(k), more)
            total += more
    return chosen[group]


def _exchange(shares: csr_array, chosen: Ints, k: int, draws: np.random.Generator) -> Ints:
    """Moves groups from fold to fold, alone or against another, for as long as that makes the folds more alike: it
    lowers the sum of the squares of what each holds. A row of `shares` is what a group has of each class and of all
    images."""
    chosen = chosen.copy()
    squares = shares.multiply(shares).sum(1)
    held = np.stack([shares[chosen == fold].sum(0) for fold in range(k)])
    for _ in range(ROUNDS):
        before = np.square(held).sum()
        for one, other in combinations(range(k), 2):
            ours, theirs = (draws.permutation(np.flatnonzero(chosen == fold))[:CANDIDATES] for fold in (one, other))
            ours_shares, theirs_shares = shares[ours], shares[theirs]
            # Half of the change that an exchange of two brings; the last row and column are those of nothing.
            change = np.zeros((len(ours) + 1, len(theirs) + 1))
            change[:-1] = squares[ours][:, None]
            change[:, :-1] += squares[theirs]
            change[:-1, :-1] -= 2 * (ours_shares @ theirs_shares.T).toarray()
            while True:
                apart = held[other] - held[one]
                pull, push = np.append(ours_shares @ apart, 0), np.append(theirs_shares @ apart, 0)
                now = change + pull[:, None] - push
                i, j = np.unravel_index(now.argmin(), now.shape)
                if now[i, j] > -1e-12:
                    break
                moved = np.zeros(len(apart))
                if i < len(ours):
                    chosen[ours[i]], change[i] = other, np.inf
                    moved += ours_shares[[i]].toarray()[0]
                if j < len(theirs):
                    chosen[theirs[j]], change[:, j] = one, np.inf
                    moved -= theirs_shares[[j]].toarray()[0]
                held[one] -= moved
                held[other] += moved
        if np.square(held).sum() > before * (1 - ENOUGH):
            break
    return chosen


def _contents(label: Ints, group: Ints) -> tuple[Ints, Ints, Ints]:
    """What the groups hold, group after group: class, group, how many images."""
    classes = label.max() + 1
    both, images = np.unique(group * classes + label, return_counts=True)
    return both % classes, both // classes, images


def _levelling(had: NDArray[np.float64], total: NDArray[np.float64], many: int) -> Ints:
    """How many of `many` images each fold gets so that those that have the least become equal."""
    order = np.lexsort((total, had))
    sums = np.cumsum(had[order])
    low = 1
    while low < len(had) and many >= had[order[low]] * low - sums[low - 1]:
        low += 1
    each, rest = divmod(int(sums[low - 1]) + many, low)
    lowest = order[:low]
    more = np.zeros(len(had), dtype=np.int64)
    more[lowest] = each - had[lowest]
    more[lowest[np.argsort(total[lowest], kind="stable")][:rest]] += 1  # of the remainder, to the smallest folds
    return more
