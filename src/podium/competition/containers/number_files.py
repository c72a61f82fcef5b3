"""Reads image files that hold numbers of any size, not colours of 8 bits: arrays of NumPy; the annex adds others.

In: the bytes of a file. Out: the numbers as one picture, height x width or height x width x 3, not yet of 8 bits: that
is the decoder's work (images/decode.py), with the card's `range`. A kind of file is a reader in READERS, here or in the
`readers.py` of a package beside this one.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from podium.basics.beside import brought
from podium.competition.containers import numpy_file
from podium.competition.containers.image_place import MAX_BYTES
from podium.competition.containers.number_picture import Numbers

HEADER = 1 << 16  # bytes: more than any header that is read


class Reader(NamedTuple):
    is_its: Callable[[bytes], bool]  # whether a file with these first bytes is of this kind
    read: Callable[[bytes], Numbers]  # raises an error that says what is wrong
    size: Callable[[bytes], tuple[int, int]]  # height and width of the picture, from the first bytes
    describe: Callable[[bytes], str]  # how several pictures become one, from the first bytes; "" if there is one
    has_one_range: bool  # all images need one range of values, as no file says its own
    is_slice: bool = False  # a file is one slice of a series, and those that say no range share one


READERS = [
    Reader(numpy_file.is_numpy, numpy_file.read_picture, numpy_file.size_of_picture, numpy_file.describe, True),
]


@cache
def all_readers() -> list[Reader]:
    """Returns the readers, with those of packages beside this one."""
    return [*READERS, *(reader for readers in brought("readers", "READERS") for reader in readers)]


def reader_of(data: bytes) -> Reader | None:
    """Returns what reads a file of numbers, told by its first bytes; None for any other file."""
    return next((reader for reader in all_readers() if reader.is_its(data)), None)


def size_in_header(path: Path) -> tuple[int, int] | None:
    """Returns height and width of the picture of a file of numbers; None for any other file, and for a broken one."""
    start = read_start(path)
    reader = reader_of(start)
    try:
        return reader.size(start) if reader else None
    except Exception:  # the packages do not document what they raise for a broken file
        return None


def describe(start: bytes) -> str:
    """Returns how several pictures of a file become one, in words; "" if there is one, or the file is broken."""
    reader = reader_of(start)
    try:
        return reader.describe(start) if reader else ""
    except Exception:  # as above
        return ""


def read_start(path: Path) -> bytes:
    """Returns the first bytes of a file; none if it cannot be read, or is too large."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:  # opening a pipe would block
            return b""
        with path.open("rb") as file:
            return file.read(HEADER)
    except OSError:
        return b""
