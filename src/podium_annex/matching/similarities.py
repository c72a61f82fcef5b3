"""Makes similarities of features, row by row of their matrix: cosines, after expansion, after re-ranking.

Both changes look at the neighbours of an image among all images that are compared. Expansion replaces a feature by the
weighted mean of its own and those of its nearest neighbours (Radenović et al., 2019, "alpha query expansion").
Re-ranking (Zhong et al., 2017, "k-reciprocal encoding") asks how much the neighbourhoods of two images overlap; what
counts as a neighbourhood is that each image is among the other's nearest ones. All of it needs memory for the features,
a few dozen numbers an image, and one block of rows.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Array = NDArray[np.float32]
Ints = NDArray[np.int64]

BLOCK = 256  # rows at a time
POWER = 3.0  # of the cosine that weighs a neighbour in the mean
OVERLAP = 2 / 3  # of a neighbour's half neighbourhood, from which on it joins (Zhong et al.)
OWN_SHARE = 0.3  # of the plain distance in the re-ranked one (Zhong et al.)
LEAST = -1.0  # similarity of any kind


class Way(NamedTuple):
    """How features become similarities; 0 leaves a step out."""

    expanded: int = 0  # nearest neighbours that join an image's feature
    reranked: int = 0  # nearest neighbours that are compared

    def describe(self) -> str:
        words = [f"expansion by {self.expanded}"] if self.expanded else []
        words += [f"re-ranking by {self.reranked}"] if self.reranked else []
        return " and ".join(words) or "plain cosines"

    def rows(self, features: Array) -> Iterator[tuple[int, Array]]:
        """Yields blocks of the matrix of similarities, each with the number of its first row.

        `features` have length 1, a row an image. Similarities are at most 1, the higher the more alike.
        """
        if self.expanded:
            features = expanded(features, self.expanded)
        return _reranked_rows(features, self.reranked) if self.reranked else _cosine_rows(features)

    def matrix(self, features: Array) -> Array:
        """Returns the whole matrix, which must fit into memory."""
        return np.concatenate([rows for _, rows in self.rows(features)])


PLAIN = Way()
# To choose from. An image with more neighbours than its individual has images takes in others: so few.
WAYS = (PLAIN, Way(1), Way(2), Way(4), Way(0, 6), Way(0, 12), Way(0, 20), Way(1, 6), Way(2, 12))


def unit(features: NDArray[Any]) -> Array:
    """Returns the features with length 1; those of nothing stay 0, which is like no image."""
    lengths = np.linalg.norm(features, axis=-1, keepdims=True)
    return np.asarray(features / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)


def _cosine_rows(features: Array) -> Iterator[tuple[int, Array]]:
    for start in range(0, len(features), BLOCK):
        yield start, np.minimum(features[start : start + BLOCK] @ features.T, 1)


def nearest(features: Array, count: int) -> tuple[Ints, Array]:
    """Returns the most similar images of each, itself first, and their cosines."""
    count = min(count + 1, len(features))
    places, cosines = [], []
    for start, rows in _cosine_rows(features):
        own = np.arange(len(rows))
        rows[own, start + own] = 2  # first, also among equal images
        found = np.argpartition(-rows, count - 1, axis=1)[:, :count]
        values = np.take_along_axis(rows, found, 1)
        order = np.lexsort((found, -values), axis=1)
        places.append(np.take_along_axis(found, order, 1))
        cosines.append(np.minimum(np.take_along_axis(values, order, 1), 1))
    return np.concatenate(places).astype(np.int64), np.concatenate(cosines)


def expanded(features: Array, count: int, power: float = POWER) -> Array:
    """Returns the means of each feature and its nearest ones, weighted by a power of their cosines."""
    places, cosines = nearest(features, count)
    weights = np.maximum(cosines, 0) ** power
    total = np.zeros_like(features)
    for place, weight in zip(places.T, weights.T, strict=True):
        total += weight[:, None] * features[place]
    return unit(total)


def _reranked_rows(features: Array, count: int) -> Iterator[tuple[int, Array]]:
    shares = _neighbourhoods(features, count)
    columns = shares.tocsc()
    for start, cosines in _cosine_rows(features):
        overlaps = np.stack([_overlap(shares, columns, start + row) for row in range(len(cosines))])
        distances = (1 - OWN_SHARE) * (1 - overlaps / (2 - overlaps)) + OWN_SHARE * (1 - cosines)
        yield start, (1 - distances).astype(np.float32)


def _neighbourhoods(features: Array, count: int) -> Any:
    """Returns which share each image has in the neighbourhood of each, a sparse matrix whose rows sum to 1."""
    places, _ = nearest(features, count)
    whole, half = (_mutual(places[:, : size + 1]) for size in (count, max(1, round(count / 2))))
    common = (half @ whole.T).tocsr()  # [neighbour, image]: how many of its half neighbourhood are the image's own
    sizes = np.asarray(half.sum(1)).ravel()
    joins = whole.multiply((sparse.diags(1 / sizes) @ common >= OVERLAP - 1e-6).T)
    members = (whole + joins @ half).tocoo()
    rows, columns = members.row, members.col
    weights = np.empty(len(rows), np.float64)
    for start in range(0, len(rows), 1 << 16):
        part = slice(start, start + (1 << 16))
        weights[part] = np.einsum("ij,ij->i", features[rows[part]], features[columns[part]])
    shares = sparse.csr_matrix((np.exp(2 * (np.minimum(weights, 1) - 1)), (rows, columns)), members.shape)
    shares = sparse.diags(1 / np.asarray(shares.sum(1)).ravel()) @ shares
    friends = max(1, round(count / 3)) + 1  # with itself: whose neighbourhoods are averaged
    near = places[:, :friends]
    owners = np.repeat(np.arange(len(near)), near.shape[1])
    mean = sparse.csr_matrix((np.full(near.size, 1 / near.shape[1]), (owners, near.ravel())), members.shape)
    return (mean @ shares).tocsr()


def _mutual(places: Ints) -> Any:
    """Returns which images are among each other's nearest ones, as a sparse matrix of 1 and 0; each is its own."""
    owners = np.repeat(np.arange(len(places)), places.shape[1])
    is_near = sparse.csr_matrix((np.ones(places.size), (owners, places.ravel())), (len(places), len(places)))
    return is_near.multiply(is_near.T).tocsr()


def _overlap(shares: Any, columns: Any, row: int) -> NDArray[np.float64]:
    """Returns how much the neighbourhood of an image has in common with that of each: 1 if all, 0 if nothing."""
    own = slice(shares.indptr[row], shares.indptr[row + 1])
    members, weights = shares.indices[own], shares.data[own]
    starts, counts = columns.indptr[members], np.diff(columns.indptr)[members]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    found = np.repeat(starts, counts) + within
    common = np.minimum(np.repeat(weights, counts), columns.data[found])
    return np.asarray(np.bincount(columns.indices[found], common, minlength=shares.shape[0]), np.float64)


def scaled(similarities: NDArray[Any], threshold: float) -> NDArray[np.float64]:
    """Returns similarities from 0 to 1 in the same order, 0.5 at the threshold."""
    values = np.clip(similarities.astype(np.float64), LEAST, 1)
    below = (values - LEAST) / max(threshold - LEAST, 1e-9)
    above = (values - threshold) / max(1 - threshold, 1e-9)
    return np.where(values < threshold, below / 2, np.minimum(0.5 + above / 2, 1))
