"""What a file of numbers holds: a picture that is not yet of 8 bits."""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Numbers(NamedTuple):
    format: str
    values: NDArray[Any]  # height x width, or height x width x 3 (4 with transparency, of 8 bits)
    shown: tuple[float, float] | Literal["image"] | None = None  # from black to white, if the file or its kind says so
    is_inverse: bool = False  # the lowest value is white
    greys: NDArray[np.uint8] | None = None  # as the file's own curve shows the values, if no range replaces it
