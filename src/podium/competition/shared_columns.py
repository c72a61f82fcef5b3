"""Reads the columns that the training table and the test table share, for a decision of the project's own.

A column of answers is none of them: the test table may hold blanks there, or a guess, and the training table the truth.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from podium.basics.terminal import first_few
from podium.competition.card import Card
from podium.competition.decide.answer_groups import Answers
from podium.competition.decide.guess_layout import guess_layout
from podium.competition.decide.layout import Layout
from podium.competition.decide.read_with_extension import ReaderRows, read_with_extension
from podium.competition.decide.tables import Tables
from podium.competition.find.facts import Facts
from podium.competition.find.find_files import find_files


class SharedColumns(NamedTuple):
    """The same columns of both tables, as text; of several images of an answer, the cells of the first one."""

    train: pd.DataFrame  # the index holds the ids of the images, or of the answers
    test: pd.DataFrame  # in the order of the submission
    lack: str = ""  # why there are no columns

    def describe(self) -> str:
        return self.lack or f"the table has the columns {first_few(self.train)}"

    @property
    def test_sha256(self) -> str:
        return hashlib.sha256(self.test.to_csv().encode()).hexdigest()


def read_shared_columns(card: Card, folder: Path, answers: Answers | None, test_ids: Sequence[str]) -> SharedColumns:
    """Reads the tables again: to keep them from the start would cost memory that no other command needs."""
    tables = Tables(Facts(card, find_files(folder)))
    reader = read_with_extension(tables.facts, tables.sample, True)
    layout = guess_layout(tables, reader)
    train, test = _of_train(tables, layout, reader), _of_test(tables, reader, test_ids)
    if isinstance(train, str) or isinstance(test, str):
        lack = train if isinstance(train, str) else str(test)
        return SharedColumns(pd.DataFrame(), pd.DataFrame(index=list(test_ids)), f"the table has no columns: {lack}")
    if answers:
        train = _first_of_each(train, [answers.train.get(image, "") for image in train.index])
    truth = {"target", *layout.train.targets.columns, *(tables.sample.answer_columns if tables.sample else ())}
    names = [name for name in train if name in test and name not in truth]
    lack = "" if names else "the table has no columns: the training table and the test table share none"
    return SharedColumns(train[names], test[names], lack)


def _of_train(tables: Tables, layout: Layout, reader: ReaderRows | None) -> pd.DataFrame | str:
    """Returns the columns by the images' ids, or why there are none."""
    if reader:
        return reader.columns
    if layout.train.labels_in != "table" or tables.train is None:
        return "there is no training table"
    return _first_of_each(tables.train.rows, tables.train.rows[layout.train.id_column])


def _of_test(tables: Tables, reader: ReaderRows | None, ids: Sequence[str]) -> pd.DataFrame | str:
    """Returns the columns of these rows of the submission, or why there are none."""
    if reader and reader.test is not None:
        return reader.test_columns.loc[list(ids)]
    if tables.test is None:
        return "there is no test table"
    rows = tables.test.rows
    names = next((name for name in rows if set(ids) <= set(rows[name])), None)
    if names is None:
        return f"no column of {tables.test.path.name} has all ids of the submission"
    return _first_of_each(rows, rows[names]).loc[list(ids)]


def _first_of_each(rows: pd.DataFrame, ids: Sequence[str]) -> pd.DataFrame:
    """Returns the first row of each id."""
    named = rows.set_axis(pd.Index(ids, name="id"))
    return named[~named.index.duplicated()]
