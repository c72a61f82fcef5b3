"""Reads the targets of a training table, as text (tasks/task.py), from the columns that the layout names.

Refuses cells that are none, with their line.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.competition.card import Card
from podium.competition.decide.labels import MARKS, NO_MARKS, normalised_label, sort_labels
from podium.competition.decide.layout import TargetColumns
from podium.competition.find.table import Table, have_line_breaks, refuse_blank_cells
from podium.tasks.task import NUMBERS, ONE_LABEL, SEPARATOR, SEVERAL_LABELS


def read_targets(card: Card, table: Table, targets: TargetColumns) -> "pd.Series[str]":
    cells = table.rows[list(targets.columns)]
    if targets.task is NUMBERS:
        return _read_numbers(table.path, cells)
    if targets.task.has_columns:
        return _read_labels_in_columns(table.path, cells)
    if targets.are_marks:
        return _read_marks(card, table.path, cells, targets.task is ONE_LABEL)
    column = cells[targets.columns[0]]
    return _read_lists(table.path, column, targets.separator) if targets.task is SEVERAL_LABELS else column


def _read_numbers(path: Path, cells: pd.DataFrame) -> "pd.Series[str]":
    """Of several numbers, some may be unknown."""
    cells = cells.apply(lambda column: column.str.strip())
    for column in cells:
        values = pd.to_numeric(cells[column], errors="coerce")
        wrong = cells[column][~np.isfinite(values) & (cells[column] != "")]
        if len(wrong):
            line, cell = wrong.index[0], wrong.iloc[0]
            remedy = "write a point in place of the comma" if "," in cell else "correct it"
            raise PodiumError(f"{path}, line {line}: '{cell}' in the column '{column}' is not a number; {remedy}")
        if (cells[column] == "").all():
            raise PodiumError(f"{path}: no number in the column '{column}', so it cannot be learned; fill it in")
    is_blank = (cells == "").all(axis=1)
    if is_blank.any():
        raise PodiumError(f"{path}, line {is_blank.idxmax()}: no number; fill it in or delete the line")
    return cells[cells.columns[0]].str.cat(cells[cells.columns[1:]], sep=SEPARATOR)


def _read_labels_in_columns(path: Path, columns: pd.DataFrame) -> "pd.Series[str]":
    """Returns the label in each column, as `column=label`."""
    wrong = next((name for name in columns if "=" in name or SEPARATOR in name), None)
    if wrong is not None:
        raise PodiumError(f"{path}: the column '{wrong}' contains '=' or '{SEPARATOR}'; rename it")
    for name in columns:
        refuse_blank_cells(columns[name], path, f"label in the column '{name}'")
        _refuse_separator(path, columns[name].unique())
    first, *others = (name + "=" + columns[name].str.strip() for name in columns)
    return first.str.cat(others, sep=SEPARATOR)


def _read_marks(card: Card, path: Path, columns: pd.DataFrame, has_one_label: bool) -> "pd.Series[str]":
    """Returns the names of the columns that are marked with 1 in each row."""
    is_marked = columns.isin(MARKS)
    is_wrong = ~(is_marked | columns.isin(NO_MARKS)).all(axis=1)
    if is_wrong.any():
        line = is_wrong.idxmax()
        cell = next(cell for cell in columns.loc[line] if cell not in (*MARKS, *NO_MARKS))
        raise PodiumError(f"{path}, line {line}: '{cell}' in the column of a class is neither 0 nor 1; correct it")
    if has_one_label:
        counts = is_marked.sum(axis=1)
        if (counts != 1).any():
            line = (counts != 1).idxmax()
            raise PodiumError(
                f"{path}, line {line}: {counts.loc[line]} classes are marked, but {card.path} says"
                ' task = "one_label"; delete that setting, or the lines of such images'
            )
        return is_marked.idxmax(axis=1)
    _refuse_separator(path, columns.columns)
    names = is_marked.columns.to_numpy(dtype=object)
    texts = [SEPARATOR.join(names[row]) for row in is_marked.to_numpy()]
    return pd.Series(texts, index=columns.index, dtype=object)


def _read_lists(path: Path, cells: "pd.Series[str]", separator: str) -> "pd.Series[str]":
    """Returns the labels of cells that may hold several, each once and in order."""
    labels = cells.map(lambda cell: [label.strip() for label in cell.split(separator) if label.strip()])
    known = {label for row in labels for label in row}
    _refuse_separator(path, known)
    place = {label: number for number, label in enumerate(sort_labels(known))}
    return labels.map(lambda row: SEPARATOR.join(sorted(set(row), key=place.__getitem__)))


def _refuse_separator(path: Path, labels: Iterable[str]) -> None:
    wrong = next((label for label in labels if SEPARATOR in label), None)
    if wrong is not None:
        raise PodiumError(f"{path}: the label '{wrong}' contains '{SEPARATOR}', which separates labels; rename it")


def check_labels(path: Path, labels: "pd.Series[str]", targets: TargetColumns) -> list[str]:
    """Refuses labels that are blank or of several lines; returns notes on labels that look the same."""
    if targets.task.has_columns:
        return []
    if targets.task is ONE_LABEL:
        refuse_blank_cells(labels, path, "label")
    is_long = pd.Series(have_line_breaks(labels), labels.index)
    if is_long.any():
        line = is_long.idxmax()
        start = labels[line].splitlines()[0]
        raise PodiumError(f"{path}, line {line}: a label of several lines, '{start}...'; close its quote")
    notes, first_uses = [], labels.drop_duplicates()
    for _, similar in first_uses.groupby(first_uses.map(normalised_label), sort=False):
        if len(similar) > 1:
            spellings = " and ".join(f"{label!r} (line {line})" for line, label in similar.head(3).items())
            notes.append(
                f"{path.name}: {spellings} are different classes; correct the table if they should be the same"
            )
    return notes
