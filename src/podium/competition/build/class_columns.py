"""Finds the class that each column of probabilities stands for, by the names of columns and classes."""

import re
from collections.abc import Iterator

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.card import Card
from podium.competition.decide.labels import normalised_label
from podium.competition.find.table import Table


def classes_of_columns(
    columns: list[str], train_labels: list[str], sample: Table, card: Card | None = None
) -> list[str]:
    """Returns the class that each column is named after.

    A name may differ from the class by text that all columns share (class_0, class_1; p(cat), p(dog)), by
    capital letters (Cat) and by another form of a number (1.0).
    """
    labels_by_spelling = {_loose_spelling(label): label for label in train_labels}
    is_unambiguous = len(labels_by_spelling) == len(train_labels)
    for is_loose in (False, True) if is_unambiguous else (False,):
        for prefix, suffix in _common_affixes(columns, train_labels[0]):
            classes = [column[len(prefix) : len(column) - len(suffix)] for column in columns]
            if is_loose:
                classes = [labels_by_spelling.get(_loose_spelling(name), name) for name in classes]
            if set(train_labels) <= set(classes) and len(set(classes)) == len(classes):
                _refuse_columns_of_no_class(columns, classes, train_labels, sample, card)
                return classes
    _refuse_columns_of_no_class(columns, columns, train_labels, sample, card)
    missing = next(label for label in train_labels if label not in columns)
    raise PodiumError(
        f"{sample.path}: no column for the class '{missing}', the columns are {first_few(columns)}; a submission has"
        " one label, or a column for each class"
        + _advise(card, "another column of the training table holds these classes", 'target_column = "NAME"')
    )


def advise_other_sample(card: Card | None) -> str:
    return _advise(card, "another file is the sample submission", 'sample_submission = "NAME"')


def _advise(card: Card | None, condition: str, setting: str) -> str:
    """Returns advice to write in the card; none where a submission is scored, which needs no card."""
    return f"; if {condition}, {card.advise(setting)}" if card is not None else ""


def _loose_spelling(label: str) -> str:
    return normalised_label(label).casefold()


def _common_affixes(columns: list[str], label: str) -> Iterator[tuple[str, str]]:
    """Yields pairs of texts that all columns may have before and after their class.

    They are found around this label in the columns.
    """
    yield "", ""
    for column in columns:
        for match in re.finditer(re.escape(label), column, re.IGNORECASE):
            prefix, suffix = column[: match.start()], column[match.end() :]
            length = len(prefix) + len(suffix)
            if all(len(name) > length and name.startswith(prefix) and name.endswith(suffix) for name in columns):
                yield prefix, suffix


def _refuse_columns_of_no_class(
    columns: list[str], classes: list[str], train_labels: list[str], sample: Table, card: Card | None
) -> None:
    """Raises if a column that is not named after a training label holds anything but probabilities.

    With probabilities it is a class that has no training image.
    """
    labels = set(train_labels)
    unknown_columns = [column for column, name in zip(columns, classes, strict=True) if name not in labels]
    if not unknown_columns:
        return
    is_blank = (sample.rows[columns].apply(lambda cells: cells.str.strip()) == "").all(axis=1)  # not filled in
    for column in unknown_columns:
        cells = sample.rows[column]
        values = pd.to_numeric(cells, errors="coerce")
        wrong = cells[~((values >= 0) & (values <= 1)) & ~is_blank]
        if len(wrong):
            raise PodiumError(
                f"{sample.path}, line {wrong.index[0]}: the column '{column}' is not a class of the training images,"
                f" and its cell '{wrong.iloc[0]}' is not a probability; a submission has only ids and answers"
                f"{advise_other_sample(card)}"
            )
