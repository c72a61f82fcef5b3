"""Reads a Parquet file that is one picture, a spectrogram: a column `time`, and a column of power for each frequency.

The picture has the frequencies from top to bottom and the time from left to right. Its greys are logarithms, from
LOWEST to HIGHEST; where a cell is empty or no power, the picture is black.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.extras import import_package
from podium.basics.terminal import first_line
from podium.competition.containers.image_place import MAX_PIXELS

TIME = "time"
FEWEST = 64  # frequencies
LOWEST, HIGHEST = -4.0, 8.0  # natural logarithms: nearly all powers of HMS's brain waves lie between
KEY = "picture"


def is_spectrogram(path: Path) -> bool:
    """Returns whether the columns of a Parquet file are those of a spectrogram; another reader reports a broken one."""
    arrow = import_package("pyarrow", "formats", f"{path}: reading it")
    parquet = import_package("pyarrow.parquet", "formats", f"{path}: reading it")
    try:
        schema = parquet.read_schema(path)
    except (OSError, ValueError):
        return False
    frequencies = [field for field in schema if field.name != TIME]
    has_time = len(frequencies) == len(schema.names) - 1
    return has_time and len(frequencies) >= FEWEST and all(arrow.types.is_floating(one.type) for one in frequencies)


class Spectrogram:
    has_ids = True

    def __init__(self, path: Path) -> None:
        self.path, self.names, self.keys = path, [path.stem], [KEY]
        self.rows = pd.DataFrame({"id": self.names}, index=[1], dtype=object)
        self.parquet: Any = import_package("pyarrow.parquet", "formats", f"{path}: reading it")
        self.pixels = f"a spectrogram each: frequency x time, logarithms from {LOWEST:g} to {HIGHEST:g}"

    def read(self, key: str) -> NDArray[np.uint8]:
        if key != KEY:
            raise ValueError("the file is one image")
        try:
            with self.parquet.ParquetFile(self.path) as file:
                rows, columns = file.metadata.num_rows, len(file.schema_arrow.names) - 1
                if rows * columns > MAX_PIXELS:
                    raise ValueError(f"it has {rows:,} x {columns:,} powers, more than {MAX_PIXELS // 10**6} million")
                table = file.read(columns=[name for name in file.schema_arrow.names if name != TIME])
        except OSError as error:
            raise ValueError(f"it is damaged ({first_line(error)})") from None
        if not rows:
            raise ValueError("it has no rows")
        powers = np.stack([column.to_numpy() for column in table.columns]).astype(np.float64)
        has_power = powers > 0  # not where a cell is empty
        logs = np.log(powers, where=has_power, out=np.full(powers.shape, LOWEST))
        scaled = (logs - LOWEST) / (HIGHEST - LOWEST) * 255
        return scaled.clip(0, 255).round().astype(np.uint8)
