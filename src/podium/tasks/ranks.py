"""Ranks of numbers, as scipy.stats gives them, whose import takes longer than most commands."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def average_ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the ranks from 1 on within each column; equal values share the mean of theirs."""
    if values.ndim > 1:
        return np.stack([average_ranks(column) for column in values.T], 1)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(values)])  # of each run of equal values
    counts = np.diff(np.append(first, len(values)))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(first + (counts + 1) / 2, counts)
    return ranks
