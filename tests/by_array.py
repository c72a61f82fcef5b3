"""Targets of plain arrays, for tests: their shape and type say which task they are of."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, Targets


def targets_of(array: NDArray[Any]) -> Targets:
    """Returns the targets of one label (whole numbers), of several (a table of 0 and 1 in float32), or numbers."""
    if array.ndim == 1:
        return Targets(ONE_LABEL, array)
    return Targets(NUMBERS if array.dtype == np.float64 else SEVERAL_LABELS, array)
