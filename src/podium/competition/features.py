"""Reads what the tables say of an image beside its label: the columns that the card names as its features.

    features = ["age_approx", "sex"]      in the card; both the training table and the test table have these columns

`podium submit --blend stacked` learns from them, as numbers: a column of numbers has mean 0 and deviation 1 among the
training images, whose range the test images do not leave; any other column becomes a column of 0 and 1 for each of its
most frequent texts. A cell such as `abc` or `1e308` among numbers makes a column one of texts, which a note says.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.competition.find_tables import Sources, Table
from podium.errors import PodiumError
from podium.terminal import first_few, plural

Numbers = NDArray[np.float64]
MOST_TEXTS = 30  # of a column; rarer ones are like none
LARGEST = 1e100  # the squares of larger numbers overflow


@dataclass(frozen=True, eq=False)
class Features:
    names: tuple[str, ...]  # of the columns in the tables
    train: pd.DataFrame  # of text; the index holds the ids of the images
    test: pd.DataFrame  # the same, in the order of the test rows

    @cached_property
    def _encoded(self) -> tuple[pd.DataFrame, Numbers]:
        pairs = [_encode(self.train[name], self.test[name]) for name in self.names]
        train, test = (np.hstack(parts) for parts in zip(*pairs, strict=True))
        return pd.DataFrame(train, index=self.train.index), test

    def of_train(self, ids: Sequence[str]) -> Numbers:
        """Returns the numbers of these training images."""
        rows: Numbers = self._encoded[0].loc[list(ids)].to_numpy()
        return rows

    @property
    def of_test(self) -> Numbers:
        return self._encoded[1]

    def describe_odd_cells(self) -> list[str]:
        """Returns a line for each column of numbers that has cells which are none."""
        lines = []
        for name in self.names:
            is_odd, test_is_odd = (
                ((column.str.strip() != "") & np.isnan(_numbers_in(column))).to_numpy()
                for column in (self.train[name], self.test[name])
            )
            numbers = np.isfinite(_numbers_in(self.train[name])).sum()
            for part, odd, result in (
                (self.train, is_odd, "so the column counts as texts"),
                (self.test, test_is_odd & (not is_odd.any()), "which count as the mean"),
            ):
                if numbers > is_odd.sum() and odd.any():
                    cells = first_few(f"'{cell}' of {image}" for image, cell in part[name][odd].items())
                    lines.append(
                        f"the feature {name} has {plural(int(odd.sum()), 'cell')} without a number ({cells}), {result}"
                    )
        return lines

    @cached_property
    def sha256(self) -> str:
        """Returns the hash of the numbers."""
        digest = hashlib.sha256("\0".join(self.names).encode())
        for numbers in (self._encoded[0].to_numpy(), self.of_test):
            digest.update(np.ascontiguousarray(numbers).tobytes())
        return digest.hexdigest()


def read_train_features(sources: Sources, table: Table, rows: pd.DataFrame) -> pd.DataFrame | None:
    """Returns the features of the training rows, whose index holds the table's lines; None if the card names none."""
    names = _names_in_card(sources)
    if not names or not _has_columns(sources, table, names):
        return None
    return table.rows.loc[rows.index, names].set_axis(rows["id"].to_numpy())


def take_features(sources: Sources, test: pd.DataFrame) -> Features | None:
    """Returns the features of the training images and the test images; None if the card names none."""
    names, train = _names_in_card(sources), sources.train_features
    if not names or (train is None and "features" in sources.card.known):
        return None
    if train is None:
        raise PodiumError(
            f"{sources.card.path}: features are columns of the training table, and there is none; delete that line"
        )
    if not len(test):
        features = Features(tuple(names), train, pd.DataFrame(columns=names))
        sources.notes += features.describe_odd_cells()
        return features
    table = sources.read_table("test_table")
    if table is None:
        if "features" in sources.card.known:
            return None
        raise PodiumError(
            f"{sources.files.folder}: no table of test images, so their features are unknown; "
            + sources.card.advise('test_table = "NAME"', "no features")
        )
    if not _has_columns(sources, table, names):
        return None
    ids = test["id"]
    others = [column for column in table.rows.columns if column not in names]
    matches = {column: int(ids.isin(table.rows[column]).sum()) for column in others}
    best = max(matches, key=matches.__getitem__, default="")
    if matches.get(best, 0) < len(ids):
        raise PodiumError(
            f"{table.path}: no column has the ids of all test images, so their features are unknown; add the missing"
            " rows, or " + sources.card.advise("no features")
        )
    by_id = table.rows.drop_duplicates(best).set_index(best)[names]
    features = Features(tuple(names), train, by_id.loc[ids])
    sources.notes += features.describe_odd_cells()
    return features


def _names_in_card(sources: Sources) -> list[str]:
    return list(dict.fromkeys(sources.card.get("features", ())))


def _has_columns(sources: Sources, table: Table, names: list[str]) -> bool:
    """Returns whether the table has all of these columns; raises if it must, because the user's card names them."""
    missing = [name for name in names if name not in table.rows]
    if not missing:
        return True
    problem = f"{table.path.name} has no column {first_few(map(repr, missing))}"
    if "features" not in sources.card.known:
        columns = first_few(table.rows.columns)
        raise PodiumError(
            f"{sources.card.path}: {problem}, which features names; its columns are {columns}; correct that name"
        )
    sources.notes.append(f"{problem}, so this competition's features are not used")
    return False


def _encode(train: "pd.Series[str]", test: "pd.Series[str]") -> tuple[Numbers, Numbers]:
    """Returns the columns of numbers that stand for a column of text."""
    cells = [column.str.strip() for column in (train, test)]
    numbers = [_numbers_in(column) for column in cells]
    is_blank = [(column == "").to_numpy() for column in cells]
    if np.isfinite(numbers[0][~is_blank[0]]).all() and not is_blank[0].all():
        known = numbers[0][~is_blank[0]]
        mean, deviation = known.mean(), known.std() or 1.0
        inside = [column.clip(known.min(), known.max()) for column in numbers]  # nothing is learned beyond
        scaled = [np.nan_to_num((column - mean) / deviation) for column in inside]
        columns = [[scaled_column, blanks] for scaled_column, blanks in zip(scaled, is_blank, strict=True)]
        if not is_blank[0].any():  # nothing can be learned of a blank
            columns = [[scaled_column] for scaled_column in scaled]
    else:
        counts = cells[0][~is_blank[0]].value_counts()
        texts = sorted(counts.index, key=lambda text: (-counts[text], text))[:MOST_TEXTS]
        columns = [[(column == text).to_numpy() for text in texts] for column in cells]
    return _side_by_side(columns[0], len(train)), _side_by_side(columns[1], len(test))


def _numbers_in(column: "pd.Series[str]") -> Numbers:
    """Returns the numbers of a column of text; not a number where there is none, or one too large to compute with."""
    numbers: Numbers = pd.to_numeric(column.str.strip().replace("", np.nan), errors="coerce").to_numpy(np.float64)
    return np.where(np.abs(numbers) <= LARGEST, numbers, np.nan)


def _side_by_side(columns: list[Any], row_count: int) -> Numbers:
    return np.array(columns, np.float64).reshape(len(columns), row_count).T
