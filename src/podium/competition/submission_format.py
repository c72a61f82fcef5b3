"""Works out a submission's format: its columns, what they hold, and the classes in the order of the model's outputs.

Uses the sample submission and the card. Writes nothing.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from podium import PodiumError
from podium.competition.card import Card
from podium.competition.csv_files import CsvStyle, csv_style_of, csv_text
from podium.competition.find_tables import Sources, Table
from podium.competition.labels import normalised_label, sort_labels
from podium.competition.long_tables import LongRows
from podium.metrics import METRICS
from podium.task import NUMBERS, ONE_LABEL, SEVERAL_TARGETS, column_and_label
from podium.terminal import first_few

NO_SAMPLE = "no sample submission"


@dataclass(frozen=True)
class SubmissionFormat:
    """The format of the submission that Kaggle expects."""

    columns: tuple[str, ...]
    wants: str  # what a cell holds, of WANTS in metrics.py; "probs": a column a class, or for the second of two
    source: str  # what decided this: the name of the sample submission, or "no sample submission"
    csv_style: CsvStyle | None = None  # of the sample submission, if there is one
    id_position: int = 0  # of the id column among the columns
    notes: tuple[str, ...] = ()
    separator: str = ""  # between several labels in the answer column
    places: int = 1  # of a ranking: how many labels a cell holds
    long: LongRows | None = None  # if a row holds not the answers of an image but one of them

    @property
    def line_style(self) -> CsvStyle:
        """How the submission's lines are written."""
        return self.csv_style or CsvStyle(csv_text([self.columns], ""), ",", "\n")

    @property
    def header(self) -> tuple[str, ...]:
        return self.long.columns if self.long else self.columns

    @property
    def answer_columns(self) -> tuple[str, ...]:
        return (*self.columns[: self.id_position], *self.columns[self.id_position + 1 :])


def submission_format_of(
    sources: Sources, train_columns: tuple[str, str], train_labels: list[str]
) -> tuple[SubmissionFormat, list[str]]:
    """Returns the format and the classes: those of the training images, and others with a column in the sample.

    `train_columns` are the names of the training table's id and label columns.
    """
    card, sample, has_one_label = sources.card, sources.sample, sources.task is ONE_LABEL
    _refuse_other_wants(sources)
    if sample is None:
        return _format_without_sample(sources, train_columns, train_labels)
    answer_columns = sample.answer_columns
    if not answer_columns:
        raise PodiumError(
            f"{sample.path}: only one column, but a submission has an id and a prediction{_other_sample(card)}"
        )
    if sources.task is NUMBERS:
        wants, classes = "numbers", sources.columns
    elif sources.task is SEVERAL_TARGETS:
        wants, classes = "labels", _classes_by_column(sources, train_labels)
    elif len(answer_columns) > 1:
        if card.get("wants") == "labels":
            raise PodiumError(
                f"{sample.path}: {len(answer_columns)} columns to fill, not one label;"
                ' remove wants = "labels" from '
                f"{card.path}"
            )
        wants, classes = "probs", classes_of_columns(answer_columns, train_labels, sample, card)
    elif not has_one_label:
        wants, classes = "labels", train_labels
    else:
        wants = card.get("wants") or _guess_wants(card, sample, train_labels)
        if wants == "probs" and len(train_labels) != 2:
            raise PodiumError(
                f"{sample.path}: one column to fill for {len(train_labels)} classes;"
                ' remove wants = "probs" from '
                f"{card.path}"
            )
        classes = put_positive_last(card, train_labels, answer_columns[0]) if wants == "probs" else train_labels
    position = sample.id_position
    columns = (*answer_columns[:position], str(sample.rows.columns[0]), *answer_columns[position:])
    csv_style = csv_style_of(sample.path, list(sample.long.columns if sample.long else columns))
    notes = (
        *(_notes_on_answers(sources, train_labels) if wants == "labels" and len(answer_columns) == 1 else ()),
        *csv_style.notes,
    )
    places = _places(sources) if wants == "ranking" else 1
    separator = sources.separator or " "
    return SubmissionFormat(
        columns, wants, sample.path.name, csv_style, position, notes, separator, places, sample.long
    ), classes


def _format_without_sample(
    sources: Sources, train_columns: tuple[str, str], train_labels: list[str]
) -> tuple[SubmissionFormat, list[str]]:
    card, separator = sources.card, sources.separator or " "
    if sources.task is NUMBERS:
        return SubmissionFormat((train_columns[0], *sources.columns), "numbers", NO_SAMPLE), sources.columns
    if sources.task is SEVERAL_TARGETS:
        classes = _classes_by_column(sources, train_labels)
        return SubmissionFormat((train_columns[0], *sources.columns), "labels", NO_SAMPLE), classes
    has_one_label = sources.task is ONE_LABEL
    default = "labels" if has_one_label or sources.separator else "probs"
    if has_one_label and "metric" in card and METRICS[card["metric"]]().wants == "ranking":
        default = "ranking"
    wants = card.get("wants", default)
    is_single_column = wants != "probs" or (len(train_labels) == 2 and has_one_label)
    columns = train_columns if is_single_column else (train_columns[0], *train_labels)
    classes = put_positive_last(card, train_labels, train_columns[1]) if has_one_label else train_labels
    places = _places(sources) if wants == "ranking" else 1
    return SubmissionFormat(columns, wants, NO_SAMPLE, separator=separator, places=places), classes


