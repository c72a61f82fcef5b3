"""Which stored images show the rows of a table: one for each row, or one for each of its boxes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Examples:
    positions: NDArray[np.int64]  # in the store, those of a row together, in the order of the rows
    counts: NDArray[np.int64]  # of each row: at least one

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Returns the index of the first one of each row."""
        ends: NDArray[np.int64] = np.cumsum(self.counts)
        return ends - self.counts

    @property
    def first(self) -> NDArray[np.int64]:
        """Returns the position of the first one of each row."""
        return self.positions[self.starts]

    @property
    def owners(self) -> NDArray[np.int64]:
        """Returns which row each one shows, counted from 0."""
        return np.repeat(np.arange(len(self.counts)), self.counts)
