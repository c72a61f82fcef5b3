"""What the cells of a submission hold, and what they say.

An AnswerForm writes predictions as cells and reads cells as predictions, finds wrong cells, compares the cells of two
files, and describes them. Nothing else knows what a cell of a known competition is.

Predictions are an array with a row for each image: a probability for each class, or a number for each column. Cells are
text: a column of them for each column of the submission, without the ids.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.terminal import first_few
from podium.tasks.task import HALF, add_most_probable, column_and_label, parts_by_column

Array = NDArray[Any]
Cells = Sequence["pd.Series[str]"]  # a column of cells for each of the form's

MOST_OTHER_LABELS = 0.002  # share of the labels that differs if one model is computed on two devices
MOST_DIFFERENCE = 0.01  # of a probability or a number, likewise
SUM_TOLERANCE = 1e-5  # of the probabilities of an image


@dataclass(frozen=True)
class AnswerForm(ABC):
    columns: tuple[str, ...]
    classes: tuple[str, ...]  # of numbers, the columns

    wants: ClassVar[str] = "labels"  # of WANTS in metrics.py
    is_not: ClassVar[str] = "a class"  # what a wrong cell is not

    @property
    @abstractmethod
    def words(self) -> str:
        """What a row holds."""

    @abstractmethod
    def values(self, predictions: Array) -> list[Sequence[Any]]:
        """Returns the cells of each column: text, or numbers that are not rounded."""

    @abstractmethod
    def read(self, cells: Cells) -> Array:
        """Returns the predictions that the cells stand for, none of which is wrong: sure ones, if they are labels."""

    @abstractmethod
    def are_wrong(self, cells: "pd.Series[str]", column: str) -> Array: ...

    @property
    def remedy(self) -> str:
        return f"the classes are {first_few(self.classes)}"

    @property
    def solution_form(self) -> "AnswerForm":
        """How a solution holds the truth."""
        return self

    def write(self, predictions: Array) -> list[list[str]]:
        """Returns the cells of each row."""
        return [list(row) for row in zip(*self.values(predictions), strict=True)]

    def find_problem(self, cells: Cells) -> tuple[Any, str] | None:
        """Returns the index of the first wrong cell, and what is wrong with it."""
        for column, own in zip(self.columns, cells, strict=True):
            wrong = own[self.are_wrong(own, column)]
            if len(wrong):
                return wrong.index[0], f"'{wrong.iloc[0]}' is not {self.is_not}; {self.remedy}"
        return None

    def agree(self, cells: Cells, others: Cells) -> bool:
        """Returns whether two files have the same answers, except for rounding."""
        shares = [float((own.to_numpy() != other.to_numpy()).mean()) for own, other in zip(cells, others, strict=True)]
        return float(np.mean(shares)) < MOST_OTHER_LABELS


def _sure(labels: "pd.Series[str]", classes: Sequence[str]) -> Array:
    """Returns a probability of 1 for each label."""
    number_of = {name: number for number, name in enumerate(classes)}
    return np.eye(len(classes))[[number_of[label] for label in labels]]


def _labels_in(cell: str, separator: str) -> list[str]:
    return [label for label in cell.split(separator) if label]


# --- labels ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelForm(AnswerForm):
    """The most probable label."""

    words = "one label"

    def values(self, predictions: Array) -> list[Sequence[Any]]:
        return [[self.classes[best] for best in predictions.argmax(axis=1)]]

    def read(self, cells: Cells) -> Array:
        return _sure(cells[0], self.classes)

    def are_wrong(self, cells: "pd.Series[str]", column: str) -> Array:
        return np.asarray(~cells.isin(self.classes))


@dataclass(frozen=True)
class LabelWithProbabilityForm(LabelForm):
    """The most probable label and its probability: `138982 0.1`."""

    words = "one label and its probability"
    is_not = "a class and its probability"

    @property
    def solution_form(self) -> AnswerForm:
        return LabelForm(self.columns, self.classes)

    def values(self, predictions: Array) -> list[Sequence[Any]]:
        (labels,), probs = super().values(predictions), predictions.max(axis=1)
        return [[f"{label} {prob:.6g}" for label, prob in zip(labels, probs, strict=True)]]

    def read(self, cells: Cells) -> Array:
        labels, probs = _label_and_number(cells[0])
        least = np.finfo(np.float64).tiny  # the label stays the most probable one
        return np.asarray(_sure(labels, self.classes) * probs.clip(min=least)[:, None])

    def are_wrong(self, cells: "pd.Series[str]", column: str) -> Array:
        labels, probs = _label_and_number(cells)
        is_probability = (probs >= 0) & (probs <= 1)
        return np.asarray(~labels.isin(self.classes) | ~is_probability)

    def agree(self, cells: Cells, others: Cells) -> bool:
        (own, own_probs), (other, other_probs) = (_label_and_number(column[0]) for column in (cells, others))
        return super().agree([own], [other]) and np.allclose(own_probs, other_probs, atol=MOST_DIFFERENCE)


def _label_and_number(cells: "pd.Series[str]") -> tuple["pd.Series[str]", Array]:
    parts = cells.str.rpartition(" ")
    return parts[0], pd.to_numeric(parts[2], errors="coerce").to_numpy(float)


@dataclass(frozen=True)
class LabelListForm(AnswerForm):
    """All labels that are more probable than not, in one cell; how many a cell of the sample holds limits nothing.

    Those are placeholders, such as iMet's `0 1 2` in each row, while F1 and F2 count every label that is right.
    """

    separator: str
    may_be_blank: bool  # else each image gets its most probable label at least

    words = "the labels"

    @property
    def solution_form(self) -> AnswerForm:
        return replace(self, may_be_blank=True)

    def values(self, predictions: Array) -> list[Sequence[Any]]:
        is_chosen = predictions >= HALF
        if not self.may_be_blank:
            is_chosen = add_most_probable(is_chosen, predictions)
        return [[self.separator.join(self.classes[number] for number in np.flatnonzero(row)) for row in is_chosen]]

    def read(self, cells: Cells) -> Array:
        predictions = np.zeros((len(cells[0]), len(self.classes)))
        number_of = {name: number for number, name in enumerate(self.classes)}
        for row, cell in zip(predictions, cells[0], strict=True):
            row[[number_of[label] for label in _labels_in(cell, self.separator)]] = 1
        return predictions

    def are_wrong(self, cells: "pd.Series[str]", column: str) -> Array:
        known = set(self.classes)
        return np.array([not known.issuperset(_labels_in(cell, self.separator)) for cell in cells], bool)


@dataclass(frozen=True)
class LabelInEachColumnForm(AnswerForm):
    """The most probable label of each of several targets. The classes are called `column=label`."""

    words = "a label in each column"

    def values(self, predictions: Array) -> list[Sequence[Any]]:
        return [
            [labels[best] for best in predictions[:, part].argmax(axis=1)]
            for part, labels in map(self._own, self.columns)
        ]

    def read(self, cells: Cells) -> Array:
        predictions = np.zeros((len(cells[0]), len(self.classes)))
        for column, own in zip(self.columns, cells, strict=True):
            part, labels = self._own(column)
            predictions[:, part] = _sure(own, labels)
        return predictions

    def are_wrong(self, cells: "pd.Series[str]", column: str) -> Array:
        return np.asarray(~cells.isin(self._own(column)[1]))

    def _own(self, column: str) -> tuple[slice, list[str]]:
        """Returns where the classes of a column stand, and their labels."""
        part = parts_by_column(self.classes)[column]
        return part, [column_and_label(name)[1] for name in self.classes[part]]


@dataclass(frozen=True)
class RankingForm(AnswerForm):
    """The most probable labels, the best one first."""

    separator: str
    places: int

    wants = "ranking"
    is_not = "a ranking of different classes"

    @property
    def words(self) -> str:
        return f"the {self.places} most probable labels"

    @property
    def solution_form(self) -> AnswerForm:
        return LabelForm(self.columns, self.classes)

    def values(self, predictions: Array) -> list[Sequence[Any]]:
        order = (-predictions).argsort(axis=1, kind="stable")[:, : self.places].tolist()
        return [[self.separator.join(self.classes[number] for number in row) for row in order]]

    def read(self, cells: Cells) -> Array:
        predictions = np.zeros((len(cells[0]), len(self.classes)))
        number_of = {name: number for number, name in enumerate(self.classes)}
        for row, cell in zip(predictions, cells[0], strict=True):
            for place, label in enumerate(_labels_in(cell, self.separator)):
                row[number_of[label]] = 1 / (place + 1)
        return np.asarray(predictions / predictions.sum(axis=1, keepdims=True))

    def are_wrong(self, cells: "pd.Series[str]", column: str) -> Array:
        known, places = set(self.classes), min(self.places, len(self.classes))
        lists = [_labels_in(cell, self.separator) for cell in cells]
        return np.array([len(own) != places or len(known.intersection(own)) != places for own in lists], bool)

    def agree(self, cells: Cells, others: Cells) -> bool:
        """Compares place by place, because rounding exchanges two labels and leaves the others."""
        (own, other) = (
            [label for cell in column[0] for label in _labels_in(cell, self.separator)] for column in (cells, others)
        )
        return len(own) == len(other) and super().agree([pd.Series(own)], [pd.Series(other)])


# --- probabilities and numbers -----------------------------------------------------------------------


@dataclass(frozen=True)
class NumberForm(AnswerForm):
    """A number in each column."""

    wants = "numbers"
    is_not = "a number"
    remedy = "write a number"

    @property
    def words(self) -> str:
        return "a number" if len(self.columns) == 1 else "the numbers"

    def values(self, predictions: Array) -> list[Sequence[Any]]:
        return list(predictions.T)

    def write(self, predictions: Array) -> list[list[str]]:
        return [[f"{number:.9g}" for number in row] for row in zip(*self.values(predictions), strict=True)]

    def read(self, cells: Cells) -> Array:
        return np.column_stack([pd.to_numeric(own, errors="coerce").to_numpy(np.float64) for own in cells])

    def are_wrong(self, cells: "pd.Series[str]", column: str) -> Array:
        return np.asarray(~np.isfinite(pd.to_numeric(cells, errors="coerce")))

    def agree(self, cells: Cells, others: Cells) -> bool:
        own, other = ([column.astype(float) for column in columns] for columns in (cells, others))
        return bool(np.allclose(own, other, atol=MOST_DIFFERENCE))


@dataclass(frozen=True)
class ProbabilityForm(NumberForm):
    """The probability of a class in each column; that of two labels in a single one is the last one's."""

    outputs: tuple[int, ...]  # the number of each column's class
    of_one_label: bool

    wants = "probs"
    is_not = "a probability"
    remedy = "write a number from 0 to 1"

    @property
    def words(self) -> str:
        single = f"the probability of '{self.classes[-1]}'"
        return single if len(self.columns) == 1 else "the probability of each class"

    def values(self, predictions: Array) -> list[Sequence[Any]]:
        return list(predictions[:, list(self.outputs)].T)

    def read(self, cells: Cells) -> Array:
        values = super().read(cells)
        if self.of_one_label and len(self.columns) == 1:
            return np.hstack([1 - values, values])
        predictions = np.zeros((len(values), len(self.classes)))
        predictions[:, list(self.outputs)] = values
        return predictions

    def are_wrong(self, cells: "pd.Series[str]", column: str) -> Array:
        return np.asarray(~pd.to_numeric(cells, errors="coerce").between(0, 1))

    def find_problem(self, cells: Cells) -> tuple[Any, str] | None:
        problem = super().find_problem(cells)
        if problem or not self.of_one_label or len(self.columns) == 1:
            return problem
        wrong = self.wrong_sums(cells)
        if not len(wrong):
            return None
        return wrong.index[0], f"the probabilities sum to {wrong.iloc[0]:.6g}, not 1; divide them by their sum"

    def wrong_sums(self, cells: Cells) -> "pd.Series[float]":
        """Returns the sums of the rows of one label that are not 1."""
        if not self.of_one_label or len(self.columns) == 1:
            return pd.Series(dtype=float)
        sums = pd.concat([own.astype(float) for own in cells], axis=1).sum(axis=1)
        return sums[(sums - 1).abs() > SUM_TOLERANCE]
