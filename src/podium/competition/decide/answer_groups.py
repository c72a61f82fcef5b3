"""Finds out whether a row of the submission is the answer for several images, such as those of a patient.

Then the sample submission's ids name no images. They stand in the test table (`patient_id`), beside the column that
does, and in the training table, where several columns may make them (`patient_id` and `laterality` make `10042_L`).
"""

from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from podium.basics.errors import MissingFiles, PodiumError
from podium.basics.terminal import first_few
from podium.competition.decide.layout import JOIN, AnswerColumns
from podium.competition.find.facts import Facts
from podium.competition.find.match_images import FIRST_ROWS, ImagePool
from podium.competition.find.table import Table

DECISIVE, OTHER = "1", "0"  # labels that images of an answer may have both: one image with the first is enough


class Answers(NamedTuple):
    """Which images each answer is for."""

    column: str  # what the ids are called
    train: dict[str, str]  # the answer's id of each training image, by the image's id
    test: list[str]  # the answer's id of each test image
    ids: list[str]  # in the order of the submission


def list_images_of_groups(facts: Facts, sample: Table | None, table: Table) -> Table:
    """Returns the training table with a row for each image, if its rows are groups whose images another table lists.

    So it is with Yelp's restaurants: train.csv holds their labels, and train_photo_to_biz_ids.csv their photos.
    """
    if sample is None or sample.long is not None or sample.ids_name_images:
        return table
    key, pool = str(sample.rows.columns[0]), facts.images("train")
    if key not in table.rows:
        return table
    for name in facts.files.tables:
        path = facts.files.folder / name
        head = None if path in (table.path, sample.path) else facts.head_of(name, FIRST_ROWS)
        column = None if head is None else _column_of_images(head.drop(columns=list(table.rows), errors="ignore"), pool)
        if head is not None and column is not None and key in head and head[key].duplicated().any():
            rows = facts.rows_of(name)[[column, key]]
            joined = rows.reset_index().merge(table.rows, on=key).set_index("line")
            if joined.empty:
                continue
            note = f"the images of each {key} of {table.path.name} are those in {name}"
            return table._replace(path=path, rows=joined, files=(*table.files, name)).noting(note)
    return table


def _column_of_images(head: pd.DataFrame, pool: ImagePool) -> str | None:
    """Returns the column whose cells all name images."""
    return next((str(column) for column in head if all(pool.find_files(head[column]).values())), None)


def find_answer_columns(
    pool: ImagePool, sample: Table | None, train: Table, test: Callable[[], Table | None]
) -> AnswerColumns | None:
    """Returns the columns, or None if a row of the submission is the answer for one image."""
    if sample is None or sample.long is not None or sample.ids_name_images:
        return None
    ids = sample.rows.iloc[:, 0]
    if all(pool.find_files(ids.head(FIRST_ROWS)).values()):
        return None
    listing = test()
    if listing is None or ids.name not in listing.rows or listing.rows.shape[1] < 2:
        return None
    image_column = pool.find_column(listing.rows.drop(columns=str(ids.name)))
    if image_column is None:
        return None
    columns = _columns_that_make(listing.rows, train.rows, str(ids.name), image_column)
    if columns is None and listing.rows[ids.name].duplicated().any():
        raise PodiumError(
            f"{train.path}: no columns that make the ids '{ids.name}' of {listing.path.name}, whose rows are images;"
            f" its columns are {first_few(train.rows.columns)}; add a column '{ids.name}' to it"
        )
    if columns is None or not ids_of_answers(train.rows, columns).duplicated().any():
        return None  # the ids count rows
    return AnswerColumns(str(ids.name), image_column, tuple(columns))


def ids_of_answers(train: pd.DataFrame, columns: Sequence[str]) -> "pd.Series[str]":
    """Returns the answer's id of each row of the training table."""
    return train[list(columns)].agg(JOIN.join, axis=1)


def _columns_that_make(test: pd.DataFrame, train: pd.DataFrame, id_column: str, image_column: str) -> list[str] | None:
    """Returns the columns of both tables whose cells, joined, are the ids of the test table."""
    if id_column in train:
        return [id_column]
    shared = [str(column) for column in test if column in train and column != image_column]
    for count in (1, 2):
        for columns in permutations(shared, count):
            if (test[list(columns)].agg(JOIN.join, axis=1) == test[id_column]).all():
                return list(columns)
    return None


def are_whole_in_groups(train: pd.DataFrame, columns: Sequence[str], group_column: str) -> bool:
    """Returns whether the images of each answer are in one group: those of a breast are of one patient."""
    return not (train[group_column].groupby(ids_of_answers(train, columns)).nunique() > 1).any()


def check_answer_groups(path: Path, rows: pd.DataFrame, column: str) -> None:
    """Raises if images of an answer have different labels, other than 0 and 1, or different groups (`rows`)."""
    labels = rows[["answer", "target"]].drop_duplicates()
    different = labels[labels["answer"].duplicated(keep=False)]
    if len(different) and not set(rows["target"]) <= {DECISIVE, OTHER}:
        _refuse(path, different, column, "labels", "correct them")
    if "group" in rows:
        groups = rows[["answer", "group"]].drop_duplicates()
        different = groups[groups["answer"].duplicated(keep=False)]
        if len(different):
            _refuse(path, different, column, "groups", "name another group_column")


def check_corrected_answers(answers: Answers, train: pd.DataFrame, path: Path) -> None:
    """Raises if the corrections give the images of an answer different labels, other than 0 and 1."""
    if set(train["target"]) <= {DECISIVE, OTHER}:
        return
    label_of: dict[str, str] = {}
    for image_id, label in zip(train["id"], train["target"], strict=True):
        answer = answers.train[image_id]
        if label_of.setdefault(answer, label) != label:
            raise PodiumError(
                f"{path}: {answers.column} '{answer}' has the labels '{label_of[answer]}' and '{label}' after these"
                " corrections; correct all of its images alike"
            )


def _refuse(path: Path, different: pd.DataFrame, column: str, what: str, remedy: str) -> None:
    answer = different["answer"].iloc[0]
    first, second = different.index[different["answer"] == answer][:2]
    raise PodiumError(f"{path}, lines {first} and {second}: {column} '{answer}' has two {what}; {remedy}")


def read_test_images(sample: Table, listing: Table, columns: AnswerColumns, pool: ImagePool) -> pd.DataFrame:
    """Returns the test rows (id, image, answer), in the order of the sample submission."""
    ids, rows = sample.rows.iloc[:, 0], listing.rows
    missing = ids[~ids.isin(rows[columns.id_column])]
    if len(missing):
        raise MissingFiles(
            f"{sample.path}, line {missing.index[0]}: {columns.id_column} '{missing.iloc[0]}' has no image in"
            f" {listing.path}; download again"
        )
    place = pd.Series(range(len(ids)), index=ids.to_numpy())
    rows = rows[rows[columns.id_column].isin(ids)]
    rows = rows.iloc[rows[columns.id_column].map(place).argsort(kind="stable")]
    names = rows[columns.image_column]
    repeated = names[rows[[columns.image_column, columns.id_column]].duplicated()]
    if len(repeated):
        raise PodiumError(
            f"{listing.path}, line {repeated.index[0]}: '{repeated.iloc[0]}' appears twice; delete one line"
        )
    unique = names.drop_duplicates()  # an image may belong to several answers
    image_of = dict(zip(unique, pool.match(unique, listing.path), strict=True))
    answers = rows[columns.id_column].to_numpy()
    return pd.DataFrame({"id": names.to_numpy(), "image": names.map(image_of).to_numpy(), "answer": answers})
