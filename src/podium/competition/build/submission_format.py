"""The format of a submission: its header, its columns, and which form the answers in its cells have (answer_form.py).

guess_submission.py finds it out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from podium.competition.answer_form import (
    AnswerForm,
    LabelForm,
    LabelInEachColumnForm,
    LabelListForm,
    LabelWithProbabilityForm,
    NumberForm,
    ProbabilityForm,
    RankingForm,
)
from podium.competition.find.csv_files import CsvStyle, csv_text
from podium.competition.find.table import LongRows
from podium.tasks.task import ONE_LABEL, Task

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
    ids: tuple[str, ...] = ()  # of the rows, if several have one id: they get its answer
    long: LongRows | None = None  # if a row holds not the answers of an image but one of them
    column_classes: tuple[str, ...] = ()  # whose probabilities the columns hold; (): those of all classes, in order
    reason: str = ""  # why the cells hold that
    counted: tuple[str, tuple[str, ...]] | None = None  # a first column of no meaning, copied: its name and cells

    @property
    def line_style(self) -> CsvStyle:
        """How the submission's lines are written."""
        return self.csv_style or CsvStyle(csv_text([self.columns], ""), ",", "\n")

    @property
    def header(self) -> tuple[str, ...]:
        columns = self.long.columns if self.long else self.columns
        return (self.counted[0], *columns) if self.counted else columns

    @property
    def id_column(self) -> str:
        return (self.long.columns if self.long else self.columns)[self.id_position]  # a long one has it first

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
        return LabelWithProbabilityForm(columns, classes) if self.has_confidence else LabelForm(columns, classes)

    def outputs_in_columns(self, classes: Sequence[str]) -> list[int]:
        """Returns which of the model's outputs each column holds; a single column of two classes holds the last."""
        names = self.column_classes or classes[-len(self.answer_columns) :]
        return [classes.index(name) for name in names]
