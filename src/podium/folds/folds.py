"""The folds of the training images: which of them a fold validates, and which its model learns from.

Every stage asks a `Folds`; none compares the numbers of folds itself. In an ordinary split, a fold trains on all images
that it does not validate. In a rolling split, it trains on earlier images only: each image has a first fold that trains
on it, and all later folds do, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Folds:
    of_image: Ints  # the fold that validates each image; -1: none does
    trained_from: Ints  # the first fold that trains on each image; `count`: none does
    count: int

    @classmethod
    def of(cls, of_image: Ints, trained_from: Ints | None = None) -> "Folds":
        """Returns the folds of these numbers; without `trained_from`, every fold trains on all other images."""
        first = np.zeros(len(of_image), np.int64) if trained_from is None else trained_from
        count = int(of_image.max()) + 1
        return cls(of_image, np.minimum(first, count), count)

    def __len__(self) -> int:
        return len(self.of_image)

    @property
    def is_rolling(self) -> bool:
        """Whether some fold does not train on all images that it does not validate."""
        return bool((self.is_used & (self.trained_from > 0)).any())

    @property
    def is_used(self) -> Mask:
        """Marks the images that some fold trains on or validates."""
        return np.asarray((self.of_image >= 0) | (self.trained_from < self.count))

    def trains(self, fold: int) -> Mask:
        """Marks the images that the fold's model learns from; a number beyond the folds learns from all used ones."""
        if fold >= self.count:
            return np.asarray(self.is_used & (self.of_image != fold))
        return np.asarray((self.of_image != fold) & (self.trained_from <= fold))

    def validates(self, fold: int) -> Mask:
        """Marks the images that the fold holds out."""
        return np.asarray(self.of_image == fold)

    def sizes(self, folds: Sequence[int], unit: int) -> list[float]:
        """Returns how many images these folds train on, in units of another fold's number."""
        if not self.is_rolling:
            return [1.0] * len(folds)
        return [float(self.trains(fold).sum() / self.trains(unit).sum()) for fold in folds]

    def some(self, is_chosen: Mask) -> "Folds":
        """Returns the folds of some of the images."""
        return replace(self, of_image=self.of_image[is_chosen], trained_from=self.trained_from[is_chosen])

    def without(self, is_left_out: Mask) -> "Folds":
        """Returns folds that neither train on these images nor validate them."""
        return replace(
            self,
            of_image=np.where(is_left_out, -1, self.of_image),
            trained_from=np.where(is_left_out, self.count, self.trained_from),
        )

    def inside(self, fold: int, learned: Ints, judging: Ints) -> "Folds":
        """Returns folds of which one trains on some of its training rows and validates others; the rest is unused."""
        is_other = np.ones(len(self), np.bool_)
        is_other[np.concatenate([learned, judging])] = False
        rest = self.without(is_other)
        rest.of_image[judging] = fold
        return rest

    def fault(self) -> str:
        """Returns what makes these folds useless, and the remedy; "" if nothing does."""
        empty = [fold for fold in range(self.count) if not self.validates(fold).any()]
        if empty or not self.count:
            return f"no image in fold {empty[0] if empty else 0}; number the folds from 0 without gaps"
        if self.validates(0).all():
            return "all images are in fold 0, so none is left to train on; make at least two folds"
        idle = [fold for fold in range(self.count) if not self.trains(fold).any()]
        return f"fold {idle[0]} trains on no image; correct the column trained_from" if idle else ""

    def judge_within(self, fold: int, rows: Ints) -> int | None:
        """Returns the fold whose images, among these training rows of `fold`, may judge a model of the others.

        That is the next fold or, in a rolling split, the one before. None: these rows have no two such parts.
        """
        present = set(self.of_image[rows].tolist())
        others = [other for step in range(1, self.count) if (other := (fold + step) % self.count) in present]
        if self.is_rolling:
            others = [other for other in others if self.trains(other)[rows].any()]
            return others[-1] if others else None
        return others[0] if len(others) > 1 else None
