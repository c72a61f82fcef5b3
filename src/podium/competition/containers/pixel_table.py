"""Reads a CSV file whose rows are images: a column for each pixel, or a cell with all pixels, separated by blanks.

A table may have a gigabyte, so it is read row by row, and only the place of each row is kept in memory.
"""

import csv
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.competition.containers.pixel_names import CELLS, FEWEST, names_of, pixel_columns, shape_of

LONGEST_LINE = 1 << 24  # bytes
LIMIT = threading.Lock()  # the csv module has one limit for all threads


class Layout(NamedTuple):
    """Where the pixels stand in a row."""

    columns: list[str]
    first: int  # column of pixels
    stop: int  # the column behind the last
    pixels: int  # in an image
    delimiter: str
    line: int  # of the header


def layout_of(path: Path, numbers: bool = True) -> Layout | None:
    """Returns the layout of a table of pixels, from its first two lines; None for any other table.

    `numbers` says whether columns of pixels may be called by a number alone.
    """
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            lines = [file.readline(LONGEST_LINE) for _ in range(2)]
            skipped = 0
            while lines[0] and not lines[0].strip():
                lines = [lines[1], file.readline(LONGEST_LINE)]
                skipped += 1
        header, row = (line.decode("utf-8-sig").rstrip("\r\n") for line in lines)
        delimiter = next((mark for mark in ",\t;" if mark in header), ",")
        columns = [name.strip() for name in _cells(header, delimiter)]
        cells = _cells(row, delimiter)
    except (OSError, UnicodeDecodeError, csv.Error):
        return None  # whoever reads the table reports it
    named = pixel_columns(columns, numbers)
    if named:
        return Layout(columns, named.start, named.stop, len(named), delimiter, skipped + 1)
    for position, (name, cell) in enumerate(zip(columns, cells, strict=False)):
        parts = cell.split()
        if name.lower() in CELLS and len(parts) >= FEWEST and all(part.strip("+-.0123456789") == "" for part in parts):
            return Layout(columns, position, position + 1, len(parts), delimiter, skipped + 1)
    return None


class PixelTable:
    def __init__(self, path: Path, shape: str) -> None:
        layout = layout_of(path)
        if layout is None:
            raise PodiumError(f"{path}: its columns are no pixels; download it again")
        self.path, self.layout = path, layout
        self.shape = shape_of(layout.pixels, shape, f"{path}, line {layout.line + 1}")
        self.pixels = f"{self.shape[0]} x {self.shape[1]} pixels, grey"
        self.is_cell = layout.stop - layout.first == 1
        self.starts, cells, self.lines = self._scan()
        columns = layout.columns[: layout.first] + layout.columns[layout.stop :]
        self.rows = pd.DataFrame(cells, columns=columns, index=pd.Index(self.lines, name="line"), dtype=object)
        self.names, self.has_ids = names_of(self.rows, len(self.lines))
        self.keys = [str(row) for row in range(1, len(self.lines) + 1)]

    def _scan(self) -> tuple[list[int], list[list[str]], list[int]]:
        """Returns, for each row: where it starts, its cells that are no pixels, and its line."""
        starts, rows, lines, start = list[int](), list[list[str]](), list[int](), 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if number > self.layout.line and line.strip():
                    starts.append(start)
                    rows.append(self._split(line, number)[0])
                    lines.append(number)
                start += len(line)
        if not rows:
            raise PodiumError(f"{self.path}: a header but no rows; download it again")
        return [*starts, start], rows, lines

    def _split(self, line: bytes, number: int) -> tuple[list[str], bytes]:
        """Returns the cells that are no pixels, and the text of the pixels."""
        layout, mark = self.layout, self.layout.delimiter.encode()
        after = len(layout.columns) - layout.stop
        line = line.rstrip(b"\r\n")
        try:
            *cells, rest = line.split(mark, layout.first)
            block, *others = rest.rsplit(mark, after)
            if line.count(mark) == len(layout.columns) - 1 and b'"' not in b"".join([*cells, *others]):
                return [cell.decode() for cell in [*cells, *others]], block
            texts = _cells(line.decode(), layout.delimiter)
        except (UnicodeDecodeError, csv.Error) as error:
            raise PodiumError(f"{self.path}, line {number}: {error}; correct that line") from None
        if len(texts) != len(layout.columns):
            raise PodiumError(
                f"{self.path}, line {number}: {len(texts):,} fields, but the header has {len(layout.columns):,};"
                " correct that line"
            )
        block = mark.join(cell.encode() for cell in texts[layout.first : layout.stop])
        return texts[: layout.first] + texts[layout.stop :], block

    def read(self, key: str) -> NDArray[np.uint8]:
        row = int(key) - 1
        if not 0 <= row < len(self.lines):
            raise ValueError(f"the table has {len(self.lines):,} rows")
        with self.path.open("rb") as file:
            file.seek(self.starts[row])
            block = self._split(file.readline(), self.lines[row])[1]
        texts = block.replace(b'"', b"").split(None if self.is_cell else self.layout.delimiter.encode())
        if len(texts) != self.layout.pixels:
            raise ValueError(
                f"line {self.lines[row]} has {len(texts):,} pixels, but the first row has {self.layout.pixels:,}"
            )
        return np.frombuffer(_bytes_of(texts, self.lines[row]), np.uint8).reshape(self.shape)


def _cells(line: str, delimiter: str) -> list[str]:
    with LIMIT:
        limit = csv.field_size_limit(LONGEST_LINE)
        try:
            return next(csv.reader([line], delimiter=delimiter, strict=True), [])
        finally:
            csv.field_size_limit(limit)


def _bytes_of(texts: list[bytes], line: int) -> bytes:
    try:
        return bytes(map(int, texts))
    except ValueError:  # 12.0 is a pixel too
        return bytes(_whole(text, f"line {line}: pixel {number:,}") for number, text in enumerate(texts, 1))


def _whole(text: bytes, place: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (0 <= value <= 255 and value.is_integer()):
        raise ValueError(f"{place} is '{text.decode(errors='replace').strip()}', not a whole number from 0 to 255")
    return int(value)
