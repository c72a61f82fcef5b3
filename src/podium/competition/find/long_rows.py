"""The rows of a long submission, which has a row for each label of an image, and the cells of the wide table."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray


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
