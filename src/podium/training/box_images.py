"""Images of which a run sees boxes (`--region`): one of them in an epoch of training, all of them in prediction.

Which box is a function of (seed, epoch, image).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.basics.randomness import BOX, generator
from podium.images.decode import Pixels
from podium.images.examples import Examples
from podium.images.store import Reader
from podium.training.augment import View
from podium.training.loader import ImageDataset


@dataclass(frozen=True)
class Draw:
    """Draws a box of an image for an epoch."""

    seed: int
    examples: Examples

    def __call__(self, read: Reader, index: int, epoch: int, row: int) -> Pixels:
        rng = generator(BOX, self.seed, epoch, row)
        return read(int(self.examples.starts[index] + rng.integers(self.examples.counts[index])))


class DrawnBoxes(ImageDataset):
    """Shows one box of each image in an epoch."""

    def __init__(
        self, read: Reader, targets: NDArray[np.int64], view: View, rows: NDArray[np.int64], draw: Draw
    ) -> None:
        super().__init__(read, targets, view, rows)
        self.draw = draw

    def pixels(self, epoch: int, index: int) -> Pixels:
        return self.draw(self.read, index, epoch, int(self.rows[index]))
