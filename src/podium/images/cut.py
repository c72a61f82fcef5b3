"""Cuts a part out of a decoded image: a box, or all but its borders of one colour (scans, padded photographs).

image_place.py says how the place of a part is written. decode.py calls this; nothing is read or written.
"""

import numpy as np
from numpy.typing import NDArray

from podium.basics.image_size import BORDER
from podium.competition.containers.image_place import parse_box

TOLERANCE = 16  # levels of 255 that the pixels of a border differ by: the noise of a strong JPEG compression
ALIKE = 0.99  # share of the pixels of a border's line that have its colour: the others are dust and scratches
LEAST_SHARE, LEAST_SIDE = 1 / 8, 16  # of a side, and pixels; if less would remain, the image is nearly one colour


def cut_out(image: NDArray[np.uint8], part: str) -> NDArray[np.uint8]:
    """Returns a part of the image; all of it for no part."""
    if not part:
        return image
    left, top, right, bottom = find_border(image) if part == BORDER else _edges_of(part)
    return np.ascontiguousarray(image[max(top, 0) : bottom, max(left, 0) : right])


def _edges_of(part: str) -> tuple[int, int, int, int]:
    left, top, width, height = parse_box(part)
    return left, top, left + width, top + height


def find_border(image: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Returns the edges (left, top, right, bottom) of the image without its borders.

    A border is a number of lines at an edge that have one colour; each edge may have another one. An image that is
    nearly all of one colour has no border.
    """
    height, width = image.shape[:2]
    top, below = _border_lines(image), _border_lines(image[::-1])
    bottom = height - below
    if bottom <= top:
        return 0, 0, width, height
    columns = image[top:bottom].transpose(1, 0, 2)
    left, right = _border_lines(columns), width - _border_lines(columns[::-1])
    sides = ((right - left, width), (bottom - top, height))
    is_too_small = any(inner < max(LEAST_SHARE * side, min(LEAST_SIDE, side)) for inner, side in sides)
    return (0, 0, width, height) if is_too_small else (left, top, right, bottom)


def _border_lines(image: NDArray[np.uint8]) -> int:
    """Returns how many rows, from the first on, have the colour of the first."""
    colour = np.median(image[0], axis=0)
    for number, line in enumerate(image):
        if (np.abs(line - colour).max(-1) <= TOLERANCE).mean() < ALIKE:
            return number
    return len(image)
