"""Reads a Parquet file whose rows are images: a column for each pixel, or the bytes of image files in one column."""

import bisect
import threading
from collections import Counter
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.extras import import_package
from podium.basics.terminal import first_few
from podium.competition.containers.pixel_names import names_of, pixel_columns, shape_of

COLUMNS_AT_ONCE = 1024  # of pixels: bounds the memory
READING = threading.Lock()


class ParquetFile:
    def __init__(self, path: Path, shape: str) -> None:
        reading = f"{path}: reading it"
        self.path, self.arrow = path, import_package("pyarrow", "formats", reading)
        parquet = import_package("pyarrow.parquet", "formats", reading)
        try:
            self.file = parquet.ParquetFile(path)
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise PodiumError(f"{path}: not a Parquet file that can be read ({reason}); download it again") from None
        self.schema = self.file.schema_arrow
        columns = list(self.schema.names)
        if repeated := [name for name, count in Counter(columns).items() if count > 1]:
            raise PodiumError(f"{path}: several columns are called {first_few(repeated)}; rename all but one")
        self.pixel_names = [columns[position] for position in pixel_columns(columns)]
        self.image_name = "" if self.pixel_names else self._image_column()
        self.pixels = ""
        if self.pixel_names:
            self._refuse_other_types()
            self.shape = shape_of(len(self.pixel_names), shape, str(path))
            self.pixels = f"{self.shape[0]} x {self.shape[1]} pixels, grey"
        metadata = self.file.metadata
        self.ends = list(accumulate(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)))
        count = metadata.num_rows if self.pixels or self.image_name else 0
        # Zeros in front: the store reads images in the order of their names, and this is then that of the rows.
        self.keys = [f"{row:0{len(str(count))}}" for row in range(1, count + 1)]
        self.names, self.has_ids = names_of(self.rows, count) if count else ([], False)

    def _refuse_other_types(self) -> None:
        """Refuses columns of pixels whose type has no numbers, such as lists; texts of numbers are read."""
        types = self.arrow.types
        for name in self.pixel_names:
            kind = self.schema.field(name).type
            if types.is_nested(kind) or types.is_temporal(kind) or self._is_bytes(kind):
                raise PodiumError(
                    f"{self.path}: the column '{name}' holds {str(kind)[:60]}, not pixels; write whole numbers from 0"
                    " to 255, a column for each pixel, or the bytes of image files in one column"
                )

    def _image_column(self) -> str:
        """Returns the first column of bytes, or of structs with bytes; "" if there is none."""
        types = self.arrow.types
        for field in self.schema:
            kind = field.type
            if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
                kind = kind.field("bytes").type
            if self._is_bytes(kind):
                return str(field.name)
        return ""

    def _is_bytes(self, kind: Any) -> bool:
        """Returns whether the cells of a column are bytes, however the writer has stored them."""
        types = self.arrow.types
        if types.is_dictionary(kind):
            kind = kind.value_type
        return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))

    @cached_property
    def rows(self) -> pd.DataFrame:
        pixels = {*self.pixel_names, self.image_name}
        names = [
            field.name
            for field in self.schema
            if field.name not in pixels and not self.arrow.types.is_nested(field.type)
        ]
        table = self.file.read(columns=names)
        cells = {name: ["" if cell is None else str(cell) for cell in table.column(name).to_pylist()] for name in names}
        return pd.DataFrame(cells, index=range(1, self.file.metadata.num_rows + 1), dtype=object)

    def read(self, key: str) -> bytes | NDArray[np.uint8]:
        row = int(key) - 1
        if not 0 <= row < len(self.keys):
            raise ValueError(f"the file has {len(self.keys):,} rows")
        group = bisect.bisect_right(self.ends, row)
        with READING:
            values, is_wrong = read_group(self, group)
        row -= self.ends[group - 1] if group else 0
        if self.pixels:
            if is_wrong[row]:
                raise ValueError(f"row {int(key):,} has a pixel that is not a whole number from 0 to 255")
            image: NDArray[np.uint8] = values[row].reshape(self.shape)
            return image
        value = values[row].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if content is None:
            raise ValueError(f"row {int(key):,} has no image")
        return bytes(content)


@lru_cache(maxsize=2)  # images are read in order, by threads: at the end of a group, some read the next one
def read_group(container: ParquetFile, group: int) -> tuple[Any, Any]:
    """Returns the images of a group of rows and, for pixels, which rows are wrong."""
    if container.image_name:
        return container.file.read_row_group(group, columns=[container.image_name]).column(0), None
    count = container.file.metadata.row_group(group).num_rows
    pixels = np.empty((count, len(container.pixel_names)), np.uint8)
    is_wrong = np.zeros(count, bool)
    for start in range(0, len(container.pixel_names), COLUMNS_AT_ONCE):
        names = container.pixel_names[start : start + COLUMNS_AT_ONCE]
        table = container.file.read_row_group(group, columns=names)
        for position, name in enumerate(names, start):
            values = table.column(name).to_numpy()
            if values.dtype != np.uint8:
                values = values.astype(np.float64)
                is_wrong |= ~((values >= 0) & (values <= 255) & (values == np.floor(values)))
                values = np.nan_to_num(values).clip(0, 255)
            pixels[:, position] = values
    return pixels, is_wrong
