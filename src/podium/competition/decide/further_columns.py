"""What a column of the tables says beside its plain numbers, for a stack of trees (stack_fits.py).

- A date: the days since 1970, the day of the year, the weekday and the hour.
- A text: how many images of both tables have it, which also tells something of rare ones.
- A number: what it is relative to its group (a patient, a site): the difference to the group's mean, the ratio to it if
  no number is negative, and its rank in the group. An odd one among its own kind shows, whatever is usual in the group.

A group lies in one table whole, so nothing here is taken from the other images of a fold, and no label is used.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.tasks.ranks import average_ranks

Numbers = NDArray[np.float64]
Groups = NDArray[np.int64]

DATE = r"\d{4}[-/]\d{1,2}[-/]\d{1,2}"  # how a date begins, which may be followed by a time
LARGEST = 1e100  # the squares of larger numbers overflow
DATE_SHARE = 0.95  # of the cells that hold something: with fewer, a column is no column of dates


class Further(NamedTuple):
    train: Numbers  # [images, columns]
    test: Numbers


def further_columns(train: "pd.Series[str]", test: "pd.Series[str]", groups: tuple[Groups, Groups] | None) -> Further:
    """Returns the further columns of a column of text; `groups` are the numbers of the images' groups."""
    cells = [column.str.strip() for column in (train, test)]
    filled = (cells[0] != "").to_numpy()
    dates = [_dates_in(column) for column in cells]
    if filled.any() and np.isfinite(dates[0][0][filled]).mean() >= DATE_SHARE:
        return _beside_groups([days for days, *_ in dates], groups, dates)
    numbers = [numbers_in(column) for column in cells]
    if filled.any() and np.isfinite(numbers[0][filled]).all():
        return _beside_groups(numbers, groups, ([], []))
    counts = pd.concat(cells).value_counts()
    return Further(*(column.map(counts).to_numpy(np.float64)[:, None] for column in cells))


def numbers_in(column: "pd.Series[str]") -> Numbers:
    """Returns the numbers of a column of text; not a number where there is none, or one too large to compute with."""
    numbers: Numbers = pd.to_numeric(column.str.strip().replace("", np.nan), errors="coerce").to_numpy(np.float64)
    return np.where(np.abs(numbers) <= LARGEST, numbers, np.nan)


def _beside_groups(
    values: Sequence[Numbers], groups: tuple[Groups, Groups] | None, others: Sequence[Sequence[Numbers]]
) -> Further:
    """Returns what numbers of the training and the test table are relative to groups, and other columns beside them."""
    has_ratio = all((own[np.isfinite(own)] >= 0).all() for own in values)
    tables = [[np.nan_to_num(column) for column in own] for own in others]
    for table, own, numbers in zip(tables, values, groups or (), strict=False):
        table += relative_to_group(own, numbers, has_ratio)
    return Further(*(np.array(own).reshape(len(own), len(of)).T for own, of in zip(tables, values, strict=True)))


def _dates_in(column: "pd.Series[str]") -> list[Numbers]:
    """Returns days since 1970, the day of the year, the weekday and the hour; not a number where there is no date."""
    times = pd.to_datetime(column.where(column.str.match(DATE)), errors="coerce", format="mixed", utc=True)
    parts: list[Any] = [times.dt.day_of_year, times.dt.day_of_week, times.dt.hour]
    days = (times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
    return [part.to_numpy(np.float64) for part in (days, *parts)]


def relative_to_group(values: Numbers, groups: Groups, has_ratio: bool = False) -> list[Numbers]:
    """Returns the difference to the mean of the group, the rank in it from 0 to 1, and the ratio where it `has_ratio`.

    What is unknown is like the group's mean.
    """
    is_known, count = np.isfinite(values), int(groups.max(initial=-1)) + 1
    known, own = np.where(is_known, values, 0.0), groups
    sizes = np.bincount(own, is_known, count)
    means = (np.bincount(own, known, count) / sizes.clip(1))[own]
    difference = np.where(is_known, values - means, 0.0)
    columns = [difference, _ranks_in_groups(values, groups, is_known)]
    if has_ratio:
        columns.append(np.where(is_known & (means > 0), known / np.where(means > 0, means, 1.0), 1.0))
    return columns


def _ranks_in_groups(values: Numbers, groups: Groups, is_known: NDArray[np.bool_]) -> Numbers:
    """Returns the share of the group's known numbers below each, equal ones by half; a half where it is unknown."""
    ranks = np.full(len(values), 0.5)
    order = np.lexsort((values, groups))
    order = order[is_known[order]]
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for rows in np.split(order, starts[1:]) if len(order) else []:
        ranks[rows] = (average_ranks(values[rows]) - 0.5) / len(rows)
    return ranks
