"""A decision for test images in which classes have other shares than in training: it estimates them, without labels.

    podium submit --decision test-shares        or decision = "test-shares" in the card

The shares are those that explain the test images best: expectation and maximisation in turn (Saerens, Latinne and
Decaestecker, 2002), on calibrated probabilities. Then each probability is multiplied by the estimated share, divided by
the share in training. It is right where only the shares differ, and the images of a class look as in training.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.tasks.task import Targets
from podium.tasks.temperature import apply_temperature, fit_temperature

if TYPE_CHECKING:
    from podium.competition.load import Competition

Numbers = NDArray[np.float64]
Probs = NDArray[np.float64]  # [images, classes]

SHARES_KIND = "test_shares"  # in a lineage; on the command line it is strategy_names.TEST_SHARES
STEPS, LEAST_CHANGE = 1_000, 1e-7  # of the estimate, at most; the largest change of a share that ends it
# Images that count for the shares in training, for each class: else a class that no image shows clearly would get the
# share 0, and a single mistake would cost without end. On photographs of signs, 3 and 10 gain as much, and cost less
# where the shares are the same; but the intervals of few images would no longer hold the truth.
PRIOR_IMAGES = 1.0
LEAST_PRIOR = 1e-6  # a share in training
RESAMPLES, FEWER_RESAMPLES, MANY = 500, 100, 1_000_000  # the fewer for so many probabilities
PERCENTILES = (2.5, 97.5)
SHOWN = 12  # classes


@dataclass(frozen=True)
class TestShares:
    """The shares of the classes among the test images, estimated."""

    __test__ = False  # pytest takes the name for a test case

    classes: tuple[str, ...]
    in_training: Numbers
    estimated: Numbers
    low: Numbers  # 95 %, from resampled test images
    high: Numbers

    def describe(self) -> str:
        """Returns the shares in words, those that change most first."""
        change = np.abs(np.log(self.estimated / self.in_training))
        texts = [
            f"{self.classes[n]} {self.estimated[n]:z.3f} ({self.low[n]:z.3f} to {self.high[n]:z.3f}; in training"
            f" {self.in_training[n]:z.3f})"
            for n in np.argsort(-change, kind="stable")
        ]
        return f"estimated shares of the test images, 95 % intervals: {first_few(texts, SHOWN)}"

    def as_json(self) -> dict[str, Any]:
        numbers = zip(self.in_training, self.estimated, self.low, self.high, strict=True)
        return {
            name: {"in_training": float(before), "estimated": float(share), "between": [float(low), float(high)]}
            for name, (before, share, low, high) in zip(self.classes, numbers, strict=True)
        }


def refuse_other_tasks(competition: "Competition", where: str) -> None:
    """Refuses a competition whose answers have no shares that sum to 1; `where` says who asks."""
    problem = ""
    if not competition.task.sums_to_one or competition.task.has_columns:
        problem = f"images have {competition.task.words.removesuffix(' an image')} here"
    elif competition.unknown is not None:
        problem = f"no training image has the class {competition.unknown.name}, so its share cannot be compared"
    if problem:
        raise PodiumError(
            f"{where}: shares of classes can be estimated where each image has one label; {problem}; use auto or none"
        )


def fit_test_shares(probs: Probs, targets: Targets, metric: str) -> Numbers:
    """Returns the temperature that calibrates the probabilities, then the share that each class has in training.

    That is its mean calibrated probability: other images of the same shares then keep them.
    """
    temperature = fit_temperature(probs, targets.values, targets.votes)
    return np.append(temperature, apply_temperature(probs, temperature).mean(0).clip(LEAST_PRIOR))


def reweigh_by_shares(probs: Probs, numbers: Numbers) -> Probs:
    """Returns the probabilities for images with the shares that they are estimated to have."""
    weighed: Probs = probs * (estimate_shares(probs, numbers) / shares_in_training(numbers))
    return np.asarray(weighed / weighed.sum(1, keepdims=True))


def shares_in_training(numbers: Numbers) -> Numbers:
    return np.asarray(numbers[1:] / numbers[1:].sum())


def estimate_shares(probs: Probs, numbers: Numbers) -> Numbers:
    """Returns the share of each class among these images; `numbers` are those that were fitted."""
    prior = shares_in_training(numbers)
    return _find_shares(apply_temperature(probs, float(numbers[0])) / prior, np.ones(len(probs)), prior, prior)


def _find_shares(evidence: Probs, counts: Numbers, prior: Numbers, start: Numbers) -> Numbers:
    """Returns the most probable shares; `evidence` is what speaks for each class, `counts` how often images count."""
    shares, pseudo = start, PRIOR_IMAGES * len(prior) * prior
    for _ in range(STEPS):
        posterior_sums = shares * (evidence.T @ (counts / (evidence @ shares)))
        found = (posterior_sums + pseudo) / (counts.sum() + pseudo.sum())
        change, shares = np.abs(found - shares).max(), found
        if change < LEAST_CHANGE:
            break
    return shares


def shares_with_interval(probs: Probs, numbers: Numbers, classes: tuple[str, ...]) -> TestShares:
    """Returns the estimated shares, and where they lie if other test images had been drawn."""
    prior, estimated = shares_in_training(numbers), estimate_shares(probs, numbers)
    evidence, rng = apply_temperature(probs, float(numbers[0])) / prior, np.random.default_rng(0)
    drawn = []
    for _ in range(FEWER_RESAMPLES if probs.size > MANY else RESAMPLES):
        counts = np.bincount(rng.integers(len(probs), size=len(probs)), minlength=len(probs)).astype(float)
        drawn.append(_find_shares(evidence, counts, prior, estimated))
    low, high = np.percentile(drawn, PERCENTILES, axis=0)
    return TestShares(classes, prior, estimated, low, high)
