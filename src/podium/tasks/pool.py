"""Ways to pool what a model predicts for several images, or for several parts of one, into one answer.

`mean` of the images' probabilities, `max` (the highest of each class; of one label, then divided by their sum) or
`noisy_or` (an image that shows the class is enough; for yes and no).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.tasks.task import Task

POOLINGS = ("mean", "max", "noisy_or")
Ints = NDArray[np.int64]
Probs = NDArray[np.float64]  # [images, classes], or [answers, classes]
ALMOST_1 = 1 - 1e-12


@dataclass(frozen=True)
class Grouping:
    """Which images an answer is for."""

    answers: Ints  # the number of each image's answer
    count: int  # of answers
    sums_to_one: bool  # whether an image's probabilities do
    has_decisive_first: bool = False  # of two classes, a single image with the first decides, not the second


@dataclass(frozen=True)
class Pool:
    way: str  # one of POOLINGS

    def apply(self, probs: Probs, grouping: Grouping) -> Probs:
        """Returns the probabilities of the answers."""
        answers, count = grouping.answers, grouping.count
        if not grouping.sums_to_one:
            return OF_SEVERAL_LABELS[self.way](probs, answers, count)
        if grouping.has_decisive_first:
            return OF_ONE_LABEL[self.way](probs[:, ::-1], answers, count)[:, ::-1]
        return OF_ONE_LABEL[self.way](probs, answers, count)

    def describe(self) -> str:
        return f"{self.way.replace('_', ' ')} of an answer's images" if self.way != "mean" else ""

    def as_json(self) -> dict[str, Any]:
        return {"pooling": self.way}


MEAN = Pool("mean")


def pool_from_json(content: Mapping[str, Any]) -> Pool:
    way = str(content.get("pooling", "mean"))
    if way not in POOLINGS:
        raise ValueError("its blend")
    return Pool(way)


def pool_mean(probs: Probs, answers: Ints, count: int) -> Probs:
    total: Probs = np.zeros((count, probs.shape[1]))
    np.add.at(total, answers, probs)
    return total / np.bincount(answers, minlength=count)[:, None]


def _max(probs: Probs, answers: Ints, count: int) -> Probs:
    highest: Probs = np.zeros((count, probs.shape[1]))
    np.maximum.at(highest, answers, probs)
    return highest


def _max_of_one_label(probs: Probs, answers: Ints, count: int) -> Probs:
    highest = _max(probs, answers, count)
    return np.asarray(highest / highest.sum(1, keepdims=True))


def _noisy_or(probs: Probs, answers: Ints, count: int) -> Probs:
    """Returns 1 minus the probability that no image shows the class."""
    none: Probs = np.zeros((count, probs.shape[1]))
    np.add.at(none, answers, np.log1p(-probs.clip(0, ALMOST_1)))
    return np.asarray(1 - np.exp(none))


def _noisy_or_of_two(probs: Probs, answers: Ints, count: int) -> Probs:
    """The second class is the one that a single image shows."""
    second = _noisy_or(probs[:, 1:], answers, count)
    return np.hstack([1 - second, second])


def ways_of(task: Task, classes: int) -> Sequence[str]:
    """Returns the ways that make sense for answers of a kind; the mean is the first."""
    if task.has_columns or not task.are_labels:
        return POOLINGS[:1]
    return POOLINGS[:2] if task.sums_to_one and classes != 2 else POOLINGS


class Answers(NamedTuple):
    """What a model says of images."""

    probs: NDArray[np.float32]  # the mean of what it says of the parts of each
    pooled: dict[str, NDArray[np.float32]]  # in other ways; nothing where images have one part each


def pool_parts(probs: NDArray[np.float32], counts: Ints, task: Task) -> Answers:
    """Returns what several parts of each image say of it. `counts` are those of its parts, which follow each other."""
    mean = pooled(probs, counts)
    if len(probs) == len(counts):
        return Answers(mean, {})
    grouping = Grouping(np.repeat(np.arange(len(counts)), counts), len(counts), task.sums_to_one)
    own, ways = probs.astype(np.float64), ways_of(task, probs.shape[1])[1:]
    return Answers(mean, {way: Pool(way).apply(own, grouping).astype(np.float32) for way in ways})


def pooled(values: NDArray[Any], counts: Ints) -> NDArray[Any]:
    """Returns the mean of each group of so many values; the same array if each has one."""
    if len(values) == len(counts):
        return values
    sums = np.add.reduceat(values, np.cumsum(counts) - counts, axis=0)
    means: NDArray[Any] = sums / counts[:, None].astype(values.dtype)
    return means


PoolingFunction = Callable[[Probs, Ints, int], Probs]
OF_ONE_LABEL: dict[str, PoolingFunction] = dict(
    zip(POOLINGS, (pool_mean, _max_of_one_label, _noisy_or_of_two), strict=True)
)
OF_SEVERAL_LABELS: dict[str, PoolingFunction] = dict(zip(POOLINGS, (pool_mean, _max, _noisy_or), strict=True))
