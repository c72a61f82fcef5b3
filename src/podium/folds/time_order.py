"""Splits by time: each fold validates a block of images, and its model learns from earlier images only.

    podium folds --by-time COLUMN [--k 5] [--gap N]

The images are sorted by a column of the training table, of numbers or dates, and cut into K + 1 blocks of about equal
size. Images of one time stay in one block. The first block is only trained on. Fold k validates block k + 1 and trains
on all images before that block, except those of the last N days (of numbers: of the last N of the column's unit).

Duplicates and images of a group may have different times. Each is validated in its own block. All of them are trained
on from the fold on that may learn from the latest of them, so no fold sees one and validates another.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, plural
from podium.competition.load import Competition
from podium.folds.folds import Folds, Ints, Mask

YEARS = (19000101, 21001231)  # a column of eight digits holds dates if all its numbers are among these


@dataclass(frozen=True, eq=False)
class TimeOrder:
    column: str
    values: NDArray[np.float64]  # of each training image: days, or numbers
    has_dates: bool
    gap: float  # days, or the unit of the numbers

    def late_folds(self, folds: Folds, is_good: Mask) -> list[str]:
        """Returns the folds that train on an image which is not earlier than those they validate, by the gap."""
        late = []
        for fold in range(folds.count):
            validated = self.values[folds.validates(fold) & is_good]
            trained = self.values[folds.trains(fold) & is_good]
            if len(validated) and (trained >= validated.min() - self.gap).any():
                late.append(f"fold {fold}")
        return late

    def rolling_folds(self, is_good: Mask, groups: Ints, k: int) -> Folds:
        """Returns K folds of the images that can be read; `groups` are the first images of their groups."""
        starts = self._starts_of_blocks(is_good, k)
        block = np.searchsorted(starts, self.values, side="right")
        latest = np.full(len(groups), -np.inf)
        np.maximum.at(latest, groups[is_good], self.values[is_good])
        latest = np.maximum(latest[groups], self.values)
        trained_from = np.searchsorted(starts - self.gap, latest, side="right")
        folds = Folds(np.where(is_good, block - 1, -1), trained_from, k)
        idle = [fold for fold in range(k) if not (folds.trains(fold) & is_good).any()]
        if idle:
            remedy = "a smaller --gap or fewer folds (--k)" if self.gap else "fewer folds (--k) or smaller groups"
            raise PodiumError(f"--by-time {self.column}: no image is early enough for fold {idle[0]}; use {remedy}")
        return folds

    def _starts_of_blocks(self, is_good: Mask, k: int) -> NDArray[np.float64]:
        """Returns the first times of the blocks after the first one."""
        times, counts = np.unique(self.values[is_good], return_counts=True)
        if len(times) < k + 1:
            remedy = f"use fewer folds: --k {len(times) - 1}" if len(times) > 1 else "name another column"
            raise PodiumError(
                f"--by-time {self.column}: {plural(k, 'fold')} need {k + 1} different times, but the images have"
                f" {len(times)}; {remedy}"
            )
        before = np.append(0, np.cumsum(counts))  # images before each time
        first, starts = 0, []
        for cut in range(1, k + 1):
            nearest = int(np.abs(before[:-1] - before[-1] * cut / (k + 1)).argmin())
            first = min(max(nearest, first + 1), len(times) - 1 - (k - cut))
            starts.append(times[first])
        return np.array(starts)


def read_times(competition: Competition, column: str, gap: float) -> TimeOrder:
    """Reads the times of the training images from a column of the training table."""
    columns = competition.columns
    assert columns is not None
    if column not in columns:
        names = f"its columns are {first_few(columns.columns)}" if len(columns.columns) else "there is no such table"
        raise PodiumError(
            f"--by-time {column} (given, or in folds.json): the training table of {competition.slug} has no such"
            f" column; {names}: correct it"
        )
    cells = columns[column].loc[competition.train["id"]].str.strip()
    blank = cells.index[cells == ""]
    if len(blank):
        raise PodiumError(
            f"--by-time {column}: {plural(len(blank), 'training image')} without a time, '{blank[0]}' first; fill in"
            " that column, or drop these images with --corrections"
        )
    values, has_dates = _read_cells(cells, column)
    return TimeOrder(column, values, has_dates, gap)


def _read_cells(cells: "pd.Series[str]", column: str) -> tuple[NDArray[np.float64], bool]:
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(np.float64)
    are_numbers = bool(np.isfinite(numbers).all())
    have_year_first = are_numbers and YEARS[0] <= numbers.min() and numbers.max() <= YEARS[1]
    if are_numbers and not (have_year_first and cells.str.fullmatch("[0-9]{8}").all()):
        return numbers, False
    pattern = r"^([0-9]{4})[-:/.]?([0-9]{2})[-:/.]?([0-9]{2})"  # cameras write 2024:03:31
    texts = cells.str.replace(pattern, r"\1-\2-\3", regex=True)
    dates = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    wrong = cells.index[dates.isna()]
    if len(wrong) and are_numbers:
        return numbers, False
    if len(wrong):
        raise PodiumError(
            f"--by-time {column}: '{cells[wrong[0]]}' of the image '{wrong[0]}' is neither a number nor a date such as"
            " 2024-03-31 or 2024-03-31 14:05; write all times of that column in one of these forms"
        )
    days = (dates - pd.Timestamp("1970-01-01", tz="UTC")) / pd.Timedelta(days=1)
    return days.to_numpy(np.float64), True
