"""Finds and checks the targets of a training table: one or several labels for each image, or numbers; sorts labels."""

import re
import unicodedata
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import pandas as pd

from podium.competition.card import Card
from podium.competition.find_tables import Sources, Table, have_line_breaks, refuse_blank_cells
from podium.competition.number_columns import find_number_columns, read_numbers
from podium.errors import PodiumError
from podium.tasks.metrics import METRICS
from podium.tasks.task import ONE_LABEL, SEPARATOR, SEVERAL_LABELS, SEVERAL_TARGETS
from podium.terminal import first_few

TARGET_NAMES = (
    *("target", "label", "class", "category", "labels", "classes", "label_id", "class_id", "category_id"),
    *("label_name", "class_name", "category_name"),
)
MARKS, NO_MARKS = ("1", "1.0", "True"), ("0", "0.0", "False")  # in the column of a class
MOST_MISTAKES = 0.1  # of the rows with a cell that is neither: beyond that, the columns hold labels
SEPARATORS = ("|", ";", ",", " ")  # between the labels of a cell; the blank comes last: it often stands beside another


def find_labels(sources: Sources, table: Table, id_column: str) -> tuple[str, pd.Series]:
    """Returns the name of the label column and the targets, as text (see task.py); sets the task of `sources`.

    A training table may instead have the sample submission's column per class, which holds 0 or 1, or its numbers.
    """
    if "target_column" in sources.card:
        column: str | None = sources.card_column("target_column", table)
    else:
        column = _choose_label_column(table.rows, _columns_beside(sources, table, id_column), sources.sample)
    number_columns = find_number_columns(sources, table, column)
    if number_columns:
        name = number_columns[0] if len(number_columns) == 1 else "label"
        return name, read_numbers(sources, table.path, table.rows[number_columns])
    answer_columns = sources.sample.answer_columns if sources.sample else []
    if "target_column" not in sources.card and len(answer_columns) > 1 and set(answer_columns) <= set(table.rows):
        columns = table.rows[[name for name in table.rows if name in answer_columns]]
        if _hold_labels(sources.card, columns):
            return "label", _targets_of_columns(sources, table.path, columns)
        return "label", _targets_of_marks(sources, table.path, columns[answer_columns])
    if column is None:
        columns = _columns_beside(sources, table, id_column)
        raise PodiumError(
            f"{table.path}: it is not clear which of the columns {first_few(columns)} holds the label; "
            + sources.card.advise('target_column = "NAME"')
        )
    return column, _targets_of_cells(sources, table.path, table.rows[column])


def _columns_beside(sources: Sources, table: Table, id_column: str) -> list[str]:
    columns = [name for name in table.rows if name != id_column]
    if not columns:
        raise PodiumError(
            f"{table.path}: '{id_column}' is the only column, so none can hold the label; "
            + sources.card.advise('train_table = "NAME"', 'train_table = "" (then the folders are the classes)')
        )
    return columns


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


def _hold_labels(card: Card, columns: pd.DataFrame) -> bool:
    """Returns whether the columns hold a label each, not marks: few cells that are no marks are mistakes."""
    if "task" in card:
        return bool(card["task"] == SEVERAL_TARGETS.name)
    if "metric" in card and SEVERAL_TARGETS.name not in METRICS[card["metric"]]().tasks:
        return False
    if all({*MARKS, *NO_MARKS}.issuperset(columns[name].unique()) for name in columns):
        return False
    return bool((~columns.isin((*MARKS, *NO_MARKS))).any(axis=1).mean() > MOST_MISTAKES)


def _targets_of_columns(sources: Sources, path: Path, columns: pd.DataFrame) -> pd.Series:
    """Returns the label in each column, as `column=label`."""
    sources.task, sources.columns = SEVERAL_TARGETS, list(columns)  # in the order of the training table
    wrong = next((name for name in columns if "=" in name or SEPARATOR in name), None)
    if wrong is not None:
        raise PodiumError(f"{path}: the column '{wrong}' contains '=' or '{SEPARATOR}'; rename it")
    for name in columns:
        refuse_blank_cells(columns[name], path, f"label in the column '{name}'")
        _refuse_separator(path, columns[name].unique())
    first, *others = (name + "=" + columns[name].str.strip() for name in columns)
    return first.str.cat(others, sep=SEPARATOR)


