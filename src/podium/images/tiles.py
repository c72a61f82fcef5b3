"""Cuts large images into tiles (`--region tiles:3`): a grid of about square ones, which overlap by their margins.

Tiles of one colour show nothing, and are left out; of an image that is all of one colour, all stay.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from podium.images.decode import Pixels
from podium.images.region_tables import ReadBox, ReadBoxes, Row
from podium.images.store import Store

TOLERANCE = 16  # levels of 255 that the pixels of a tile differ by where there is nothing to see
LEAST_PIXELS = 4  # that must differ by more: one or two are dust
LONGEST = 4  # times as many tiles along the longer side, at most


def tiles_of(store: Store, rows: Iterable[Row], along: int) -> ReadBoxes:
    """Returns the tiles of these images, which the store holds whole, as shares of their sides."""
    listed = list(rows)
    positions = store.positions([image for _, image in listed])
    read, of_row = store.reader(positions), {}
    for number, (row, position) in enumerate(zip(listed, positions, strict=True)):
        if not store.files[position].reason:
            of_row[row] = list(tiles_in(read(number), along, row[1]))
    return ReadBoxes(f"tiles:{along}", of_row)


def tiles_in(pixels: Pixels, along: int, image: str) -> Iterator[ReadBox]:
    """Yields the tiles of an image that show something."""
    height, width = pixels.shape[:2]
    shorter = min(height, width)
    rows, columns = (min(round(along * side / shorter), LONGEST * along) for side in (height, width))
    tiles = [(row, column) for row in range(rows) for column in range(columns)]
    shown = [
        (row, column)
        for row, column in tiles
        if _shows_something(
            pixels[
                height * row // rows : max(height * (row + 1) // rows, height * row // rows + 1),
                width * column // columns : max(width * (column + 1) // columns, width * column // columns + 1),
            ]
        )
    ]
    for row, column in shown or tiles:
        yield ReadBox(column / columns, row / rows, 1 / columns, 1 / rows, f"a tile of {image}")


def _shows_something(tile: Pixels) -> bool:
    usual = np.median(tile, axis=(0, 1))
    return int((np.abs(tile - usual).max(-1) > TOLERANCE).sum()) >= LEAST_PIXELS
