"""Guesses which columns of a training table hold what is learned, and whether that is one label, several or numbers."""

from typing import NamedTuple

import pandas as pd

from podium.basics.errors import MissingFiles, PodiumError
from podium.basics.terminal import first_few
from podium.competition.card import Card
from podium.competition.decide.labels import MARKS, NO_MARKS, SEPARATORS, TARGET_NAMES, are_numbers, find_separator
from podium.competition.decide.layout import TargetColumns
from podium.competition.decide.number_columns import find_number_columns
from podium.competition.find.table import Table
from podium.tasks.metrics import METRICS
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS

MOST_MISTAKES = 0.1  # of the rows with a cell that is neither: beyond that, the columns hold labels
HALF_OF_CELLS = 0.5


class Column(NamedTuple):
    name: str
    origin: str


def guess_targets(card: Card, table: Table, id_column: str, sample: Table | None) -> TargetColumns:
    """Returns the column of labels or numbers; or several: each with 0 or 1 for a class, a label or a number.

    Several are called like those of the sample submission.
    """
    answer_columns = sample.answer_columns if sample else []
    if "target_column" in card:
        column: Column | None = Column(str(card["target_column"]), card.origin_of("target_column"))
    else:
        column = _guess_label_column(table.rows, _columns_beside(card, table, id_column), sample)
    numbers = find_number_columns(card, table, column and column.name, sample)
    if numbers.columns:
        origin = (
            column.origin if column and numbers.columns == (column.name,) else "the columns of the sample submission"
        )
        return TargetColumns(numbers.columns, NUMBERS, "", origin, numbers.origin, numbers.note)
    if "target_column" not in card and len(answer_columns) > 1 and set(answer_columns) <= set(table.rows):
        return _guess_of_columns(card, table, answer_columns)
    if column is None:
        raise PodiumError(
            f"{table.path}: it is not clear which of the columns"
            f" {first_few(_columns_beside(card, table, id_column))} holds the label; "
            + card.advise('target_column = "NAME"')
        )
    of_cells = _guess_of_cells(card, table, column)
    notes = (of_cells.note, numbers.note) if of_cells.separator else (numbers.note, of_cells.note)
    return of_cells._replace(note=next(filter(None, notes), ""))


def _columns_beside(card: Card, table: Table, id_column: str) -> list[str]:
    columns = [name for name in table.rows if name != id_column]
    if not columns:
        raise MissingFiles(
            f"{table.path}: '{id_column}' is the only column, so none can hold the label; "
            + card.advise('train_table = "NAME"', 'train_table = "" (then the folders are the classes)')
        )
    return columns


def _guess_label_column(rows: pd.DataFrame, columns: list[str], sample: Table | None) -> Column | None:
    """Returns the column that holds the labels, or None if it cannot be found.

    It is found by the columns and the answers of the sample submission, else by the usual names of such columns.
    """
    if len(columns) == 1:
        return Column(columns[0], "the only column beside the ids")
    answer_columns = sample.answer_columns if sample else []
    if len(answer_columns) > 1:
        for column in columns:
            if set(rows[column]) <= set(answer_columns):
                return Column(column, "its cells are columns of the sample submission")
    spellings = {name.lower(): name for name in reversed(columns)}
    likely_names = [name.lower() for name in (*answer_columns, *TARGET_NAMES)]
    likely_columns = [spellings[name] for name in likely_names if name in spellings]
    # If both tables have the answer column, its name decides: the sample's answers may be placeholders.
    if sample and len(answer_columns) == 1 and answer_columns[0] not in rows:
        answers = set(sample.rows.iloc[:, 1])
        for column in likely_columns:
            if answers <= set(rows[column]):
                return Column(column, "its cells are answers of the sample submission")
    if not likely_columns:
        return None
    if sample and len(answer_columns) == 1 and (column := _same_labels_as_answers(rows, likely_columns, sample)):
        return Column(column, "its cells are of the kind of the sample submission's answers")
    is_answer = likely_columns[0].lower() in {name.lower() for name in answer_columns}
    return Column(likely_columns[0], "a column of the sample submission" if is_answer else "by its name")


