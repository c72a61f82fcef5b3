"""Groups images by individual: average linkage, up to a border of the similarity that held-out individuals choose.

Two clusters are joined as long as their images are on average at least as similar as the border. A cluster that is as
similar to the training images of a known individual has its name.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from podium.basics.errors import PodiumError
from podium_annex.matching.galleries import Galleries, Gallery
from podium_annex.matching.scores import Ints, adjusted_rand
from podium_annex.matching.similarities import Array, Way

MOST = 10_000  # images: half of their squared number of distances is in memory
STEPS = 60  # borders to choose from


class Border(NamedTuple):
    """From which mean similarity on clusters are joined, and the Rand index of borders that others have chosen."""

    similarity: float
    adjusted_rand: float


class Tree(NamedTuple):
    """In which order images are joined."""

    joins: NDArray[np.float64]
    images: int

    def cut(self, similarity: float) -> Ints:
        """Returns the number of the cluster of each image."""
        if self.images < 2:
            return np.zeros(self.images, np.int64)
        found = fcluster(self.joins, 1 - similarity + 1e-9, "distance")
        return np.asarray(np.unique(found, return_inverse=True)[1], np.int64)


def tree_of(matrix: Array) -> Tree:
    """Returns the tree of a matrix of similarities."""
    if len(matrix) > MOST:
        raise PodiumError(f"{len(matrix):,} test images are more than the {MOST:,} that podium match can cluster")
    distances = 1 - (matrix.astype(np.float64) + matrix.T) / 2
    np.fill_diagonal(distances, 0)
    condensed = np.maximum(squareform(distances, checks=False), 0)
    return Tree(linkage(condensed, "average") if len(matrix) > 1 else np.empty((0, 4)), len(matrix))


def choose_border(galleries: Galleries, way: Way) -> Border:
    """Returns the border that suits whole galleries, and how good those are that other individuals have chosen.

    With more images, a border joins more of different individuals. So it is not fitted to parts of a gallery; only what
    says how good it is comes from halves, each scored with the border of the other one.
    """
    count = 1 + max(int(part.identity.max()) for part in galleries.parts)
    half_of = np.random.default_rng(0).permutation(count) % 2
    matrices = [way.matrix(part.features) for part in galleries.parts]
    whole = [_Judge.of(part, matrix) for part, matrix in zip(galleries.parts, matrices, strict=True)]
    heights = np.concatenate([judge.tree.joins[:, 2] for judge in whole])
    borders = 1 - np.unique(np.quantile(heights, np.linspace(0, 1, STEPS)))
    halves = [
        [
            judge
            for part, matrix in zip(galleries.parts, matrices, strict=True)
            if (judge := _Judge.of(part, matrix, half_of[part.identity] == half)).size
        ]
        for half in (0, 1)
    ]
    nested = math.nan
    if all(halves):
        first, second = (_mean_scores(judges, borders) for judges in halves)
        nested = float((first[second.argmax()] + second[first.argmax()]) / 2)
    return Border(float(borders[_mean_scores(whole, borders).argmax()]), nested)


class _Judge(NamedTuple):
    """The tree of some images, and the individuals of those that are queries."""

    tree: Tree
    is_query: NDArray[np.bool_]
    identity: Ints  # of the queries

    @staticmethod
    def of(gallery: Gallery, matrix: Array, is_chosen: NDArray[np.bool_] | None = None) -> "_Judge":
        rows = np.arange(len(matrix)) if is_chosen is None else np.flatnonzero(is_chosen)
        is_query = gallery.is_query[rows]
        identity = np.unique(gallery.identity[rows][is_query], return_inverse=True)[1]
        return _Judge(tree_of(matrix[np.ix_(rows, rows)]), is_query, np.asarray(identity, np.int64))

    @property
    def size(self) -> int:
        return len(self.identity)


def _mean_scores(judges: Sequence[_Judge], borders: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the Rand index of each border, the mean of the judges by their numbers of images."""
    scores = [[adjusted_rand(own.identity, own.tree.cut(border)[own.is_query]) for border in borders] for own in judges]
    return np.asarray(np.average(scores, 0, [own.size for own in judges]))


def names_of_images(features: Array, way: Way, border: float, known: Sequence[str | None]) -> list[str]:
    """Returns the name of each test image's cluster.

    `features` are those of the test images, then those of the training images, whose individuals are `known`, if any.
    """
    count = len(features) - len(known)
    similarities = np.empty((count, count), np.float32)
    for start, rows in way.rows(features):
        part = slice(start, min(start + len(rows), count))
        if start < count:
            similarities[part] = rows[: part.stop - start, :count]
    cluster = tree_of(similarities).cut(border)
    names = [f"cluster_{number + 1}" for number in range(cluster.max() + 1)]
    individuals = sorted({name for name in known if name is not None})
    if individuals:
        place = {name: number for number, name in enumerate(individuals)}
        is_of = np.zeros((len(known), len(individuals)), np.float32)
        for row, name in enumerate(known):
            if name is not None:
                is_of[row, place[name]] = 1
        sums: NDArray[Any] = np.zeros((len(names), len(individuals)))
        for start, rows in way.rows(features):
            if start < count:
                own = cluster[start : start + len(rows)]
                np.add.at(sums, own, rows[: len(own), count:] @ is_of)
        means = sums / np.bincount(cluster)[:, None] / is_of.sum(0)
        best = means.argmax(1)
        for number, individual in enumerate(best):
            if means[number, individual] >= border:
                names[number] = individuals[individual]
    return [names[number] for number in cluster]
