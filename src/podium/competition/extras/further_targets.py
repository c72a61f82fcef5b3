"""Further columns of the training table that are learned beside the answers: the card's `also`.

    also = ["height", "site"]      in the card; only the training table needs these columns

A column of numbers, of ten values or more, is learned as numbers; one whose cells list labels (`red|round`) as several
labels; any other as a label, whose classes are its texts. A blank cell is unknown: its image teaches nothing of that
column. Prediction never needs them.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.decide.further_columns import numbers_in
from podium.competition.decide.labels import find_separator
from podium.competition.decide.number_columns import MIN_VALUES

Floats = NDArray[np.float32]
SEPARATORS = ("|", ";")  # of labels in a cell; a blank or a comma may be a part of one text
MOST_TEXTS = 1000  # of a column; images of rarer ones are unknown
FEWEST = 2  # images of a text: nothing that occurs once can be learned


class FurtherColumn(NamedTuple):
    name: str
    start: int  # the number of its first output
    classes: tuple[str, ...]  # its texts, an output each; none: numbers, which have one output
    separator: str = ""  # between the labels of a cell, if there may be several

    @property
    def part(self) -> slice:
        return slice(self.start, self.start + max(1, len(self.classes)))

    def describe(self) -> str:
        what = "labels, several an image" if self.separator else "classes"
        return f"{self.name} ({f'{len(self.classes)} {what}' if self.classes else 'numbers'})"


@dataclass(frozen=True, eq=False)
class FurtherTargets:
    cells: pd.DataFrame  # of text, stripped; the index holds the ids of the images

    @cached_property
    def columns(self) -> tuple[FurtherColumn, ...]:
        columns: list[FurtherColumn] = []
        for name in self.cells:
            start = columns[-1].part.stop if columns else 0
            cells = self.cells[name]
            separator = "" if _are_numbers(cells) else find_separator(cells[cells != ""])
            separator = separator if separator in SEPARATORS else ""
            columns.append(FurtherColumn(str(name), start, _classes_of(cells, separator), separator))
        return tuple(columns)

    @property
    def outputs(self) -> int:
        return int(self.columns[-1].part.stop)

    def describe(self) -> str:
        return first_few(column.describe() for column in self.columns)

    def of(self, ids: Sequence[str]) -> Floats:
        """Returns a row for each image: its numbers in deviations, and 1 for its texts; nan where it is unknown."""
        values = np.full((len(self.cells), self.outputs), np.nan, np.float32)
        for column in self.columns:
            cells = self.cells[column.name]
            if column.separator:
                number_of = {name: number for number, name in enumerate(column.classes)}
                for row, labels in enumerate(_lists_in(cells, column.separator)):
                    if labels:
                        values[row, column.part] = 0
                        learned = [column.start + number_of[label] for label in labels if label in number_of]
                        values[row, learned] = 1
            elif column.classes:
                place = pd.Index(column.classes).get_indexer(cells)
                known = place >= 0
                values[known, column.part] = np.eye(len(column.classes), dtype=np.float32)[place[known]]
            else:
                numbers = numbers_in(cells)
                values[:, column.start] = (numbers - np.nanmean(numbers)) / (np.nanstd(numbers) or 1.0)
        return np.asarray(values[self.cells.index.get_indexer(list(ids))])

    @property
    def known_shares(self) -> list[float]:
        """Returns the share of the images of which each column is known."""
        values = self.of(self.cells.index.tolist())
        return [max(float(1 - np.isnan(values[:, column.start]).mean()), 1e-6) for column in self.columns]

    @cached_property
    def sha256(self) -> str:
        text = "\0".join([*map(str, self.cells.columns), *self.cells.index, *self.cells.to_numpy().ravel().tolist()])
        text += "".join(f"\0{column.name} {column.separator}" for column in self.columns if column.separator)
        return hashlib.sha256(text.encode()).hexdigest()

    def check(self, where: str) -> None:
        """Refuses a column that teaches nothing."""
        for column in self.columns:
            if column.classes == () and not np.isfinite(numbers_in(self.cells[column.name])).any():
                raise PodiumError(f"{where}: also names '{column.name}', of which no cell says anything; leave it out")
            if len(column.classes) == 1:
                raise PodiumError(
                    f"{where}: also names '{column.name}', of which only '{column.classes[0]}' has two images or more;"
                    " nothing can be learned of it: leave it out"
                )


def _are_numbers(cells: "pd.Series[str]") -> bool:
    known = cells[cells != ""]
    return bool((np.isfinite(numbers_in(known)).all() and known.nunique() >= MIN_VALUES) or not len(known))


def _lists_in(cells: "pd.Series[str]", separator: str) -> "pd.Series[Any]":
    """Returns the labels of each cell."""
    return cells.map(lambda cell: [part.strip() for part in cell.split(separator) if part.strip()])


def _classes_of(cells: "pd.Series[str]", separator: str) -> tuple[str, ...]:
    """Returns the texts of a column that are learned; none of a column of numbers."""
    if _are_numbers(cells):
        return ()
    known = cells[cells != ""]
    if separator:
        known = _lists_in(known, separator).explode()
    counts = known.value_counts()
    texts = sorted(counts.index[counts >= FEWEST], key=lambda text: (-counts[text], text))[:MOST_TEXTS]
    return tuple(texts) or (known.iloc[0],)
