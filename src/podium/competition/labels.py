"""Finds and checks the labels of a training table, and sorts labels."""

import re
import unicodedata
from fractions import Fraction
from pathlib import Path

import pandas as pd

from podium import PodiumError
from podium.competition.find_tables import Sources, Table, has_line_break, refuse_blank_cells
from podium.terminal import first_few

TARGET_NAMES = (
    *("target", "label", "class", "category", "labels", "classes", "label_id", "class_id", "category_id"),
    *("label_name", "class_name", "category_name"),
)


def find_labels(sources: Sources, table: Table, id_column: str) -> tuple[str, pd.Series]:
    """Returns the name of the label column and the labels.

    A training table may instead have the sample submission's column per class, which holds 0 or 1.
    """
    if "target_column" in sources.card:
        column = sources.card_column("target_column", table)
        return column, table.rows[column]
    columns = [name for name in table.rows if name != id_column]
    if not columns:
        raise PodiumError(
            f"{table.path}: '{id_column}' is the only column, so none can hold the label; "
            + sources.card.advise('train_table = "NAME"', 'train_table = "" (then the folders are the classes)')
        )
    answer_columns = sources.sample.answer_columns if sources.sample else []
    if len(answer_columns) > 1 and set(answer_columns) <= set(columns):
        return "label", _labels_from_marks(table.path, table.rows[answer_columns])
    label_column = _choose_label_column(table.rows, columns, sources.sample)
    if label_column is None:
        raise PodiumError(
            f"{table.path}: it is not clear which of the columns {first_few(columns)} holds the label; "
            + sources.card.advise('target_column = "NAME"')
        )
    return label_column, table.rows[label_column]


def _choose_label_column(rows: pd.DataFrame, columns: list[str], sample: Table | None) -> str | None:
    """Returns the column that holds the labels, or None if it cannot be found.

    It is found by the columns and the answers of the sample submission, else by the usual names of such columns.
    """
    if len(columns) == 1:
        return columns[0]
    answer_columns = sample.answer_columns if sample else []
    if len(answer_columns) > 1:
        for column in columns:
            if set(rows[column]) <= set(answer_columns):
                return column
    spellings = {name.lower(): name for name in reversed(columns)}
    likely_names = [name.lower() for name in (*answer_columns, *TARGET_NAMES)]
    likely_columns = [spellings[name] for name in likely_names if name in spellings]
    # If both tables have the answer column, its name decides: the sample's answers may be placeholders.
    if sample and len(answer_columns) == 1 and answer_columns[0] not in rows:
        answers = set(sample.rows.iloc[:, 1])
        for column in likely_columns:
            if answers <= set(rows[column]):
                return column
    return next(iter(likely_columns), None)


def _labels_from_marks(path: Path, columns: pd.DataFrame) -> pd.Series:
    """Returns the name of the column that is marked in each row."""
    is_marked = columns.isin(["1", "1.0", "True"])
    mark_counts = is_marked.sum(axis=1)
    is_wrong = mark_counts != 1
    if is_wrong.any():
        line = is_wrong.idxmax()
        raise PodiumError(
            f"{path}, line {line}: {mark_counts.loc[line]} classes are marked, but Podium learns one label for each"
            " image; delete the lines of other images"
        )
    return is_marked.idxmax(axis=1)


def check_labels(sources: Sources, path: Path, labels: pd.Series) -> None:
    """Refuses labels that are blank or of several lines, and notes labels that look the same."""
    refuse_blank_cells(labels, path, "label")
    is_long = has_line_break(labels)
    if is_long.any():
        line = is_long.idxmax()
        start = labels[line].splitlines()[0]
        raise PodiumError(f"{path}, line {line}: a label of several lines, '{start}...'; close its quote")
    first_uses = labels.drop_duplicates()
    for _, similar in first_uses.groupby(first_uses.map(normalised_label), sort=False):
        if len(similar) > 1:
            spellings = " and ".join(f"{label!r} (line {line})" for line, label in similar.head(3).items())
            sources.notes.append(
                f"{path.name}: {spellings} are different classes; correct the table if they should be the same"
            )


def normalised_label(label: str) -> str:
    """Returns the form in which similar labels are equal.

    Blanks, invisible characters, forms of letters and ways to write a number make no difference.
    """
    visible = (letter for letter in unicodedata.normalize("NFKC", label) if unicodedata.category(letter) != "Cf")
    text = " ".join("".join(visible).split())
    is_number = re.fullmatch(r"[-+]?[0-9]{1,99}(\.[0-9]{0,99})?|[-+]?\.[0-9]{1,99}", text)
    return str(Fraction(text)) if is_number else text


def sort_labels(labels: set[str]) -> list[str]:
    """Sorts by value if all labels are plain whole numbers, else as text."""
    are_numbers = all(re.fullmatch("0|[1-9][0-9]*", label) for label in labels)
    return sorted(labels, key=lambda label: (len(label) if are_numbers else 0, label))
