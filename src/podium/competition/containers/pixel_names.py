"""Tells pixels from other columns by their names, and the height and width of an image from their number."""

import math
import re
from collections.abc import Sequence

import pandas as pd

from podium.basics.errors import PodiumError

NUMBERED = re.compile(r"(pixel|px)[ _]?[0-9]+([_x][0-9]+)?|[0-9]+x[0-9]+", re.IGNORECASE)  # pixel0, pixel_1_1, 1x1
ONLY_NUMBERS = re.compile(r"[0-9]+")
CELLS = ("pixels", "image")  # names of columns with all pixels of an image in a cell, in small letters
FEWEST = 64  # pixels in an image
KNOWN_SHAPES = {137 * 236: (137, 236)}  # by the number of pixels: those of Bengali.AI
ID_NAME = re.compile(r"(.*[\W_])?id|.*[a-z]I[dD]|(image|file)_?name", re.IGNORECASE)


class UnknownShape(PodiumError):
    """The number of pixels does not tell height and width; the card can."""


def pixel_columns(names: Sequence[str], numbers: bool = True) -> range:
    """Returns where the columns of pixels stand, side by side; an empty range if there are none.

    `numbers` says whether a column may be called by a number alone.
    """
    found = [
        position
        for position, name in enumerate(names)
        if NUMBERED.fullmatch(name) or (numbers and ONLY_NUMBERS.fullmatch(name))
    ]
    if len(found) < FEWEST or found[-1] - found[0] + 1 != len(found):
        return range(0)
    return range(found[0], found[-1] + 1)


def shape_of(count: int, shape: str, place: str) -> tuple[int, int]:
    """Returns height and width: the card's `shape`, else the known one, else those of a square."""
    if shape:
        height, width = map(int, shape.split("x"))
        if height * width != count:
            raise UnknownShape(f"{place}: {count:,} pixels, but the card's {shape} are {height * width:,}")
        return height, width
    side = math.isqrt(count)
    if count not in KNOWN_SHAPES and side * side != count:
        raise UnknownShape(f"{place}: {count:,} pixels are not those of a square")
    return KNOWN_SHAPES.get(count, (side, side))


def names_of(rows: pd.DataFrame, count: int) -> tuple[list[str], bool]:
    """Returns the names of the images, and whether they are ids of the file; if not, they count the rows from 1."""
    for column in rows:
        if ID_NAME.fullmatch(str(column)) and rows[column].is_unique:
            return list(rows[column]), True
    return [str(row) for row in range(1, count + 1)], False
