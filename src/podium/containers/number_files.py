"""Reads image files that hold numbers of any size, not colours of 8 bits: arrays of NumPy.

In: the bytes of a file. Out: the numbers as one picture, height x width or height x width x 3, not yet of 8 bits: that
is the decoder's work (images/decode.py), with the card's `range`. A kind of file is a reader in READERS.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from numpy.typing import NDArray

from podium.containers import numpy_file

HEADER = 1 << 16  # bytes: more than any header that is read


class Numbers(NamedTuple):
    """What a file holds: a picture of numbers."""

    format: str
    values: NDArray[Any]  # height x width, or height x width x 3 (4 with transparency, of 8 bits)
    shown: tuple[float, float] | Literal["image"] | None = None  # from black to white, if the file or its kind says so


class Reader(NamedTuple):
    is_its: Callable[[bytes], bool]  # whether a file with these first bytes is of this kind
    read: Callable[[bytes], Numbers]  # raises a ValueError that says what is wrong
    size: Callable[[bytes], tuple[int, int]]  # height and width of the picture, from the first bytes


def _read_numpy(data: bytes) -> Numbers:
    return Numbers("NumPy", numpy_file.read_picture(data))


READERS = [Reader(lambda start: start.startswith(numpy_file.SIGNATURE), _read_numpy, numpy_file.size_of_picture)]


def reader_of(data: bytes) -> Reader | None:
    """Returns what reads a file of numbers, told by its first bytes; None for any other file."""
    return next((reader for reader in READERS if reader.is_its(data)), None)


def size_in_header(path: Path) -> tuple[int, int] | None:
    """Returns height and width of the picture of a file of numbers; None for any other file, and for a broken one."""
    try:
        with path.open("rb") as file:
            start = file.read(HEADER)
        reader = reader_of(start)
        return reader.size(start) if reader else None
    except (OSError, ValueError):
        return None
