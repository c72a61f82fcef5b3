"""What a submission looks like: its columns, what they hold, and the classes in the order of the model's outputs.

From the sample submission and the card. Writes nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from podium import PodiumError
from podium.competition.card import Card
from podium.competition.csv_files import CsvStyle, csv_style_of, csv_text
from podium.competition.ids_and_labels import Table, normalised_label
from podium.metrics import METRICS
from podium.terminal import first_few

INSTEAD = '; where another file is the sample, write sample_submission = "NAME" in the competition\'s card'


@dataclass(frozen=True)
class SubmissionFormat:
    """The submission that Kaggle expects, to the letter."""

    columns: tuple[str, ...]
    wants: str  # "labels": one column beside the ids; "probs": one for each class, or for the second of two classes
    source: str  # the file that decided this, in words
    csv_style: CsvStyle | None = None  # of that file, if there is one
    id_position: int = 0  # of the ids among the columns
    notes: tuple[str, ...] = ()

    @property
    def line_style(self) -> CsvStyle:
        """How its lines are written."""
        return self.csv_style or CsvStyle(csv_text([self.columns], ""), ",", "\n")

    @property
    def answer_columns(self) -> tuple[str, ...]:
        return (*self.columns[: self.id_position], *self.columns[self.id_position + 1 :])


def submission_format_of(
    card: Card, sample: Table | None, train_columns: tuple[str, str], seen: list[str]
) -> tuple[SubmissionFormat, list[str]]:
    """The shape, and the classes: those of training and any that have a column in the sample."""
    if sample is None:
        wants = card.get("wants", "labels")
        names = train_columns if wants == "labels" or len(seen) == 2 else (train_columns[0], *seen)
        return SubmissionFormat(names, wants, "no sample submission"), positive_last(card, seen, train_columns[1])
    path, answers = sample.path, [str(column) for column in sample.rows.columns[1:]]
    if not answers:
        raise PodiumError(f"{path}: one column only, a submission has an id and a prediction{INSTEAD}")
    if len(answers) > 1:
        if card.get("wants") == "labels":
            raise PodiumError(f'{path}: {len(answers)} columns to fill; take wants = "labels" off the card')
        wants, classes = "probs", classes_of_columns(answers, seen, sample)
    else:
        wants = card.get("wants") or _guessed_wants(card, sample, seen)
        if wants == "probs" and len(seen) != 2:
            raise PodiumError(f'{path}: one column to fill for {len(seen)} classes; take wants = "probs" off the card')
        classes = positive_last(card, seen, answers[0]) if wants == "probs" else seen
    columns = [*answers[: sample.place], str(sample.rows.columns[0]), *answers[sample.place :]]
    form = csv_style_of(path, columns)
    notes = (*(_strange(sample, seen) if wants == "labels" else ()), *form.notes)
    return SubmissionFormat(tuple(columns), wants, path.name, form, sample.place, notes), classes


def positive_last(card: Card, seen: list[str], column: str) -> list[str]:
    """Of two classes the one last whose probability a single column holds: the card's, or that which the column is
    called by (cat, is_cat), or else the second."""
    named = card.get("positive")
    if named is None and len(seen) == 2:
        *before, last = re.split(r"[\W_]+", column.lower())
        words = [column.lower(), *([] if {"no", "not", "non"} & set(before) else [last])]
        named = next((name for word in words for name in seen if name.lower() == word), None)
    elif named is not None and (named not in seen or len(seen) != 2):
        raise PodiumError(f'the card\'s positive = "{named}" is none of two classes; there are {first_few(seen)}')
    return seen if named is None else [*(name for name in seen if name != named), named]


def classes_of_columns(columns: list[str], seen: list[str], sample: Table) -> list[str]:
    """Each column's class: its name, or its name without what all have around it (class_0, class_1, p(cat), p(dog)),
    or with other capitals or digits (Cat, 1.0)."""
    alike = {_loosely(label): label for label in seen}
    for loose in (False, len(alike) == len(seen)):
        for before, after in _around(columns, seen[0]):
            names = [column[len(before) : len(column) - len(after)] for column in columns]
            classes = [alike.get(_loosely(name), name) for name in names] if loose else names
            if set(seen) <= set(classes) and len(set(classes)) == len(classes):
                _refuse_others(columns, classes, seen, sample)
                return classes
    _refuse_others(columns, columns, seen, sample)
    unknown = [label for label in seen if label not in columns]
    raise PodiumError(
        f"{sample.path}: no column for the class '{unknown[0]}', its columns are {first_few(columns)}; a submission has a"
        " label, or a column for each class. Where another column of the training table holds these, write"
        ' target_column = "NAME" in the competition\'s card'
    )


def _loosely(label: str) -> str:
    return normalised_label(label).casefold()


def _around(columns: list[str], label: str) -> Iterator[tuple[str, str]]:
    """What may stand before and after the classes in all columns: nothing, or what does around this label."""
    yield "", ""
    for column in columns:
        for found in re.finditer(re.escape(label), column, re.IGNORECASE):
            before, after = column[: found.start()], column[found.end() :]
            around = len(before) + len(after)
            if all(len(each) > around and each.startswith(before) and each.endswith(after) for each in columns):
                yield before, after


def _refuse_others(columns: list[str], classes: list[str], seen: list[str], sample: Table) -> None:
    """A class without a training image may have a column, but then one for probabilities."""
    for column, name in zip(columns, classes, strict=True):
        cells = sample.rows[column]
        values = pd.to_numeric(cells, errors="coerce")
        empty = (sample.rows[columns].apply(lambda each: each.str.strip()) == "").all(axis=1)  # nothing is filled in
        strange = cells[~((values >= 0) & (values <= 1)) & ~empty]
        if name not in seen and len(strange):
            raise PodiumError(
                f"{sample.path}, line {strange.index[0]}: the column '{column}' is no class of the training images,"
                f" and '{strange.iloc[0]}' in it no probability; a submission has an id and answers only{INSTEAD}"
            )


def _guessed_wants(card: Card, sample: Table, seen: list[str]) -> str:
    """Of two classes some metrics ask for a probability, and so do placeholders such as 0.5 that are no label."""
    if len(seen) != 2:
        return "labels"
    if "metric" in card and METRICS[card["metric"]]().wants == "probs":
        return "probs"
    cells = {cell.strip() for cell in sample.rows.iloc[:, 1]} - set(seen)
    broken = any(re.search(r"[.eE]", cell) for cell in cells)
    return "probs" if broken and all(_number(cell) for cell in cells) else "labels"


def _number(cell: str) -> bool:
    try:
        return 0 <= float(cell) <= 1
    except ValueError:
        return False


def _strange(sample: Table, seen: list[str]) -> tuple[str, ...]:
    cells = sample.rows.iloc[:, 1]
    strange = cells[~cells.isin(seen) & (cells.str.strip() != "")].drop_duplicates()
    if not len(strange):
        return ()
    what = f"{sample.path.name} answers {first_few(repr(cell) for cell in strange)}, which are no labels of the training table"
    return (f"{what}; the submission has its labels to the letter",)
