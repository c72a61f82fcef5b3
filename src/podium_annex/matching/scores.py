"""Scores similarities of images whose individuals are known: average precision, accuracy of pairs, clusters."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.blending.expected_score import percentile_interval
from podium.blending.gain import Gain

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RESAMPLES = 2_000


class Queries(NamedTuple):
    """The average precision of each image that another one shows the individual of."""

    precision: Floats
    identity: Ints  # the number of its individual

    def of(self, mask: NDArray[np.bool_]) -> "Queries":
        return Queries(self.precision[mask], self.identity[mask])

    def by_identity(self) -> Floats:
        """Returns the mean of each individual: so all count the same, however many images they have."""
        numbers = np.unique(self.identity, return_inverse=True)[1]
        return np.asarray(np.bincount(numbers, self.precision) / np.bincount(numbers))

    def mean(self) -> float:
        return float(self.by_identity().mean()) if len(self.precision) else float("nan")


def average_precisions(rows: NDArray[Any], start: int, identity: Ints) -> Floats:
    """Returns the average precision of the images from `start` on, against all others; nan for one without another.

    `rows` are their similarities to all images. Of equal similarities, wrong images come first.
    """
    own = np.arange(len(rows))
    is_right = identity[start : start + len(rows), None] == identity
    is_right[own, start + own] = False
    values = rows.astype(np.float64)
    values[own, start + own] = -np.inf  # the last place, where it changes nothing
    order = np.lexsort((is_right, -values), axis=1)
    right = np.take_along_axis(is_right, order, 1)
    precision = np.cumsum(right, 1) / np.arange(1, right.shape[1] + 1)
    counts = right.sum(1)
    total = (precision * right).sum(1)
    return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)


def gain_of_queries(before: Queries, after: Queries) -> Gain:
    """Returns what the mean over individuals gains, with an interval over them; both are of the same images."""
    differences = after.by_identity() - before.by_identity()
    scores = before.mean(), after.mean()
    if len(differences) < 2:
        return Gain(*scores, scores[1] - scores[0])
    drawn = np.random.default_rng(0).integers(len(differences), size=(RESAMPLES, len(differences)))
    return Gain(*scores, scores[1] - scores[0], percentile_interval(differences[drawn].mean(1)))


class PairScores(NamedTuple):
    """The similarities of pairs of one individual, and of pairs of two, in ascending order."""

    same: NDArray[Any]
    other: NDArray[Any]

    def balanced_accuracy(self, threshold: float) -> float:
        """Returns the mean share of pairs that are right if those from the threshold on are of one individual."""
        missed, rejected = (np.searchsorted(part, threshold) / len(part) for part in self)
        return float((1 - missed + rejected) / 2)

    def best_threshold(self) -> float:
        """Returns the threshold with the highest balanced accuracy, between two of the similarities."""
        accuracy = (1 - np.arange(len(self.same)) / len(self.same) + self._below(self.same)) / 2
        best = self.same[accuracy.argmax()]
        lower = np.concatenate([part[: np.searchsorted(part, best)][-1:] for part in self])
        return float((best + lower.max()) / 2) if len(lower) else float(best)

    def _below(self, values: NDArray[Any]) -> Floats:
        return np.asarray(np.searchsorted(self.other, values) / len(self.other))


def adjusted_rand(identity: Ints, cluster: Ints) -> float:
    """Returns the adjusted Rand index: 1 if the clusters are the individuals, about 0 by chance."""
    table = np.zeros((identity.max() + 1, cluster.max() + 1), np.int64)
    np.add.at(table, (identity, cluster), 1)

    def pairs(counts: NDArray[Any]) -> float:
        return float((counts * (counts - 1) / 2).sum())

    same, own, theirs = pairs(table), pairs(table.sum(1)), pairs(table.sum(0))
    expected = own * theirs / max(pairs(np.array([len(identity)])), 1)
    most = (own + theirs) / 2
    return 1.0 if most == expected else (same - expected) / (most - expected)