def _classes_by_column(sources: Sources, train_labels: list[str]) -> list[str]:
    """Returns the classes of several targets, column by column in the order of the submission."""
    pairs = [column_and_label(name) for name in train_labels]
    return [
        f"{column}={label}"
        for column in sources.columns
        for label in sort_labels({label for own, label in pairs if own == column})
    ]


def _refuse_other_wants(sources: Sources) -> None:
    """Raises if the card wants answers that the task does not have."""
    card, task = sources.card, sources.task
    possible = {
        ONE_LABEL: ("labels", "probs", "ranking"),
        SEVERAL_TARGETS: ("labels",),
        NUMBERS: ("numbers",),
    }.get(task, ("labels", "probs"))
    if card.get("wants", possible[0]) not in possible:
        raise PodiumError(
            f'{card.path}: wants = "{card["wants"]}", but the training table has {task.words}; write'
            f' {" or ".join(possible)} there, or task = "NAME"'
        )


def _places(sources: Sources) -> int:
    """Returns how many labels of a ranking a cell holds: as many as in the sample submission, else as the metric."""
    count = _labels_in_cells(sources.sample) if sources.sample else 1
    metric = sources.card.get("metric")
    return count if count > 1 or metric is None else METRICS[metric]().places


def _labels_in_cells(sample: Table) -> int:
    """Returns how many labels, separated by blanks, each cell of the answers holds; 1 if that differs."""
    counts = sample.rows.iloc[:, 1].str.split().str.len().unique()
    return int(counts[0]) if len(counts) == 1 else 1


def put_positive_last(card: Mapping[str, Any], labels: list[str], column: str) -> list[str]:
    """Returns the labels; of two, the one whose probability a single column holds comes last.

    That one is the card's `positive`, else the class that the column is named after (cat, is_cat), else the second one.
    """
    positive = card.get("positive")
    if positive is None and len(labels) == 2:
        *first_words, last_word = re.split(r"[\W_]+", column.lower())
        is_negated = bool({"no", "not", "non"} & set(first_words))
        names = [column.lower()] if is_negated else [column.lower(), last_word]
        positive = next((label for name in names for label in labels if label.lower() == name), None)
    elif positive is not None and (positive not in labels or len(labels) != 2):
        raise PodiumError(f'positive = "{positive}" is not one of two classes; the classes are {first_few(labels)}')
    return labels if positive is None else [*(label for label in labels if label != positive), positive]


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


def _other_sample(card: Card | None) -> str:
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
                f"{_other_sample(card)}"
            )


def _guess_wants(card: Card, sample: Table, train_labels: list[str]) -> str:
    """Returns what a single answer column holds: labels, the probability of one of two classes, or a ranking of labels.

    It holds probabilities if the card's metric needs them, or if its placeholders are like 0.5 and are not labels.
    It holds a ranking if the card's metric needs one, or if each of its cells holds the same number of labels.
    """
    wants = METRICS[card["metric"]]().wants if "metric" in card else None
    if wants == "ranking":
        return wants
    first_words = str(sample.rows.iloc[0, 1]).split()
    if len(set(first_words)) == _labels_in_cells(sample) > 1 and set(first_words) <= set(train_labels):
        return "ranking"
    if len(train_labels) != 2:
        return "labels"
    if wants == "probs":
        return "probs"
    answers = {cell.strip() for cell in sample.rows.iloc[:, 1]} - set(train_labels)
    has_fraction = any(re.search(r"[.eE]", answer) for answer in answers)
    return "probs" if has_fraction and all(map(_is_probability, answers)) else "labels"


def _is_probability(cell: str) -> bool:
    try:
        return 0 <= float(cell) <= 1
    except ValueError:
        return False


def _notes_on_answers(sources: Sources, train_labels: list[str]) -> tuple[str, ...]:
    sample = sources.sample
    assert sample is not None
    answers = sample.rows.iloc[:, 1]
    if sources.task is not ONE_LABEL:
        answers = answers.str.split(sources.separator or " ").explode().fillna("")
    unknown = answers[~answers.isin(train_labels) & (answers.str.strip() != "")].drop_duplicates()
    if not len(unknown):
        return ()
    return (
        f"{sample.path.name} has answers that are not labels of the training table: {first_few(map(repr, unknown))};"
        " the submission will hold the labels of the training table, unchanged",
    )
