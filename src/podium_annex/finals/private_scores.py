"""What the private scores will be: the honest estimates and the public scores in one, each as far as it can tell.

A score on n images is off by chance, and by how much follows from how scores change where images are drawn again:
`covariance` is that of the scores of all submissions on one image. It is divided by n, so a public score counts as that
of so many more held-out images. Three things are unknown: the scores on endless test images; how much harder or easier
test images are than training images, for all submissions alike; and how much else differs between both for each of
them (`spread`), which uploads show.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

ENOUGH = 4  # uploads that show how well estimates and public scores agree
SPREADS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)  # tried, in errors of a public score
ALIKE = 100.0  # the error that all estimates may share, in those of the largest


@dataclass(frozen=True)
class Forecast:
    """Of each submission's private score; higher is better."""

    mean: Numbers
    covariance: Numbers  # with the chance by which the private images are drawn
    spread: float

    def best_of(self, first: int, second: int) -> float:
        """Returns the expected score of the better one of two."""
        gap = self.mean[first] - self.mean[second]
        deviation = self.deviation(first, second)
        if deviation == 0:
            return float(max(self.mean[first], self.mean[second]))
        z = gap / deviation
        below = 0.5 * (1 + math.erf(z / math.sqrt(2)))
        density = math.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
        return float(below * self.mean[first] + (1 - below) * self.mean[second] + deviation * density)

    def deviation(self, first: int, second: int) -> float:
        """Returns that of the difference of both scores."""
        both = self.covariance[np.ix_((first, second), (first, second))]
        return math.sqrt(max(0.0, float(both[0, 0] + both[1, 1] - 2 * both[0, 1])))


def forecast(
    expected: Numbers, images: Sequence[int], covariance: Numbers, public: Numbers, public_images: int, private: int
) -> Forecast:
    """Returns the private scores to expect; `public` is nan where there is no public score."""
    scale = 1 / np.sqrt(np.array(images, np.float64))
    of_estimates = covariance * scale[:, None] * scale
    of_public, of_private = covariance / max(public_images, 1), covariance / max(private, 1)
    seen = np.flatnonzero(np.isfinite(public))
    spread = find_spread(public[seen] - expected[seen], (of_estimates + of_public)[np.ix_(seen, seen)], of_public, seen)
    prior = of_estimates + spread**2 * np.eye(len(expected))
    if not len(seen) or not covariance.any():
        return Forecast(expected, prior + of_private, spread)
    prior = prior + (ALIKE**2 * prior.diagonal().max())  # for all alike
    among_seen = prior[np.ix_(seen, seen)] + of_public[np.ix_(seen, seen)]
    gain = prior[:, seen] @ np.linalg.pinv(among_seen, hermitian=True)
    mean = expected + gain @ (public[seen] - expected[seen])
    return Forecast(mean, prior - gain @ prior[seen] + of_private, spread)


def find_spread(differences: Numbers, chance: Numbers, of_public: Numbers, seen: NDArray[np.int64]) -> float:
    """Returns how far public scores are from the estimates, beyond chance and what all share, by likelihood."""
    count = len(differences)
    if count < ENOUGH:
        return 0.0
    contrasts = np.linalg.svd(np.ones((1, count)))[2][1:]  # what all share falls out
    unit = math.sqrt(float(np.median(of_public.diagonal()[seen])))
    moved, best, most = contrasts @ differences, 0.0, -math.inf
    for spread in (unit * factor for factor in SPREADS):
        expected = contrasts @ (chance + spread**2 * np.eye(count)) @ contrasts.T
        sign, log_size = np.linalg.slogdet(expected)
        if sign <= 0:
            continue
        likelihood = -0.5 * (log_size + float(moved @ np.linalg.solve(expected, moved)))
        if likelihood > most:
            best, most = spread, likelihood
    return best


@dataclass(frozen=True)
class Pairs:
    safe: tuple[int, int]  # the two with the highest expected scores
    bold: tuple[int, int]  # the two of which the better one is expected to be highest


def choose_pairs(private: Forecast) -> Pairs:
    order = sorted(range(len(private.mean)), key=lambda number: -private.mean[number])
    pairs = [(order[i], order[j]) for i in range(len(order)) for j in range(i + 1, len(order))]
    return Pairs((order[0], order[1]), max(pairs, key=lambda pair: private.best_of(*pair)))
