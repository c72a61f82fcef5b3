"""Finds the columns of a training table that hold numbers to predict."""

import re
from typing import NamedTuple

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.card import Card
from podium.competition.find.table import Table
from podium.tasks.metrics import METRICS
from podium.tasks.task import NUMBERS

NAME_OF_LABELS = r"target|label|class|category|categories|(^|_)id$|predict"
MIN_VALUES = 10  # with fewer different values, they are rather grades or marks
MISSING = {"nan", "inf", "infinity", "na", "n/a", "null", "none"}  # what programs write where a number is missing
FAR = 10_000  # times the range of the middle half of a column
MOST_MISTAKES = 0.1  # of the cells that are no numbers among fractions: beyond that, all of them are labels


class NumberColumns(NamedTuple):
    columns: tuple[str, ...] = ()  # in the order of the sample submission; (): the images have labels
    origin: str = ""
    note: str = ""


def find_number_columns(card: Card, table: Table, label_column: str | None, sample: Table | None) -> NumberColumns:
    """Returns the columns. `label_column` holds the labels if they are labels.

    The card's task or metric decides, else the cells.
    """
    answer_columns = sample.answer_columns if sample else []
    columns = [label_column] if label_column else []
    if "target_column" not in card and len(answer_columns) > 1:
        columns = _columns_like(answer_columns, table)
    task, origin = card.get("task"), card.origin_of("task")
    if task is None and "metric" in card:
        tasks = METRICS[card["metric"]]().tasks
        task = NUMBERS.name if tasks == {NUMBERS.name} else None if NUMBERS.name in tasks else "labels"
        origin = f"{card['metric']} is a metric of numbers"
    if task == NUMBERS.name and not columns:
        raise PodiumError(
            f"{table.path}: it is not clear which of the columns {first_few(table.rows.columns)} hold the numbers; "
            + card.advise('target_column = "NAME"')
        )
    guess = NumberColumns(tuple(columns), origin)
    if task is None and columns:
        guess = _guess_by_cells(card, table, columns, sample)
    elif task != NUMBERS.name:
        return NumberColumns()
    if guess.columns and sample and len(answer_columns) != len(columns):
        raise PodiumError(
            f"{sample.path}: {len(answer_columns)} columns to fill for the numbers in {first_few(columns)};"
            " the columns must have the names of those in the training table"
        )
    return guess


def _columns_like(answer_columns: list[str], table: Table) -> list[str]:
    """Returns the columns with these names; all may have the same text behind them, as in `height_mean`."""
    for column in table.rows:
        suffix = column.removeprefix(answer_columns[0])
        columns = [f"{name}{suffix}" for name in answer_columns]
        if column.startswith(answer_columns[0]) and set(columns) <= set(table.rows):
            return columns
    return []


def _guess_by_cells(card: Card, table: Table, columns: list[str], sample: Table | None) -> NumberColumns:
    """Returns the columns if their cells are numbers, some of them fractions.

    Whole numbers in a single column count if the sample submission's answers are fractions above 1.
    """
    cells = {cell for column in columns for cell in table.rows[column].unique()} - {""}
    texts = pd.Series(list(cells), dtype=object)
    values = pd.to_numeric(texts, errors="coerce")
    is_number = np.isfinite(values)
    if values[is_number].nunique() < MIN_VALUES:
        return NumberColumns(note="" if is_number.all() else _note_on_decimal_commas(table, columns, cells))
    are_whole = bool((values[is_number] % 1 == 0).all())
    are_amounts = not are_whole or (len(columns) == 1 and _has_fractions_above_1(sample))
    if not is_number.all():
        wrong = set(texts[~is_number])
        are_missing = {cell.strip().lower().lstrip("+-") for cell in wrong} <= MISSING
        if are_amounts or are_missing:
            _refuse_few_wrong_cells(card, table, columns, wrong)
        return NumberColumns(note=_note_on_decimal_commas(table, columns, cells))
    if not are_amounts:
        return NumberColumns(note=_note_on_amounts(card, table, columns))
    what = f"'{columns[0]}' holds" if len(columns) == 1 else f"{first_few(columns)} hold"
    note = f"{table.path.name}: {what} numbers to predict; if they are classes, "
    note += card.advise('task = "one_label"' if len(columns) == 1 else 'task = "several_labels"')
    return NumberColumns(tuple(columns), "its cells are numbers, of many values", note)


def _refuse_few_wrong_cells(card: Card, table: Table, columns: list[str], wrong: set[str]) -> None:
    """Raises if nearly all cells are numbers; the others are mistakes, and would make labels of all."""
    is_wrong = table.rows[columns].isin(wrong)
    if is_wrong.to_numpy().mean() > MOST_MISTAKES:
        return
    lines = [int(line) for line in table.rows.index[is_wrong.any(axis=1)]]
    column = next(name for name in columns if is_wrong[name].any())
    cell = table.rows[column][is_wrong[column]].iloc[0]
    where = f"line {lines[0]}" if len(lines) == 1 else f"lines {first_few(lines)}"
    remedy = "write a point in place of the comma" if "," in cell else "correct it or delete the line"
    raise PodiumError(
        f"{table.path}, {where}: '{cell}' in the column '{column}' is not a number, but nearly all other cells are;"
        f" {remedy}; if they are labels, "
        + card.advise('task = "one_label"' if len(columns) == 1 else 'task = "several_targets"')
    )


def _note_on_amounts(card: Card, table: Table, columns: list[str]) -> str:
    """Says that whole numbers are read as classes, if the column has not one of the usual names of labels, as `age`."""
    (column, *others) = columns
    if others or re.search(NAME_OF_LABELS, column.lower()):
        return ""
    return (
        f"{table.path.name}: the whole numbers of '{column}' are classes here; if they are amounts to predict, "
        + card.advise('task = "numbers"')
    )


def _note_on_decimal_commas(table: Table, columns: list[str], cells: set[str]) -> str:
    """Says that cells such as `2800,5` are read as labels, if all of them would be numbers with a point."""
    with_points = pd.Series([cell.replace(",", ".") for cell in cells], dtype=object)
    values = pd.to_numeric(with_points, errors="coerce")
    if not np.isfinite(values).all() or values.nunique() < MIN_VALUES:
        return ""
    example = min(cell for cell in cells if "," in cell)
    return (
        f"{table.path.name}: cells of '{columns[0]}' such as '{example}' are labels here; if they are numbers,"
        " write a point in place of the comma"
    )


def _has_fractions_above_1(sample: Table | None) -> bool:
    """Returns whether the answers of a single column are such numbers; probabilities are not."""
    if sample is None or len(sample.answer_columns) != 1:
        return False
    answers = pd.to_numeric(sample.rows.iloc[:, 1], errors="coerce")
    return bool(((answers > 1) & (answers % 1 != 0)).any())


def notes_on_far_numbers(table: Table, columns: tuple[str, ...]) -> list[str]:
    """Returns a note for each column with a number so far from the others that models will learn little else."""
    notes = []
    for column in columns:
        values = pd.to_numeric(table.rows[column], errors="coerce").dropna()
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75)) if len(values) else (0.0, 0.0, 0.0)
        distances = (values - middle).abs()
        if high > low and distances.max() > FAR * (high - low):
            line = distances.idxmax()
            notes.append(
                f"{table.path.name}, line {line}: {values[line]:g} in '{column}' is far from all others, half"
                f" of which are from {low:g} to {high:g}; models will learn little else; is it a mistake?"
            )
    return notes
