"""Reads the training and test rows with a reader of the project's own, and checks them like those of tables.

extend.py registers readers; docs/extend.md has an example.
"""

from functools import partial
from typing import Any, NamedTuple, NoReturn

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.find.facts import Facts
from podium.competition.find.table import Table
from podium.options.extensions.extend import READERS, file_of

TRAIN_COLUMNS, TEST_COLUMNS = ("id", "target", "image"), ("id", "image")


class ReaderRows(NamedTuple):
    """What a reader returned."""

    train: pd.DataFrame  # id, target, image, and group if it gives groups
    test: pd.DataFrame | None  # id, image; None: the reader leaves them to Podium
    columns: pd.DataFrame  # all that it gave of the training images, as text, if they are kept
    test_columns: pd.DataFrame  # the same of the test images
    origin: str
    notes: tuple[str, ...]


def read_with_extension(facts: Facts, sample: Table | None, with_columns: bool) -> ReaderRows | None:
    """Returns the training rows and, if the reader gives them, the test rows; None if no reader knows this layout.

    The first reader that returns rows decides.
    """
    for name, reader in READERS.items():
        result = reader(facts.files.folder)
        if result is None:
            continue
        refuse = partial(_refuse, f"{file_of(reader)}: the reader {name}")
        if not (isinstance(result, tuple) and len(result) == 2):
            refuse("must return None or two data frames, (train, test)")
        given, test = result
        has_group = isinstance(given, pd.DataFrame) and "group" in given
        notes = []
        if facts.card.get("group_column") and not has_group:
            problem = f"{file_of(reader)}: the reader {name} gives no column group"
            refusal = f"{problem}, but a group column is asked for; correct it"
            notes.append(facts.card.drop("group_column", f"{problem}, so there are no groups", refusal))
        train = _checked(facts, given, (*TRAIN_COLUMNS, *(["group"] if has_group else [])), "train", refuse)
        rows = None if test is None else _checked(facts, test, TEST_COLUMNS, "test", refuse)
        rows = None if rows is None else _in_order_of_sample(sample, rows, refuse)
        columns, test_columns = (_as_text(own) if with_columns else pd.DataFrame() for own in (given, test))
        return ReaderRows(train, rows, columns, test_columns, f"the reader {name} gives them", tuple(notes))
    return None


def _as_text(given: pd.DataFrame | None) -> pd.DataFrame:
    """Returns all columns as text, by the ids of the images."""
    if given is None:
        return pd.DataFrame()
    cells = {str(name): ["" if pd.isna(cell) else str(cell) for cell in given[name]] for name in given}
    return pd.DataFrame(cells, index=cells["id"], dtype=object)


def _refuse(who: str, problem: str) -> NoReturn:
    raise PodiumError(f"{who} {problem}; correct it")


def _checked(facts: Facts, rows: Any, columns: tuple[str, ...], role: str, refuse: Any) -> pd.DataFrame:
    """Returns these columns as text; refuses missing cells, repeated ids and images, and images that do not exist."""
    if not isinstance(rows, pd.DataFrame) or not len(rows) or set(columns) - set(rows.columns):
        refuse(f"must give {role} as a data frame with rows and the columns {', '.join(columns)}")
    rows = rows[list(columns)].reset_index(drop=True)
    for column in columns:
        is_blank = rows[column].isna() | (rows[column].astype(str).str.strip() == "")
        if is_blank.any() and column != "group":
            refuse(f"gives no {column} in row {is_blank.idxmax()} of {role}")
    cells = {column: ["" if pd.isna(cell) else str(cell) for cell in rows[column]] for column in columns}
    rows = pd.DataFrame(cells, dtype=object)
    for column in ("id", "image"):
        repeated = rows[column][rows[column].duplicated()]
        if len(repeated):
            refuse(f"gives the {column} '{repeated.iloc[0]}' twice in {role}")
    files = facts.files
    missing = rows["image"][~rows["image"].isin({*files.images, *files.numbers, *files.others})]
    if len(missing):
        where = f"{len(missing):,} of {len(rows):,} images of {role} that are not below {files.folder}"
        refuse(f"names {where}: {first_few(missing)}")
    return rows


def _in_order_of_sample(sample: Table | None, test: pd.DataFrame, refuse: Any) -> pd.DataFrame:
    """Returns the test rows in the order of the sample submission, if there is one."""
    if sample is None:
        return test
    ids = sample.rows.iloc[:, 0]
    other_ids = sorted(set(ids) ^ set(test["id"]))
    if other_ids:
        refuse(f"gives other test ids than {sample.path.name}: {first_few(other_ids)}")
    return test.set_index("id").loc[list(ids)].reset_index()
