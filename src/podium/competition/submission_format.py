"""Works out a submission's format: its columns, what they hold, and the classes in the order of the model's outputs.

Uses the sample submission and the card. Writes nothing.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from podium.competition.answer_form import (
    AnswerForm,
    LabelForm,
    LabelInEachColumnForm,
    LabelListForm,
    NumberForm,
    ProbabilityForm,
    RankingForm,
    SureLabelForm,
)
from podium.competition.card import Card
from podium.competition.class_columns import advise_other_sample, classes_of_columns
from podium.competition.csv_files import CsvStyle, csv_style_of, csv_text
from podium.competition.find_tables import Sources, Table
from podium.competition.grades import METRIC, in_order
from podium.competition.labels import sort_labels
from podium.competition.long_rows import LongRows
from podium.competition.positive_class import note_guess, put_positive_last
from podium.errors import PodiumError
from podium.tasks.metrics import METRICS
from podium.tasks.task import ONE_LABEL, Task, column_and_label
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
    has_confidence: bool = False  # after the label of a cell, its probability follows: `138982 0.1`
    long: LongRows | None = None  # if a row holds not the answers of an image but one of them
    column_classes: tuple[str, ...] = ()  # whose probabilities the columns hold; (): those of all classes, in order

    @property
    def line_style(self) -> CsvStyle:
        """How the submission's lines are written."""
        return self.csv_style or CsvStyle(csv_text([self.columns], ""), ",", "\n")

    @property
    def header(self) -> tuple[str, ...]:
        return self.long.columns if self.long else self.columns

    @property
    def id_column(self) -> str:
        return self.header[self.id_position]  # a long one has it first, like the wide one

    @property
    def answer_columns(self) -> tuple[str, ...]:
        return (*self.columns[: self.id_position], *self.columns[self.id_position + 1 :])

    def answer_cells(self, table: pd.DataFrame) -> "list[pd.Series[str]]":
        """Returns the cells of each answer column of a submission, by line; of a long one, those that it has."""
        if self.long:
            cells, columns = table[self.long.columns[1]], range(len(self.answer_columns))
            return [cells[self.long.names == number] for number in columns]
        return [table[column] for column in self.answer_columns]

    def answer_form(self, task: Task, classes: tuple[str, ...], targets: Iterable[str]) -> AnswerForm:
        """Returns what the cells hold; an image may have none of several labels if one of the training images has."""
        columns = self.answer_columns
        if not task.are_labels:
            return NumberForm(columns, classes)
        if task.has_columns:
            return LabelInEachColumnForm(columns, classes)
        if self.wants == "probs":
            outputs = tuple(self.outputs_in_columns(classes))
            return ProbabilityForm(columns, classes, outputs, task.sums_to_one and self.long is None)
        if self.wants == "ranking":
            return RankingForm(columns, classes, self.separator, self.places)
        if task is not ONE_LABEL:
            return LabelListForm(columns, classes, self.separator, may_be_blank="" in set(targets))
        return SureLabelForm(columns, classes) if self.has_confidence else LabelForm(columns, classes)

    def outputs_in_columns(self, classes: Sequence[str]) -> list[int]:
        """Returns which of the model's outputs each column holds; a single column of two classes holds the last."""
        names = self.column_classes or classes[-len(self.answer_columns) :]
        return [classes.index(name) for name in names]


def submission_format_of(
    sources: Sources, train_columns: tuple[str, str], train_labels: list[str]
) -> tuple[SubmissionFormat, list[str]]:
    """Returns the format and the classes: those of the training images, and others with a column in the sample.

    `train_columns` are the names of the training table's id and label columns.
    """
    card, sample = sources.card, sources.sample
    _refuse_other_wants(sources)
    if sample is None:
        return _format_without_sample(sources, train_columns, train_labels)
    answer_columns = sample.answer_columns
    if not answer_columns:
        raise PodiumError(
            f"{sample.path}: only one column, but a submission has an id and a prediction{advise_other_sample(card)}"
        )
    wants, classes = _answers_in(sources, sample, train_labels)
    column_classes = tuple(classes) if len(answer_columns) > 1 and sources.task is ONE_LABEL else ()
    classes = _as_metrics_count(sources, classes) if column_classes else classes
    position = sample.id_position
    columns = (*answer_columns[:position], str(sample.rows.columns[0]), *answer_columns[position:])
    csv_style = csv_style_of(sample.path, list(sample.long.columns if sample.long else columns))
    notes = (
        *(_notes_on_answers(sources, train_labels) if wants == "labels" and len(answer_columns) == 1 else ()),
        *csv_style.notes,
    )
    places = _places(sources) if wants == "ranking" else 1
    separator = sources.separator or " "
    has_confidence = wants == "labels" and _have_confidence(sources, sample)
    form = SubmissionFormat(columns, wants, sample.path.name, csv_style, position, notes, separator, places)
    return replace(form, has_confidence=has_confidence, long=sample.long, column_classes=column_classes), classes


