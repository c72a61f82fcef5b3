"""Reads what the tables say of an image beside its label: the columns that the card names as its features.

    features = ["age_approx", "sex"]      in the card; both the training table and the test table have these columns

Without that setting, many columns of numbers that both tables have are taken, as a guess: those of leaves, measured.

`podium submit --blend stacked` learns from them, as numbers: a column of numbers has mean 0 and deviation 1 among the
training images, whose range the test images do not leave; any other column becomes a column of 0 and 1 for each of its
most frequent texts. A cell such as `abc` or `1e308` among numbers makes a column one of texts, which a note says.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, plural
from podium.competition.card import Card
from podium.competition.decide.further_columns import Groups, further_columns, numbers_in
from podium.competition.decide.layout import Layout
from podium.competition.decide.tables import Tables
from podium.competition.find.table import Table

HEAD = 200  # rows that show whether a column holds numbers
Numbers = NDArray[np.float64]
MOST_TEXTS = 30  # of a column; rarer ones are like none
MANY = 8  # columns of numbers that are guessed to be features: a few are rather widths, dates or counts


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

    @cached_property
    def sources(self) -> list[str]:
        """Returns which column of the tables each of the numbers comes from."""
        return [name for name in self.names for _ in range(_encode(self.train[name], self.test[name])[0].shape[1])]

    def further(self, groups: "tuple[Groups, Groups] | None") -> tuple[pd.DataFrame, Numbers, list[str]]:
        """Returns what only trees learn from (further_columns.py): of training images, of test images, the sources."""
        columns = [further_columns(self.train[name], self.test[name], groups) for name in self.names]
        sources = [name for name, own in zip(self.names, columns, strict=True) for _ in range(own.train.shape[1])]
        train, test = (np.hstack(tables) for tables in zip(*columns, strict=True))
        return pd.DataFrame(train, index=self.train.index), test, sources

    def describe_odd_cells(self) -> list[str]:
        """Returns a line for each column of numbers that has cells which are none."""
        lines = []
        for name in self.names:
            is_odd, test_is_odd = (
                ((column.str.strip() != "") & np.isnan(numbers_in(column))).to_numpy()
                for column in (self.train[name], self.test[name])
            )
            numbers = np.isfinite(numbers_in(self.train[name])).sum()
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


def named_columns(card: Card, key: str, train: Table | None) -> tuple[list[str], str]:
    """Returns the columns of the training table that this setting names, and a note where the table lacks them."""
    names = list(dict.fromkeys(card.get(key, ())))
    if not names:
        return [], ""
    if train is None:
        problem = f"{key} names columns of the training table, and there is none"
        return [], card.drop(key, f"{problem}, so they are not used", f"{card.path}: {problem}; delete that line")
    note = note_on_missing_columns(card, key, train, names)
    return ([], note) if note else (names, "")


def guess_features(
    card: Card, table: Table, others: Iterable[str], test: Callable[[], Table | None]
) -> tuple[list[str], str]:
    """Returns many columns of numbers that both tables have, and a note; none if the card has the setting.

    `others` are columns that hold something else.
    """
    if "features" in card:
        return [], ""
    columns = [str(name) for name in table.rows.columns if name not in set(others)]
    head = table.rows[columns].head(HEAD)
    numeric = [name for name in columns if np.isfinite(numbers_in(head[name])).all() and head[name].nunique() > 1]
    if len(numeric) < MANY:
        return [], ""
    listing = None
    with suppress(PodiumError):
        listing = test()
    if listing is None or not set(numeric) <= set(listing.rows):
        return [], ""
    note = f"{len(numeric)} columns of numbers are features of the images, a guess: a blend uses them where that pays"
    return numeric, f"{note} ({first_few(numeric, 3)}); " + card.advise("features = [] for none")


def read_features(
    tables: Tables, layout: Layout, lines: pd.DataFrame, test: pd.DataFrame
) -> tuple[Features | None, list[str]]:
    """Returns the features of the training images and the test images, None if there are none; and notes.

    The index of `lines` holds the lines of the training table, its column id the ids of the images.
    """
    names, card = list(layout.train.features), layout.card
    if not names or tables.train is None:
        return None, []
    if "features" not in card:  # a guess, which must not stop anybody
        card = card.with_guess("features", names, "a guess")
    train = tables.train.rows.loc[lines.index, names].set_axis(lines["id"].to_numpy())
    if not len(test):
        features = Features(tuple(names), train, pd.DataFrame(columns=names))
        return features, features.describe_odd_cells()
    listing = tables.test
    if listing is None:
        problem = "no table of test images, so their features are unknown"
        advice = card.advise('test_table = "NAME"', "no features")
        return None, [card.drop("features", problem, f"{tables.facts.files.folder}: {problem}; {advice}")]
    if note := note_on_missing_columns(card, "features", listing, names):
        return None, [note]
    try:
        rows = rows_of_images(card, listing, test["id"], names)
    except PodiumError as error:
        if "features" not in card.guessed:
            raise
        return None, [f"the columns of features are not used: {error}"]
    features = Features(tuple(names), train, rows)
    return features, features.describe_odd_cells()


def rows_of_images(card: Card, table: Table, ids: "pd.Series[str]", names: list[str]) -> pd.DataFrame:
    """Returns the features of these images, by the column of the table that has all of their ids."""
    others = [column for column in table.rows.columns if column not in names]
    matches = {column: int(ids.isin(table.rows[column]).sum()) for column in others}
    best = max(matches, key=matches.__getitem__, default="")
    if matches.get(best, 0) < len(ids):
        raise PodiumError(
            f"{table.path}: no column has the ids of all test images, so their features are unknown; add the missing"
            " rows, or " + card.advise("no features")
        )
    return table.rows.drop_duplicates(best).set_index(best)[names].loc[ids]


def note_on_missing_columns(card: Card, key: str, table: Table, names: list[str]) -> str:
    """Returns a note if the table lacks some of these columns; raises if the user's card names them."""
    missing = [name for name in names if name not in table.rows]
    if not missing:
        return ""
    problem = f"{table.path.name} has no column {first_few(map(repr, missing))}"
    columns = first_few(table.rows.columns)
    refusal = f"{card.path}: {problem}, which {key} names; its columns are {columns}; correct that name"
    if key in card.typed:  # by --region, which may name a column of boxes
        refusal = f"--region: there is no such file, and {problem}; its columns are {columns}; correct that name, or"
        refusal += " give a CSV file of boxes"
    return card.drop(key, f"{problem}, so this competition's {key} are not used", refusal)


def _encode(train: "pd.Series[str]", test: "pd.Series[str]") -> tuple[Numbers, Numbers]:
    """Returns the columns of numbers that stand for a column of text."""
    cells = [column.str.strip() for column in (train, test)]
    numbers = [numbers_in(column) for column in cells]
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


def _side_by_side(columns: list[Any], row_count: int) -> Numbers:
    return np.array(columns, np.float64).reshape(len(columns), row_count).T
