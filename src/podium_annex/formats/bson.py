"""Reads a BSON file, a dump of MongoDB, whose documents are products with one or several pictures, as Cdiscount's:

    {_id: 7, category_id: 1000010653, imgs: [{picture: the bytes of a JPEG}, ...]}

A document is its length, its elements and a zero; an element is a kind, a name that ends with a zero, and a value.
One pass lists where each document starts, and its values that are no pictures; the pictures themselves are skipped.
"""

import mmap
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.competition.containers.image_place import MAX_BYTES
from podium.competition.containers.pixel_names import names_of

LENGTH, LONG, DOUBLE = struct.Struct("<i"), struct.Struct("<q"), struct.Struct("<d")
FLOAT, TEXT, DOCUMENT, LIST, BYTES, OBJECT_ID, TRUTH, WHOLE, WIDE = 1, 2, 3, 4, 5, 7, 8, 16, 18  # kinds of values
WIDTHS = {FLOAT: 8, OBJECT_ID: 12, TRUTH: 1, 9: 8, 10: 0, WHOLE: 4, 17: 8, WIDE: 8, 19: 16}  # in bytes; 9 is a date
LONGEST_TEXT = 1000  # bytes of a cell; longer texts are left out
MOST_COLUMNS = 100
MOST_LABELS = 20_000  # of a field, whose texts are kept once each: few categories have many products
DEEPEST = 3  # a picture is a value in a document in a list in the product


class BsonFile:
    pixels = ""

    def __init__(self, path: Path, shape: str) -> None:
        self.path = path
        starts, columns = _list_documents(path)
        self.starts = np.array([*starts, path.stat().st_size], np.int64)
        self.rows = pd.DataFrame(columns, index=pd.RangeIndex(1, len(starts) + 1), dtype=object)
        has_pictures = bool(starts) and bool(self._pictures(0))
        # Zeros in front: the store reads images in the order of their names, and this is then that of the file.
        self.keys = [f"{row:0{len(str(len(starts)))}}" for row in range(1, len(starts) + 1)] if has_pictures else []
        self.names, self.has_ids = names_of(self.rows, len(starts)) if has_pictures else ([], False)

    def read(self, key: str) -> bytes | list[bytes]:
        row = int(key) - 1
        if not 0 <= row < len(self.keys):
            raise ValueError(f"the file has {len(self.keys):,} documents")
        pictures = self._pictures(row)
        if not pictures:
            raise ValueError(f"the document at byte {self.starts[row]:,} has no picture")
        return pictures if len(pictures) > 1 else pictures[0]

    def _pictures(self, row: int) -> list[bytes]:
        with self.path.open("rb") as file:
            file.seek(start := int(self.starts[row]))
            data = file.read(int(self.starts[row + 1]) - start)
        try:
            return list(_bytes_in(data, 4, len(data) - 1))
        except (ValueError, struct.error):
            raise ValueError(f"the document at byte {start:,} is damaged") from None


def _list_documents(path: Path) -> tuple["array[int]", dict[str, list[str]]]:
    """Returns where each document starts, and its cells, a list for each field."""
    starts, columns, known = array("q"), dict[str, list[str]](), dict[str, dict[str, str]]()
    for start, cells in _documents(path):
        for name, cell in cells.items():
            if name not in columns:
                columns[name], known[name] = [""] * len(starts), {}
            same = known[name]
            columns[name].append(same.setdefault(cell, cell) if len(same) < MOST_LABELS else same.get(cell, cell))
        starts.append(start)
        if len(cells) < len(columns):
            for column in columns.values():
                column += [""] * (len(starts) - len(column))
        if len(columns) > MOST_COLUMNS:
            raise _damage(path, start, f"the documents have more than {MOST_COLUMNS} fields")
    return starts, columns


def _documents(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields where each document starts, and its cells."""
    start, size = 0, path.stat().st_size
    if not size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        while start < size:
            if start + 4 > size:
                raise _damage(path, start, "the file ends too early")
            (length,) = LENGTH.unpack_from(data, start)
            if not 5 <= length <= MAX_BYTES:
                raise _damage(path, start, f"a document cannot have {length:,} bytes")
            if start + length > size:
                raise _damage(path, start, f"the file ends {start + length - size:,} bytes too early")
            try:
                yield start, _cells(data, start + 4, start + length - 1)
            except (ValueError, struct.error):
                raise _damage(path, start, "the document is damaged") from None
            start += length


def _damage(path: Path, start: int, problem: str) -> PodiumError:
    return PodiumError(f"{path}, byte {start:,}: {problem}; download it again")


def _cells(data: mmap.mmap, start: int, stop: int) -> dict[str, str]:
    """Returns the numbers and texts of a document, by the names of their fields."""
    cells = {}
    for kind, name, first, last in _elements(data, start, stop):
        if kind == WHOLE:
            text = str(LENGTH.unpack_from(data, first)[0])
        elif kind == WIDE:
            text = str(LONG.unpack_from(data, first)[0])
        elif kind == FLOAT:
            text = repr(DOUBLE.unpack_from(data, first)[0])
        elif kind == TRUTH:
            text = str(data[first])
        elif kind == OBJECT_ID:
            text = data[first:last].hex()
        elif kind == TEXT and last - first <= LONGEST_TEXT:
            text = data[first + 4 : last - 1].decode()
        else:
            continue
        cells[name.decode()] = text
    return cells


def _bytes_in(data: bytes, start: int, stop: int, depth: int = 1) -> Iterator[bytes]:
    """Yields the values that are bytes, in a document and in what it holds."""
    for kind, _, first, last in _elements(data, start, stop):
        if kind == BYTES:
            yield data[first + 5 : last]
        elif kind in (DOCUMENT, LIST) and depth < DEEPEST:
            yield from _bytes_in(data, first + 4, last - 1, depth + 1)


def _elements(data: mmap.mmap | bytes, start: int, stop: int) -> Iterator[tuple[int, bytes, int, int]]:
    """Yields the elements of a document: the kind and name of each, and where its value lies."""
    if data[stop] != 0:
        raise ValueError("no zero at the end")
    while start < stop:
        end = data.find(b"\0", start + 1, stop)
        kind, first = data[start], end + 1
        if kind in WIDTHS:
            last = first + WIDTHS[kind]
        elif kind in (TEXT, DOCUMENT, LIST, BYTES):
            length = LENGTH.unpack_from(data, first)[0]
            least, ahead = {TEXT: (1, 4), BYTES: (0, 5)}.get(kind, (5, 0))
            last = first + ahead + length if length >= least else stop + 1
        else:
            raise ValueError("an unknown kind of value")
        if end < 0 or last > stop:
            raise ValueError("a value behind the end")
        yield kind, data[start + 1 : end], first, last
        start = last
