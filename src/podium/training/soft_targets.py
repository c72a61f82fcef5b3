"""Targets that are no labels: probabilities of the classes, and numbers that are learned beside them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.tasks.task import Targets

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """Rows of numbers that are made when they are needed: those of all images at once may not fit into memory."""

    labels: Targets  # of the first images
    soft: Floats  # [others, classes]
    place: Ints  # of each image in `soft`; -1: its label counts
    also: Floats | None = None  # [images, numbers]: what else they teach or show; not a number where it is unknown

    def __getitem__(self, images: Sequence[int] | Ints) -> Floats:
        numbers = np.asarray(images)
        places, classes = self.place[numbers], self.soft.shape[1]
        is_label = places < 0
        rows = np.empty((len(numbers), classes), np.float32)
        rows[~is_label] = self.soft[places[~is_label]]
        rows[is_label] = rows_of(self.labels[numbers[is_label]], classes)
        return rows if self.also is None else np.hstack([rows, self.also[numbers]])


@dataclass(frozen=True, eq=False)
class Cleaned:
    """Training images that a fold leaves out, and those that teach something else than their labels.

    Rows are those of the training table, in ascending order.
    """

    left_out: Ints
    rows: Ints
    targets: Floats  # [rows, classes]

    def places_of(self, rows: Ints) -> Ints:
        """Returns where the targets of these rows stand; -1 for those whose label counts."""
        if not len(self.rows):
            return np.full(len(rows), -1)
        places = np.searchsorted(self.rows, rows).clip(max=len(self.rows) - 1)
        return np.where(self.rows[places] == rows, places, -1)


def rows_of(targets: Targets, classes: int) -> Floats:
    """Returns a row for each image: 1 for its labels and 0 for the others, the shares of votes, or its numbers."""
    values = targets.truth(classes) if targets.task.are_labels else targets.values
    return np.asarray(values, np.float32)
