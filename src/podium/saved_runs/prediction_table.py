"""Reads predictions from elsewhere, a table with a row for each image, as the probabilities of the classes.

The columns: `id`, and one for each class, or those of the sample submission: of two classes, the one for which it has a
column is enough. Numbers have theirs. `fold` is optional; `target`, `run` and `role`, which `podium compare
--predictions` writes, are not needed.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.disk import sha256
from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, plural, say
from podium.competition.find.csv_files import read_table
from podium.competition.load import Competition
from podium.tasks.task import Task

Source: TypeAlias = Path | str | pd.DataFrame
FACTS = ("id", "fold", "target", "run", "role")  # columns that are no class's
MOST_OFF = 1e-3  # from 1: sums that differ more are mentioned
SAVE_PROBABILITIES = "save what predict_proba or softmax gives, a column for each class"
SAVE_NUMBERS = "save a number for each image, in columns that are named as those of the training table"


@dataclass(frozen=True)
class PredictionTable:
    where: str  # for messages
    rows: pd.DataFrame  # of text; the index holds the lines
    sha256: str

    @classmethod
    def read(cls, source: Source, what: str) -> "PredictionTable":
        """Reads a CSV, or takes a data frame; `what` names it."""
        if isinstance(source, pd.DataFrame):
            text = source.to_csv(index=False)
            cells = source.astype(object).where(source.notna(), "").astype(str)
            cells.columns, cells.index = cells.columns.astype(str), pd.RangeIndex(1, len(cells) + 1)
            return cls(f"the data frame of {what}", cells, hashlib.sha256(text.encode()).hexdigest())
        path = Path(source)
        return cls(str(path), read_table(path, "write it again as CSV"), sha256(path))

    def error(self, row: int, problem: str) -> PodiumError:
        return PodiumError(f"{self.where}, line {self.rows.index[row]}: {problem}")

    def rows_of(self, competition: Competition, ids: Sequence[str], known: Collection[str], role: str) -> pd.DataFrame:
        """Returns the rows of these images in their order; others must be `known`."""
        column = next((name for name in ("id", competition.submission_format.id_column) if name in self.rows), None)
        if column is None:
            raise PodiumError(f"{self.where}: no column 'id'; its columns are {first_few(self.rows)}; rename one")
        own = self.rows[column].reset_index(drop=True)
        if len(repeated := np.flatnonzero(own.duplicated())):
            raise self.error(repeated[0], f"id '{own[repeated[0]]}' appears twice; delete one of its lines")
        if len(unknown := np.flatnonzero(~own.isin(list(known)))):
            raise self.error(
                unknown[0],
                f"no {role} image has the id '{own[unknown[0]]}'; write ids as the competition's files do, such as"
                f" '{ids[0]}'",
            )
        place = pd.Series(own.index, own).reindex(list(ids))
        if missing := place.index[place.isna()].tolist():
            raise PodiumError(
                f"{self.where}: no row for the {role} image '{missing[0]}' ({plural(len(missing), 'row')} missing);"
                " add them: a blend needs every image"
            )
        return self.rows.iloc[place.astype(int).to_numpy()]

    def probabilities(self, competition: Competition, rows: pd.DataFrame) -> NDArray[np.float32]:
        """Returns the probabilities of the classes, or the numbers, of these rows [images, classes]."""
        names, task = _columns_of(competition, self), competition.task
        probs = np.column_stack([self._numbers(rows, name, _remedy(task)) for name in names.values()])
        if task.are_labels:
            self._refuse_outside(competition, rows, names, probs)
        if task.sums_to_one and len(names) == 1 < len(competition.classes):
            (known,) = names
            both = np.column_stack([1 - probs[:, 0], probs[:, 0]])
            return (both if known == 1 else both[:, ::-1]).astype(np.float32)
        for part in task.parts(len(names), task.columns_of(competition.classes)):
            probs[:, part] = self._normalised(rows, probs[:, part])
        return probs.astype(np.float32)

    def _numbers(self, rows: pd.DataFrame, column: str, remedy: str) -> NDArray[np.float64]:
        numbers: NDArray[np.float64] = pd.to_numeric(rows[column], errors="coerce").to_numpy(np.float64)
        if not np.isfinite(numbers).all():
            line, cell = next(iter(rows[column][~np.isfinite(numbers)].items()))
            raise PodiumError(
                f"{self.where}, line {line}: '{cell}' in the column '{column}' is no number, and neither words"
                f" nor gaps can be blended; {remedy}"
            )
        return numbers

    def _refuse_outside(
        self, competition: Competition, rows: pd.DataFrame, names: dict[int, str], probs: NDArray[Any]
    ) -> None:
        """Refuses what can be no probability; where those of one label are normalised, they may be above 1."""
        is_share = bool(competition.task.parts(2, (1, 1))) and len(names) > 1
        bad = np.argwhere((probs < 0) | (probs > (np.inf if is_share else 1)))
        if len(bad):
            row, column = bad[0]
            raise PodiumError(
                f"{self.where}, line {rows.index[row]}: {probs[row, column]:g} in the column"
                f" '{list(names.values())[column]}' is no probability; {SAVE_PROBABILITIES} (of logits: their softmax)"
            )

    def _normalised(self, rows: pd.DataFrame, probs: NDArray[np.float64]) -> NDArray[np.float64]:
        sums = probs.sum(1, keepdims=True)
        if (sums <= 0).any():
            line = rows.index[int(np.argmax(sums[:, 0] <= 0))]
            raise PodiumError(f"{self.where}, line {line}: all its probabilities are 0; {SAVE_PROBABILITIES}")
        if off := int((np.abs(sums - 1) > MOST_OFF).sum()):
            low, high = sums.min(), sums.max()
            say(
                f"podium: note: {self.where}: the probabilities of {plural(off, 'row')} sum to {low:.4g} to {high:.4g},"
                " not 1; they are divided by their sum"
            )
        return np.asarray(probs / sums)


def _columns_of(competition: Competition, table: PredictionTable) -> dict[int, str]:
    """Returns the column of each class, by the class's number; of two classes, one is enough."""
    columns, classes, form = set(table.rows.columns), competition.classes, competition.submission_format
    names = {number: column_of(name, columns) for number, name in enumerate(classes)}
    if all(names.values()):
        return {number: str(name) for number, name in names.items()}
    answers = form.answer_columns
    if form.long is None and form.wants in ("probs", "numbers") and columns >= set(answers):
        is_probs = form.wants == "probs"
        places = form.outputs_in_columns(classes) if is_probs else list(range(len(classes)))
        found = dict(sorted(zip(places, answers, strict=True)))
        if len(found) == len(classes) or (competition.task.sums_to_one and len(classes) == 2):
            return found
    if competition.task.sums_to_one and len(classes) == 2 and names[1]:
        return {1: names[1]}
    lacking = next(classes[number] for number, name in names.items() if not name)
    what = "class" if competition.task.are_labels else "number"
    raise PodiumError(
        f"{table.where}: no column for the {what} '{lacking}'; its columns are {first_few(table.rows)};"
        f" {_remedy(competition.task)}"
    )


def _remedy(task: Task) -> str:
    return SAVE_PROBABILITIES if task.are_labels else SAVE_NUMBERS


def column_of(name: str, columns: Collection[str]) -> str | None:
    """Returns the column of a class; that of a class `id` is `class id`, as in all our tables."""
    if (long := f"class {name}") in columns:
        return long
    return name if name in columns and name not in FACTS else None
