"""Groups images by individual: average linkage, up to a border of the similarity that held-out individuals choose.

Two clusters are joined as long as their images are on average at least as similar as the border. A cluster that is as
similar to the training images of a known individual has its name.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from podium.basics.errors import PodiumError
from podium_annex.matching.galleries import Galleries
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
    count: int

    def cut(self, similarity: float) -> Ints:
        """Returns the number of the cluster of each image."""
        if self.count < 2:
            return np.zeros(self.count, np.int64)
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


def choose_border(galleries: Galleries, way: Way, part_of: dict[int, int]) -> Border:
    """Returns the border that suits the individuals of all parts, and how good those are that suit all but one."""
    parts = sorted(set(part_of.values()))
    trees: dict[int, list[tuple[Tree, Ints]]] = {part: [] for part in parts}
    for gallery in galleries.parts:
        matrix = way.matrix(gallery.features)
        own = np.array([part_of.get(number, -1) for number in gallery.identity.tolist()])
        for part in parts:
            chosen = np.flatnonzero((own == part) & gallery.is_query)
            if len(chosen) > 1:
                trees[part].append((tree_of(matrix[np.ix_(chosen, chosen)]), gallery.identity[chosen]))
    everything = [one for of_part in trees.values() for one in of_part]
    heights = np.concatenate([tree.joins[:, 2] for tree, _ in everything])
    borders = 1 - np.unique(np.quantile(heights, np.linspace(0, 1, STEPS)))
    scores = {part: np.array([[_score(tree, names, border) for border in borders] for tree, names in of_part])
              for part, of_part in trees.items() if of_part}  # fmt: skip
    nested = []
    for part, own_scores in scores.items():
        others = [other for name, other in scores.items() if name != part]
        if others:
            nested.append(own_scores[:, np.concatenate(others).mean(0).argmax()].mean())
    best = np.concatenate(list(scores.values())).mean(0).argmax()
    return Border(float(borders[best]), float(np.mean(nested)) if nested else float("nan"))


def _score(tree: Tree, identity: Ints, border: float) -> float:
    return adjusted_rand(np.unique(identity, return_inverse=True)[1], tree.cut(border))


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
