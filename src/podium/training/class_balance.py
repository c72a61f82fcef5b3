"""Which images an epoch shows where some classes have many more images than others: `--balance` and `--cap`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ClassBalance:
    classes: NDArray[np.int64]  # of the training images
    power: float  # 0: every image once; 1: all classes equally often
    cap: int  # the most images of a class in an epoch; 0: no limit

    def __len__(self) -> int:
        """Returns how many images an epoch shows."""
        return int(self._capped().sum())

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Returns the images of an epoch, in random order; images of rare classes several times.

        The numbers of times differ from those that the power asks for by less than one, for each image and each class.
        """
        order = rng.permutation(len(self.classes))
        order = order[np.argsort(self.classes[order], kind="stable")]  # by class, in random order within each
        capped = self._capped()
        starts = np.cumsum(np.bincount(self.classes)) - np.bincount(self.classes)
        order = order[np.arange(len(order)) - starts[self.classes[order]] < capped[self.classes[order]]]
        weights = capped[self.classes[order]] ** -self.power
        ends = np.cumsum(weights) * (len(order) / weights.sum())
        ends[-1] = len(order)
        times = np.diff(np.floor(ends + rng.random()), prepend=0).astype(np.int64)
        shown: NDArray[np.int64] = rng.permutation(np.repeat(order, times))
        return shown

    def _capped(self) -> NDArray[np.float64]:
        """Returns how many images of each class an epoch draws from."""
        counts = np.bincount(self.classes)
        return np.minimum(counts, self.cap or counts).astype(np.float64)
