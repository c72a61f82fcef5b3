"""A table of a competition: its rows as text, by the lines of its file; and checks of its cells.

A long submission has a row for each label of an image: `LongRows` says which cell of the wide table each of them is.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError

NAMELESS = "column 1"  # how csv_files.py calls a first column whose header is blank


class LongRows(NamedTuple):
    """The rows of a long table, and which cell of the wide one each of them is."""

    columns: tuple[str, str]  # of the ids and the answers
    explained_by: tuple[str, str] | None  # columns of another table that hold the images and the names
    ids: list[str]
    images: NDArray[np.int64]  # the row of the wide table
    names: NDArray[np.int64]  # the column of the wide table, after that of the ids

    def answers_of(self, wide: Sequence[Sequence[str]]) -> list[list[str]]:
        """Returns id and answer of each row; `wide` holds the answers of each image."""
        places = zip(self.ids, self.images.tolist(), self.names.tolist(), strict=True)
        return [[row_id, wide[image][name]] for row_id, image, name in places]

    def split(self, cells: "pd.Series[str]") -> "list[pd.Series[str]]":
        """Returns the cells of each column; their index holds ids of these rows."""
        names = self.names[self._places(cells)]
        return [cells[names == number] for number in range(int(self.names.max()) + 1)]

    def widen(self, cells: "pd.Series[str]") -> pd.DataFrame:
        """Returns these cells with a row for each image; NaN where there is no row for a name."""
        places = self._places(cells)
        frame = pd.DataFrame({"image": self.images[places], "name": self.names[places], "cell": cells.to_numpy()})
        count = int(self.names.max()) + 1
        return frame.pivot(index="image", columns="name", values="cell").reindex(columns=range(count))

    def _places(self, cells: "pd.Series[str]") -> NDArray[np.int64]:
        return np.asarray(pd.Index(self.ids).get_indexer(pd.Index(cells.index)))


class Table(NamedTuple):
    path: Path
    rows: pd.DataFrame  # of text; the index holds the lines of the file; a sample submission's ids come first
    origin: str = ""  # why this file is that table
    notes: tuple[str, ...] = ()
    id_position: int = 0  # of a sample submission's id column in the file
    ids_name_images: bool = False  # those of a sample submission
    long: LongRows | None = None  # of a sample submission whose file has a row for each label
    validation: frozenset[int] = frozenset()  # lines of the training table whose images are for validation
    files: tuple[str, ...] = ()  # from which the rows come, below the competition's folder

    votes: pd.DataFrame | None = None  # of a training table: the share of each answer column in the row's votes
    counted: "pd.Series[str] | None" = None  # the index that pandas wrote first, without a name; not among the rows

    @property
    def answer_columns(self) -> list[str]:
        """The columns of a sample submission that are to be filled in."""
        return [str(column) for column in self.rows.columns[1:]]

    def noting(self, *notes: str) -> "Table":
        return self._replace(notes=(*self.notes, *filter(None, notes)))


def take_index(rows: pd.DataFrame) -> "tuple[pd.DataFrame, pd.Series[str] | None]":
    """Takes out a first column without a name that counts the rows, as pandas writes its index beside other columns."""
    first = rows.iloc[:, 0]
    counts = [str(number) for number in range(len(rows))]
    if rows.shape[1] < 3 or first.name != NAMELESS or first.tolist() != counts:
        return rows, None
    return rows.drop(columns=NAMELESS), first


def refuse_blank_cells(cells: pd.Series, path: Path, column_name: str) -> None:
    is_blank = cells.str.strip() == ""
    if is_blank.any():
        raise PodiumError(f"{path}, line {is_blank.idxmax()}: no {column_name}; fill it in or delete the line")


def have_line_breaks(cells: pd.DataFrame | pd.Series) -> NDArray[np.bool_]:
    """Returns which cells of text have one; one loop over all, because there may be a million columns."""
    texts = cells.to_numpy(object)
    has_break = ("\n" in text or "\r" in text for text in texts.flat)
    return np.fromiter(has_break, bool, texts.size).reshape(texts.shape)
