"""Which images an epoch shows, and how often: each once, unless an option says something else.

`--balance` is for classes that have many more images than others. The card's [[extra]] images and those of
`--pseudo` join the others, each as often as its weight says, spread evenly over the batches.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.options.moves.balancing import times_shown
from podium.options.moves.move import Shown


@dataclass(frozen=True)
class WithAdded:
    """Images of one's own and others that join them, which are numbered after them."""

    own: Shown
    times: NDArray[np.float64]  # how often an epoch shows each of the others, on average

    def __len__(self) -> int:
        return count_of(self.own) + self.added

    @property
    def added(self) -> int:
        return round(float(self.times.sum()))

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Returns the images of an epoch: of any part of it, the same share has joined."""
        own = draw(self.own, rng)
        first = count_of(self.own)
        order = rng.permutation(len(self.times))
        added = first + np.repeat(order, times_shown(self.times[order], self.added, rng))
        images = np.concatenate([own, rng.permutation(added)])
        places = np.concatenate([(np.arange(len(part)) + 0.5) / max(1, len(part)) for part in (own, added)])
        shown: NDArray[np.int64] = images[np.argsort(places, kind="stable")]
        return shown


def count_of(images: Shown) -> int:
    """Returns how many images an epoch shows."""
    return images if isinstance(images, int) else len(images)


def draw(images: Shown, rng: np.random.Generator) -> NDArray[np.int64]:
    """Returns the images of an epoch, in random order."""
    return rng.permutation(images) if isinstance(images, int) else images.draw(rng)
