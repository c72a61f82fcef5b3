"""Finds the columns of a training table that hold numbers to predict, and reads them."""

import re
from pathlib import Path

import numpy as np
import pandas as pd

from podium.competition.find_tables import Sources, Table
from podium.errors import PodiumError
from podium.tasks.metrics import METRICS
from podium.tasks.task import NUMBERS, SEPARATOR
from podium.terminal import first_few

NAME_OF_LABELS = r"target|label|class|category|categories|(^|_)id$|predict"
MIN_VALUES = 10  # with fewer different values, they are rather grades or marks


def find_number_columns(sources: Sources, table: Table, label_column: str | None) -> list[str]:
    """Returns the columns, in the order of the sample submission; none if the images have labels.

    `label_column` holds the labels if they are labels. The card's task or metric decides, else the cells.
    """
    card = sources.card
    answer_columns = sources.sample.answer_columns if sources.sample else []
    columns = [label_column] if label_column else []
    if "target_column" not in card and len(answer_columns) > 1:
        columns = _columns_like(answer_columns, table)
    task = card.get("task")
    if task is None and "metric" in card:
        tasks = METRICS[card["metric"]]().tasks
        task = NUMBERS.name if tasks == {NUMBERS.name} else None if NUMBERS.name in tasks else "labels"
    if task == NUMBERS.name and not columns:
        raise PodiumError(
            f"{table.path}: it is not clear which of the columns {first_few(table.rows.columns)} hold the numbers; "
            + card.advise('target_column = "NAME"')
        )
    if task == NUMBERS.name or (task is None and columns and _look_like_numbers(sources, table, columns)):
        _refuse_other_answers(sources, columns)
        return columns
    return []


def _columns_like(answer_columns: list[str], table: Table) -> list[str]:
    """Returns the columns with these names; all may have the same text behind them, as in `height_mean`."""
    for column in table.rows:
        suffix = column.removeprefix(answer_columns[0])
        columns = [f"{name}{suffix}" for name in answer_columns]
        if column.startswith(answer_columns[0]) and set(columns) <= set(table.rows):
            return columns
    return []


def _look_like_numbers(sources: Sources, table: Table, columns: list[str]) -> bool:
    """Returns whether the cells are numbers, some of them fractions.

    Whole numbers in a single column count if the sample submission's answers are fractions above 1.
    """
    cells = {cell for column in columns for cell in table.rows[column].unique()} - {""}
    values = pd.to_numeric(pd.Series(list(cells), dtype=object), errors="coerce")
    if not np.isfinite(values).all():
        _note_decimal_commas(sources, table, columns, cells)
        return False
    if values.nunique() < MIN_VALUES:
        return False
    if (values % 1 == 0).all() and not (len(columns) == 1 and _has_fractions_above_1(sources.sample)):
        _note_amounts(sources, table, columns)
        return False
    what = f"'{columns[0]}' holds" if len(columns) == 1 else f"{first_few(columns)} hold"
    sources.notes.append(
        f"{table.path.name}: {what} numbers to predict; if they are classes, "
        + sources.card.advise('task = "one_label"' if len(columns) == 1 else 'task = "several_labels"')
    )
    return True


def _note_amounts(sources: Sources, table: Table, columns: list[str]) -> None:
    """Says that whole numbers are read as classes, if the column has not one of the usual names of labels, as `age`."""
    (column, *others) = columns
    if not others and not re.search(NAME_OF_LABELS, column.lower()):
        sources.notes.append(
            f"{table.path.name}: the whole numbers of '{column}' are classes here; if they are amounts to predict, "
            + sources.card.advise('task = "numbers"')
        )


def _note_decimal_commas(sources: Sources, table: Table, columns: list[str], cells: set[str]) -> None:
    """Says that cells such as `2800,5` are read as labels, if all of them would be numbers with a point."""
    with_points = pd.Series([cell.replace(",", ".") for cell in cells], dtype=object)
    values = pd.to_numeric(with_points, errors="coerce")
    if np.isfinite(values).all() and values.nunique() >= MIN_VALUES:
        example = min(cell for cell in cells if "," in cell)
        sources.notes.append(
            f"{table.path.name}: cells of '{columns[0]}' such as '{example}' are labels here; if they are numbers,"
            " write a point in place of the comma"
        )


def _has_fractions_above_1(sample: Table | None) -> bool:
    """Returns whether the answers of a single column are such numbers; probabilities are not."""
    if sample is None or len(sample.answer_columns) != 1:
        return False
    answers = pd.to_numeric(sample.rows.iloc[:, 1], errors="coerce")
    return bool(((answers > 1) & (answers % 1 != 0)).any())


def _refuse_other_answers(sources: Sources, columns: list[str]) -> None:
    sample = sources.sample
    if sample and len(sample.answer_columns) != len(columns):
        raise PodiumError(
            f"{sample.path}: {len(sample.answer_columns)} columns to fill for the numbers in {first_few(columns)};"
            " the columns must have the names of those in the training table"
        )


def read_numbers(sources: Sources, path: Path, cells: pd.DataFrame) -> pd.Series:
    """Returns the targets, as text (see task.py); of several numbers, some may be unknown. Sets the task."""
    sources.task, sources.columns = NUMBERS, list(cells.columns)
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
