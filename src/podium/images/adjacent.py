"""Which images of a store a model sees at once: each between those before and after it in its series (--adjacent).

A view gets them one above the other, [images, height, width, 3], and makes one picture of many channels of them.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from podium.images.decode import Pixels

Read = Callable[[int], Pixels]


@dataclass(frozen=True)
class Adjacent:
    around: NDArray[np.int64]  # [images of the store, seen at once]: their positions; the image itself in the middle

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.around.tobytes()).hexdigest()

    def of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the positions of all that is seen with these images, those of an image together."""
        return self.around[positions].ravel()

    def reader(self, read: Read) -> Read:
        """Returns what reads all that is seen with an image; `read` knows the images of `of`."""
        return AdjacentReader(read, self.around.shape[1])


@dataclass(frozen=True)
class AdjacentReader:
    read: Read
    count: int

    def __call__(self, number: int) -> Pixels:
        """Returns the images at the size of the one in the middle."""
        images = [self.read(number * self.count + place) for place in range(self.count)]
        height, width = images[self.count // 2].shape[:2]
        same = [image if image.shape[:2] == (height, width) else cv2.resize(image, (width, height)) for image in images]
        stacked: Pixels = np.stack(same)
        return stacked
