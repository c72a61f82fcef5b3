"""What a stack learns from: the logits of the runs, and what the tables say of each image.

A linear stack learns from the card's features as plain numbers. One of trees learns also from the further ones
(further_columns.py), and from what an image's mean logits are relative to those of its group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.competition.decide.further_columns import relative_to_group
from podium.tasks.pool import pool_mean

Probs = NDArray[np.float64]  # [images, classes]; of several runs [runs, images, classes]
Inputs = NDArray[np.float64]  # [images, columns]: see `inputs_of`
Ints = NDArray[np.int64]

RUNS, BESIDE_GROUP = "the runs", "the runs, beside the group"  # sources of inputs, as the features' names are
CONSTANT = ""


@dataclass(frozen=True)
class TableRows:
    plain: Inputs
    further: Inputs
    groups: Ints | None = None  # the number of each image's group
    sources: tuple[str, ...] = ()  # which column of the tables each plain and further number comes from

    def __getitem__(self, rows: NDArray[Any]) -> "TableRows":
        groups = None if self.groups is None else self.groups[rows]
        return replace(self, plain=self.plain[rows], further=self.further[rows], groups=groups)

    def pooled(self, answers: Ints, count: int) -> "TableRows":
        """Returns the rows of so many answers: of several images, their mean, and the group of the first one."""
        groups = None
        if self.groups is not None:
            groups = self.groups[np.unique(answers, return_index=True)[1]]
        plain, further = (pool_mean(numbers, answers, count) for numbers in (self.plain, self.further))
        return TableRows(plain, further, groups, self.sources)

    def whole_groups(self, order: Ints, count: int) -> Ints:
        """Returns about as many images as `count`, the first ones in this order, with all others of their groups."""
        if self.groups is None:
            return order[:count]
        place = np.full(self.groups.max() + 1, len(order))
        np.minimum.at(place, self.groups[order], np.arange(len(order)))
        return order[np.argsort(place[self.groups[order]], kind="stable")][:count]


def inputs_of(logits: Sequence[Probs] | Probs, rows: TableRows | None, has_further: bool = False) -> Inputs:
    """Returns what the correction is computed from: the mean of the logits, each run's, what the tables say, and 1."""
    mean = np.mean(logits, axis=0)
    columns = [mean, *(logits if len(logits) > 1 else [])]
    if rows is not None:
        columns.append(rows.plain)
    if rows is not None and has_further:
        columns += [rows.further, *_beside_group(mean, rows)]
    return np.hstack([*columns, np.ones((len(mean), 1))])


def sources_of(run_count: int, classes: int, rows: TableRows | None, has_further: bool) -> list[str]:
    """Returns where each of the inputs comes from: the runs, or a column of the tables."""
    sources = [RUNS] * classes * (1 if run_count == 1 else 1 + run_count)
    if rows is not None:
        width = None if has_further else rows.plain.shape[1]
        sources += rows.sources[:width]
        if has_further and rows.groups is not None:
            sources += [BESIDE_GROUP] * (2 * classes + 1)
    return [*sources, CONSTANT]


def _beside_group(mean: Probs, rows: TableRows) -> list[Inputs]:
    """Returns the differences to the mean of the group and the ranks in it, by class, and the size of the group."""
    if rows.groups is None:
        return []
    groups = np.unique(rows.groups, return_inverse=True)[1]
    columns = [relative_to_group(column, groups) for column in mean.T]
    sizes = np.bincount(groups)[groups].astype(np.float64)
    return [np.stack([*(column for pair in columns for column in pair), sizes], 1)]
