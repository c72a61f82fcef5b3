"""Reads an .npy file, an array of NumPy, as one picture. The header is checked first; nothing is ever unpickled.

height x width                   grey
height x width x 3, or x 4       colours; a fourth channel is transparency in 8 bits, else it is left out
3 x height x width               colours
planes x height x width          the planes one above the other, in one tall picture
"""

import io
from typing import Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from podium.competition.containers.image_place import MAX_PIXELS
from podium.competition.containers.number_picture import Numbers

MOST_PLANES = 64  # with more, it is a volume or a film
KINDS = "buif"  # of numbers that can be shown: truth, whole numbers, floats


class Layout(NamedTuple):
    """How an array becomes a picture."""

    planes: int  # 1: grey
    height: int  # of a plane
    width: int
    first: bool  # the planes stand in front of height and width

    @property
    def is_colour(self) -> bool:
        return self.planes == 3 or (self.planes == 4 and not self.first)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the picture."""
        return self.height * (1 if self.is_colour else self.planes), self.width


class Header(NamedTuple):
    layout: Layout
    shape: tuple[int, ...]
    in_columns: bool  # Fortran's order
    dtype: np.dtype[Any]
    offset: int  # of the numbers in the file


def is_numpy(start: bytes) -> bool:
    return start.startswith(b"\x93NUMPY")


def read_picture(data: bytes) -> Numbers:
    """Returns the numbers as a picture; raises a ValueError that says what is wrong."""
    return Numbers("NumPy", _values_of(data))


def _values_of(data: bytes) -> NDArray[Any]:
    header = _read_header(data)
    layout, count = header.layout, int(np.prod(header.shape))
    there, needed = len(data) - header.offset, count * header.dtype.itemsize
    if there < needed:
        raise ValueError(f"it ends too early: {needed:,} bytes of numbers are announced, {there:,} are there")
    flat = np.frombuffer(data, header.dtype, count, header.offset)
    array = flat.reshape(header.shape, order="F" if header.in_columns else "C")
    if layout.planes == 1:
        return array.reshape(layout.height, layout.width)
    array = array.reshape([side for side in header.shape if side != 1])
    if layout.is_colour:
        array = np.moveaxis(array, 0, -1) if layout.first else array
        return array if array.dtype == np.uint8 else array[..., :3]
    array = array if layout.first else np.moveaxis(array, -1, 0)
    return array.reshape(layout.size)


def size_of_picture(start: bytes) -> tuple[int, int]:
    return _read_header(start).layout.size


def describe(start: bytes) -> str:
    """Returns how planes become one picture, in words; "" if there is nothing to say."""
    layout = _read_header(start).layout
    if layout.planes == 1 or layout.is_colour:
        return ""
    height, width = layout.size
    return f"{layout.planes} planes of {layout.height} x {layout.width}, one above the other: {height} x {width}"


def _read_header(data: bytes) -> Header:
    file = io.BytesIO(data)
    version = npy.read_magic(file)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"it has version {version[0]}.{version[1]} of NumPy's format, not 1.0 or 2.0")
    shape, in_columns, dtype = readers[version](file)
    if dtype.kind not in KINDS:
        raise ValueError(f"it holds {'Python objects' if dtype.hasobject else dtype}, not plain numbers")
    return Header(_layout_of(shape), shape, in_columns, dtype, file.tell())


def _layout_of(shape: tuple[int, ...]) -> Layout:
    sides = [side for side in shape if side != 1] if len(shape) > 2 else list(shape)
    count = int(np.prod([float(side) for side in shape]))  # as a float it cannot overflow
    if count > 3 * MAX_PIXELS:
        raise ValueError(f"it has {count:,} numbers, more than {3 * MAX_PIXELS // 10**6} million")
    is_whole = all(side > 0 for side in shape)
    if len(sides) == 2 and is_whole:
        return Layout(1, sides[0], sides[1], True)
    if len(sides) == 3 and is_whole:
        first = sides[0] <= sides[2] - (sides[2] in (3, 4))  # of as many, colours are more often the last
        planes = min(sides[0], sides[2])
        height, width = sides[1:] if first else sides[:2]
        if planes <= MOST_PLANES:
            return Layout(planes, height, width, first)
    raise ValueError(
        f"its shape, {' x '.join(map(str, shape)) or 'a single number'}, is none of a picture: height x width, height x"
        f" width x 3, or up to {MOST_PLANES} planes of height x width"
    )
