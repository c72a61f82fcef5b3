"""Lays several pictures of one thing in a grid, which is then one picture: four are two by two."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def shape_of_grid(count: int) -> tuple[int, int]:
    """Returns the rows and columns of a grid that is as square as possible, and not higher than wide."""
    columns = math.ceil(math.sqrt(count))
    return -(-count // columns), columns


def lay_in_grid(pictures: Sequence[NDArray[Any]], empty: float) -> NDArray[Any]:
    """Returns the pictures row by row, in cells as large as the largest; what no picture covers is `empty`."""
    rows, columns = shape_of_grid(len(pictures))
    height, width = (max(picture.shape[axis] for picture in pictures) for axis in (0, 1))
    grid = np.full((rows * height, columns * width, *pictures[0].shape[2:]), empty, pictures[0].dtype)
    for number, picture in enumerate(pictures):
        top, left = number // columns * height, number % columns * width
        grid[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return grid
