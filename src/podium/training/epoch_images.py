"""Which images an epoch shows, and how often: each once, unless an option says something else.

`--balance` is for classes that have many more images than others. The card's [[extra]] images and those of
`--pseudo` join the others, each as often as its weight says, spread evenly over the batches.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ClassBalance:
    classes: NDArray[np.int64]  # of the training images
    power: float  # 0: every image once; 1: all classes equally often

    def __len__(self) -> int:
        """Returns how many images an epoch shows."""
        return len(self.classes)

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Returns the images of an epoch, in random order; images of rare classes several times.

        The numbers of times differ from those that the power asks for by less than one, for each image and each class.
        """
        order = rng.permutation(len(self.classes))
        order = order[np.argsort(self.classes[order], kind="stable")]  # by class, in random order within each
        counts = np.bincount(self.classes).astype(np.float64)
        weights = counts[self.classes[order]] ** -self.power
        shown: NDArray[np.int64] = rng.permutation(np.repeat(order, _times(weights, len(order), rng)))
        return shown


@dataclass(frozen=True)
class WithAdded:
    """Images of one's own and others that join them, which are numbered after them."""

    own: int | ClassBalance
    times: NDArray[np.float64]  # how often an epoch shows each of the others, on average

    def __len__(self) -> int:
        return count_of(self.own) + self.added

    @property
    def added(self) -> int:
        return round(float(self.times.sum()))

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Returns the images of an epoch: of any part of it, the same share has joined."""
        own = draw(self.own, rng)
        first = self.own if isinstance(self.own, int) else len(self.own.classes)
        order = rng.permutation(len(self.times))
        added = first + np.repeat(order, _times(self.times[order], self.added, rng))
        images = np.concatenate([own, rng.permutation(added)])
        places = np.concatenate([(np.arange(len(part)) + 0.5) / max(1, len(part)) for part in (own, added)])
        shown: NDArray[np.int64] = images[np.argsort(places, kind="stable")]
        return shown


EpochImages = int | ClassBalance | WithAdded  # a number: so many images, each once


def count_of(images: EpochImages) -> int:
    """Returns how many images an epoch shows."""
    return images if isinstance(images, int) else len(images)


def draw(images: EpochImages, rng: np.random.Generator) -> NDArray[np.int64]:
    """Returns the images of an epoch, in random order."""
    return rng.permutation(images) if isinstance(images, int) else images.draw(rng)


def _times(weights: NDArray[np.float64], total: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Returns how often each image is shown: in all so often, and each as its weight says, up to less than one."""
    if not len(weights):
        return np.zeros(0, np.int64)
    ends = np.cumsum(weights) * (total / weights.sum())
    ends[-1] = total
    times: NDArray[np.int64] = np.diff(np.floor(ends + rng.random()), prepend=0).astype(np.int64)
    return times
