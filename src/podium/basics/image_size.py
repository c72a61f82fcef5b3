"""The size of the images that a model sees, 224 for a square or "80x60" for 80 high and 60 wide; and a part of one."""

import re
from typing import Any, NamedTuple

from podium.basics.errors import PodiumError

ImageSize = int | str
BORDER = "border"  # a part of an image: all but its borders


class Box(NamedTuple):
    """A part of an upright image, in pixels."""

    left: int
    top: int
    width: int
    height: int

    def __str__(self) -> str:
        return ",".join(map(str, self))


def parse_size(value: Any) -> ImageSize:
    """Returns the size that a number or a text means; raises ValueError if it means none."""
    match = re.fullmatch("([0-9]+)(?:x([0-9]+))?", str(value))
    if match is None or isinstance(value, bool):
        raise ValueError(f"a number of pixels, or HEIGHTxWIDTH as in 80x60, not {value!r}")
    height, width = int(match[1]), int(match[2] or match[1])
    return height if height == width else f"{height}x{width}"


def sides_of(size: ImageSize) -> tuple[int, int]:
    """Returns the height and the width."""
    height, _, width = str(size).partition("x")
    return int(height), int(width or height)


def area_of(size: ImageSize) -> int:
    height, width = sides_of(size)
    return height * width


def shorter_side(*sizes: ImageSize) -> int:
    """Returns the shorter side; for several sizes, the longest of these."""
    return max(min(sides_of(size)) for size in sizes)


def size_of(height: int, width: int) -> ImageSize:
    return parse_size(f"{height}x{width}")


def square_side(size: ImageSize, what: str) -> int:
    """Returns the side; raises if the images are not squares."""
    height, width = sides_of(size)
    if height != width:
        raise PodiumError(f"{what} needs square images, not {size}; use --image-size {min(height, width)}")
    return height
