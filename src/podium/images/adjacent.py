"""Which images of a store a model sees at once: each between those before and after it in its series (--adjacent).

A view gets them one above the other, [images, height, width, 3], and makes one picture of many channels of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from podium.images.decode import Pixels
from podium.images.store import Reader, Store

CHUNK = 4096  # thumbnails that are in memory at once


@dataclass(frozen=True)
class Adjacent:
    around: NDArray[np.int64]  # [images of the store, seen at once]: their positions; the image itself in the middle

    def of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the positions of all that is seen with these images, those of an image together."""
        return self.around[positions].ravel()

    def reader(self, read: Reader) -> Reader:
        """Returns what reads all that is seen with an image; `read` knows the images of `of`."""
        return AdjacentReader(read, self.around.shape[1])


@dataclass(frozen=True)
class AdjacentReader:
    read: Reader
    count: int

    def __call__(self, number: int) -> Pixels:
        images = [self.read(number * self.count + place) for place in range(self.count)]
        height, width = images[self.count // 2].shape[:2]
        same = [image if image.shape[:2] == (height, width) else cv2.resize(image, (width, height)) for image in images]
        return np.stack(same)  # type: ignore[arg-type]


def with_adjacent(store: Store, series: Iterable[Sequence[str]], count: int) -> Store:
    """Returns the store whose images are read with those beside them in a series, `count` at once.

    Beyond the ends, the first and the last image of a series stand in; for one that cannot be read, the image itself.
    So does an image for those beside it where it belongs to no series.
    """
    own, reach = np.arange(len(store.names)), np.arange(count) - count // 2
    around = np.repeat(own[:, None], count, 1)
    for names in series:
        places = store.positions(list(names))
        beside = (np.arange(len(places))[:, None] + reach).clip(0, len(places) - 1)
        around[places] = places[beside]
    around = np.where(store.bad(around.ravel()).reshape(around.shape), own[:, None], around)
    return replace(store, adjacent=Adjacent(around))


def are_grey(store: Store, positions: NDArray[np.int64]) -> bool:
    """Returns whether these images show no colours, as far as their thumbnails tell."""
    for start in range(0, len(positions), CHUNK):
        thumbs = store.thumbs[positions[start : start + CHUNK]]
        if (thumbs != thumbs[..., :1]).any():
            return False
    return True