def _targets_of_marks(sources: Sources, path: Path, columns: pd.DataFrame) -> pd.Series:
    """Returns the names of the columns that are marked with 1 in each row.

    If each row has exactly one, the task is one label for each image, unless the card says otherwise.
    """
    is_marked = columns.isin(MARKS)
    is_wrong = ~(is_marked | columns.isin(NO_MARKS)).all(axis=1)
    if is_wrong.any():
        line = is_wrong.idxmax()
        cell = next(cell for cell in columns.loc[line] if cell not in (*MARKS, *NO_MARKS))
        raise PodiumError(f"{path}, line {line}: '{cell}' in the column of a class is neither 0 nor 1; correct it")
    counts = is_marked.sum(axis=1)
    if (counts == 1).all() and sources.card.get("task", ONE_LABEL.name) != SEVERAL_LABELS.name:
        return is_marked.idxmax(axis=1)
    if sources.card.get("task", SEVERAL_LABELS.name) == ONE_LABEL.name:
        line = (counts != 1).idxmax()
        raise PodiumError(
            f"{path}, line {line}: {counts.loc[line]} classes are marked, but {sources.card.path} says"
            ' task = "one_label"; delete that setting, or the lines of such images'
        )
    _refuse_separator(path, columns.columns)
    sources.task = SEVERAL_LABELS
    names = is_marked.columns.to_numpy(dtype=object)
    texts = [SEPARATOR.join(names[row]) for row in is_marked.to_numpy()]
    return pd.Series(texts, index=columns.index, dtype=object)


def _targets_of_cells(sources: Sources, path: Path, cells: pd.Series) -> pd.Series:
    """Returns the targets of a column, whose cells may hold several labels."""
    task = sources.card.get("task")
    if task not in (None, SEVERAL_LABELS.name):
        return cells
    separator = find_separator(cells) if task is None else _likely_separator(cells)
    if task is None and not separator:
        return cells
    if task is None:
        several = cells[cells.str.contains(separator, regex=False)]
        sources.notes.append(
            f"{path.name}: several labels for an image, such as '{several.iloc[0]}'; if that is one label, "
            + sources.card.advise('task = "one_label"')
        )
    sources.task, sources.separator = SEVERAL_LABELS, separator
    labels = cells.map(lambda cell: [label.strip() for label in cell.split(separator) if label.strip()])
    known = {label for row in labels for label in row}
    _refuse_separator(path, known)
    place = {label: number for number, label in enumerate(sort_labels(known))}
    return labels.map(lambda row: SEPARATOR.join(sorted(set(row), key=place.__getitem__)))


def find_separator(cells: pd.Series) -> str:
    """Returns what stands between several labels of a cell; "" if the cells seem to hold one label each.

    Cells hold several if they have fewer different parts than there are different cells, if some cells have one part
    only, and if such a part occurs in a longer cell too. `Common Chickweed`, or `red car` and `blue car`, is one label.
    Of parts that are all whole numbers (`95 66 137`), none need stand alone.
    """
    unique = cells.drop_duplicates()
    for separator in SEPARATORS:
        parts = [[part.strip() for part in cell.split(separator) if part.strip()] for cell in unique]
        single = {row[0] for row in parts if len(row) == 1}
        several = [row for row in parts if len(row) > 1]
        known = {part for row in parts for part in row}
        is_list = any(single & set(row) for row in several) or (several and all(part.isdecimal() for part in known))
        if len(known) < len(unique) and is_list:
            return separator
    return ""


def _likely_separator(cells: pd.Series) -> str:
    """Returns the separator that occurs, if the card says that there are several labels; a blank if none does."""
    return next((separator for separator in SEPARATORS if cells.str.contains(separator, regex=False).any()), " ")


def _refuse_separator(path: Path, labels: Iterable[str]) -> None:
    wrong = next((label for label in labels if SEPARATOR in label), None)
    if wrong is not None:
        raise PodiumError(f"{path}: the label '{wrong}' contains '{SEPARATOR}', which separates labels; rename it")


def check_labels(sources: Sources, path: Path, labels: pd.Series) -> None:
    """Refuses labels that are blank or of several lines, and notes labels that look the same."""
    if sources.task.has_columns:
        return
    if sources.task is ONE_LABEL:
        refuse_blank_cells(labels, path, "label")
    is_long = pd.Series(have_line_breaks(labels), labels.index)
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