def _as_metrics_count(sources: Sources, classes: list[str]) -> list[str]:
    """Returns the classes of several columns in the order that metrics rely on, whatever the order of the columns.

    Of two classes the positive one comes last; grades are in theirs.
    """
    if len(classes) == 2:
        return put_positive_last(sources.card, classes, marked=sources.marked)
    return in_order(sources.card, set(classes)) if sources.card.get("metric") == METRIC else classes


def _answers_in(sources: Sources, sample: Table, train_labels: list[str]) -> tuple[str, list[str]]:
    """Returns what the sample's cells hold, and the classes."""
    card, answer_columns, has_one_label = sources.card, sample.answer_columns, sources.task is ONE_LABEL
    if sources.task.has_columns:
        return sources.task.wants[0], _classes_by_column(sources, train_labels)
    if len(answer_columns) > 1:
        if card.get("wants") == "labels":
            raise PodiumError(
                f"{sample.path}: {len(answer_columns)} columns to fill, not one label;"
                f' remove wants = "labels" from {card.path}'
            )
        return "probs", classes_of_columns(answer_columns, train_labels, sample, card)
    if not has_one_label:
        return "labels", train_labels
    wants = card.get("wants") or _guess_wants(card, sample, train_labels)
    if wants != "probs":
        return wants, train_labels
    if len(train_labels) != 2:
        problem = f"one column to fill for {len(train_labels)} classes"
        raise PodiumError(f'{sample.path}: {problem}; remove wants = "probs" from {card.path}')
    note_guess(sources, train_labels, answer_columns[0])
    return wants, put_positive_last(card, train_labels, answer_columns[0], sources.marked)


def _format_without_sample(
    sources: Sources, train_columns: tuple[str, str], train_labels: list[str]
) -> tuple[SubmissionFormat, list[str]]:
    card, separator = sources.card, sources.separator or " "
    if sources.task.has_columns:
        classes = _classes_by_column(sources, train_labels)
        return SubmissionFormat((train_columns[0], *sources.columns), sources.task.wants[0], NO_SAMPLE), classes
    has_one_label = sources.task is ONE_LABEL
    default = "labels" if has_one_label or sources.separator else "probs"
    if has_one_label and "metric" in card and METRICS[card["metric"]]().wants == "ranking":
        default = "ranking"
    wants = card.get("wants", default)
    is_single_column = wants != "probs" or (len(train_labels) == 2 and has_one_label)
    columns = train_columns if is_single_column else (train_columns[0], *train_labels)
    classes = train_labels
    if has_one_label:
        classes = put_positive_last(card, train_labels, train_columns[1], sources.marked)
        if wants == "probs":
            note_guess(sources, train_labels, train_columns[1])
    places = _places(sources) if wants == "ranking" else 1
    return SubmissionFormat(columns, wants, NO_SAMPLE, separator=separator, places=places), classes


def _classes_by_column(sources: Sources, train_labels: list[str]) -> list[str]:
    """Returns the columns of numbers, or the classes of each column; in the order of the training table."""
    if not sources.task.are_labels:
        return sources.columns
    pairs = [column_and_label(name) for name in train_labels]
    return [
        f"{column}={label}"
        for column in sources.columns
        for label in sort_labels({label for own, label in pairs if own == column})
    ]


def _refuse_other_wants(sources: Sources) -> None:
    """Raises if the card wants answers that the task does not have."""
    card, task = sources.card, sources.task
    if card.get("wants", task.wants[0]) not in task.wants:
        raise PodiumError(
            f'{card.path}: wants = "{card["wants"]}", but the training table has {task.words}; write'
            f' {" or ".join(task.wants)} there, or task = "NAME"'
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


def _have_confidence(sources: Sources, sample: Table) -> bool:
    """Returns whether each answer is a label and a probability; a blank one says that there is no label."""
    if sources.task is not ONE_LABEL:
        return False
    answers = sample.rows.iloc[:, 1].str.strip()
    answers = answers[answers != ""]
    return len(answers) > 0 and bool(answers.str.fullmatch(r"\S+ ([01]?\.[0-9]+|1\.0*|[0-9.]+e-[0-9]+)").all())


def _is_probability(cell: str) -> bool:
    try:
        return 0 <= float(cell) <= 1
    except ValueError:
        return False


def _notes_on_answers(sources: Sources, train_labels: list[str]) -> tuple[str, ...]:
    sample = sources.sample
    assert sample is not None
    answers = sample.rows.iloc[:, 1]
    if _have_confidence(sources, sample):
        answers = answers.str.partition(" ")[0]
    elif sources.task is not ONE_LABEL:
        answers = answers.str.split(sources.separator or " ").explode().fillna("")
    unknown = answers[~answers.isin(train_labels) & (answers.str.strip() != "")].drop_duplicates()
    if not len(unknown):
        return ()
    return (
        f"{sample.path.name} has answers that are not labels of the training table: {first_few(map(repr, unknown))};"
        " the submission will hold the labels of the training table, unchanged",
    )
