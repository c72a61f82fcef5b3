"""Images of which a run sees boxes (`--region`): one of them in an epoch of training, all of them in prediction.

Which box, and how it is moved and scaled (`--region-jitter`), is a function of (seed, epoch, image). The store holds
what is around a box, as far as training may show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.containers.image_place import BORDER, parse_box, split_part
from podium.images.decode import Pixels
from podium.images.examples import Examples
from podium.images.store import Reader, Store
from podium.training.augment import View
from podium.training.loader import ImageDataset
from podium.training.randomness import BOX, generator

Edges = NDArray[np.float64]  # [images, 4]: left, top, width and height, as shares of the stored image
ALL_OF_IT = (0.0, 0.0, 1.0, 1.0)


def edges_in_store(store: Store, positions: NDArray[np.int64]) -> Edges:
    """Returns where the boxes lie in the stored images, which may show more."""
    return np.array([_edges(store, position) for position in positions.tolist()], np.float64).reshape(-1, 4)


def _edges(store: Store, position: int) -> Sequence[float]:
    part, file = split_part(str(store.names[position]))[1], store.files[position]
    if not part or part == BORDER or file.reason:
        return ALL_OF_IT
    box, across, down = parse_box(part)
    left, top = min(box.left, across), min(box.top, down)  # as far as the image went
    return left / file.width, top / file.height, box.width / file.width, box.height / file.height


def seen_reader(store: Store, examples: Examples) -> Reader:
    """Returns a function from an index into the examples to what prediction sees of that image."""
    read = store.reader(examples.positions)
    return BoxReader(read, edges_in_store(store, examples.positions)) if store.regions.jitter else read


@dataclass(frozen=True)
class BoxReader:
    """Reads boxes without what the store holds around them."""

    read: Reader
    edges: Edges

    def __call__(self, number: int) -> Pixels:
        return cut(self.read(number), self.edges[number])


def cut(image: Pixels, edges: NDArray[np.float64]) -> Pixels:
    """Returns the part of an image between these edges, as far as the image goes; at least a pixel."""
    height, width = image.shape[:2]
    first = np.clip(np.round(edges[:2] * (width, height)).astype(int), 0, (width - 1, height - 1))
    last = np.clip(np.round((edges[:2] + edges[2:]) * (width, height)).astype(int), first + 1, (width, height))
    return image[first[1] : last[1], first[0] : last[0]]


@dataclass(frozen=True)
class Draw:
    """Draws a box of an image for an epoch, and moves and scales it."""

    seed: int
    jitter: float
    examples: Examples
    edges: Edges

    def __call__(self, read: Reader, index: int, epoch: int, row: int) -> Pixels:
        rng = generator(BOX, self.seed, epoch, row)
        number = int(self.examples.starts[index] + rng.integers(self.examples.counts[index]))
        return cut(read(number), jittered(self.edges[number], self.jitter, rng))


def jittered(edges: NDArray[np.float64], jitter: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Moves a box by up to this share of its sides and changes these by up to as much; an image without box stays."""
    move_x, move_y, scale = jitter * (2 * rng.random(3) - 1)
    if tuple(edges) == ALL_OF_IT:
        return edges
    centre = edges[:2] + edges[2:] * (0.5 + move_x, 0.5 + move_y)
    sides = edges[2:] * (1 + scale)
    return np.concatenate([centre - sides / 2, sides])


class DrawnBoxes(ImageDataset):
    """Shows one box of each image in an epoch."""

    def __init__(
        self, read: Reader, targets: NDArray[np.int64], view: View, rows: NDArray[np.int64], draw: Draw
    ) -> None:
        super().__init__(read, targets, view, rows)
        self.draw = draw

    def pixels(self, epoch: int, index: int) -> Pixels:
        return self.draw(self.read, index, epoch, int(self.rows[index]))