def _same_labels_as_answers(rows: pd.DataFrame, columns: list[str], sample: Table) -> str:
    """Returns the column that holds the first one's labels as the sample submission writes them; "" if there is none.

    The sample has numbers and the first column words, or the other way about: `label` beside `label_name`.
    """
    first, *others = dict.fromkeys(columns)
    answers = set(sample.rows.iloc[:, 1].str.strip()) - {""}
    if not answers or are_numbers(answers) == are_numbers(rows[first].unique()):
        return ""
    for column in others:
        pairs = rows[[first, column]].drop_duplicates()
        if len(pairs) == pairs[first].nunique() == pairs[column].nunique() and answers <= set(rows[column]):
            return column
    return ""


def _guess_of_columns(card: Card, table: Table, answer_columns: list[str]) -> TargetColumns:
    """Returns columns called like those of the sample submission: each holds a label, or 1 where it is one."""
    origin = "the columns of the sample submission"
    columns = table.rows[[name for name in table.rows if name in answer_columns]]
    if _hold_labels(card, columns):
        task_origin = card.origin_of("task", "each of these columns holds a label")
        return TargetColumns(tuple(columns), SEVERAL_TARGETS, "", origin, task_origin)
    counts = columns.isin(MARKS).sum(axis=1)
    is_single = (counts == 1).all() and card.get("task", ONE_LABEL.name) != SEVERAL_LABELS.name
    is_single = is_single or card.get("task") == ONE_LABEL.name
    reason = "each row marks one column" if is_single else "a row may mark several columns, or none"
    task = ONE_LABEL if is_single else SEVERAL_LABELS
    return TargetColumns(tuple(answer_columns), task, "", origin, card.origin_of("task", reason))


def _hold_labels(card: Card, columns: pd.DataFrame) -> bool:
    """Returns whether the columns hold a label each, not marks: few cells that are no marks are mistakes."""
    if "task" in card:
        return bool(card["task"] == SEVERAL_TARGETS.name)
    if "metric" in card and SEVERAL_TARGETS.name not in METRICS[card["metric"]]().tasks:
        return False
    if all({*MARKS, *NO_MARKS}.issuperset(columns[name].unique()) for name in columns):
        return False
    return bool((~columns.isin((*MARKS, *NO_MARKS))).any(axis=1).mean() > MOST_MISTAKES)


def _guess_of_cells(card: Card, table: Table, column: Column) -> TargetColumns:
    """Returns a column whose cells may hold several labels."""
    task, cells = card.get("task"), table.rows[column.name]
    single = TargetColumns((column.name,), ONE_LABEL, "", column.origin, card.origin_of("task", "the usual one"))
    if task not in (None, SEVERAL_LABELS.name):
        return single
    separator = find_separator(cells) if task is None else _likely_separator(cells)
    if task is None and not separator:
        return single._replace(note=_note_on_parts(card, table, cells))
    reason, note = "", ""
    if task is None:
        example = cells[cells.str.contains(separator, regex=False)].iloc[0]
        reason = f"cells hold several labels, such as '{example}'"
        note = f"{table.path.name}: several labels for an image, such as '{example}'; if that is one label, "
        note += card.advise('task = "one_label"')
    task_origin = card.origin_of("task", reason)
    return single._replace(task=SEVERAL_LABELS, separator=separator, task_origin=task_origin, note=note)


def _note_on_parts(card: Card, table: Table, cells: pd.Series) -> str:
    """Says that cells of several parts, as `1;4` or `12 7 31`, are one label each here; a name of words is one."""
    unique = cells.drop_duplicates()
    for separator in SEPARATORS:
        parts = [[part for part in cell.split(separator) if part.strip()] for cell in unique]
        several = [row for row in parts if len(row) > 1]
        if len(several) < HALF_OF_CELLS * len(unique) or (separator == " " and not all(map(are_numbers, several))):
            continue
        example = separator.join(several[0])
        return (
            f"{table.path.name}: that a cell such as '{example}' is one label is a guess; if it holds several, "
            + card.advise('task = "several_labels"')
        )
    return ""


def _likely_separator(cells: pd.Series) -> str:
    """Returns the separator that occurs, if the card says that there are several labels; a blank if none does."""
    return next((separator for separator in SEPARATORS if cells.str.contains(separator, regex=False).any()), " ")
