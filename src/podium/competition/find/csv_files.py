"""Reads and writes CSV files: every cell is text, unchanged, and every mistake is reported with its file and line.

`read_table(path)` returns a DataFrame of text; its index holds the line on which each row starts.
`csv_style_of(path)` returns how a table is written, so that a submission can be written in the same way.
`decode_text(data)` decodes UTF-8, UTF-16 with its mark, else what Western Windows writes: a guess, which is refused
where most letters beyond ASCII stand side by side, as in Chinese or Japanese.
"""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, plural

# The first bytes of files that have a table's name but are something else.
SIGNATURES = {
    b"\x1f\x8b": "a gzip archive (unpack it)",
    b"PK\x03\x04": "a spreadsheet or a ZIP archive (save it as CSV or unpack it)",
    b"<!doctype": "a web page",
    b"<html": "a web page",
}


def read_head(path: Path, row_count: int) -> pd.DataFrame | None:
    """Returns the first rows of a table, as text; None if the file is no plain CSV."""
    try:
        return pd.read_csv(path, nrows=row_count, dtype=object, keep_default_na=False)
    except (ValueError, OSError):
        return None


def read_table(
    path: Path, remedy: str = "download it again", may_be_empty: bool = False, may_guess: bool = False
) -> pd.DataFrame:
    """Reads a table of text. `remedy` is what an error advises if the whole file is wrong.

    The table's `attrs["encoding"]` is that of the file, if `may_guess` and it is a guess.
    """
    text, encoding = _read_text(path, remedy, may_guess)
    header: list[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    line = 1  # on which the current row starts: a quoted cell may span several
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter_of(text), strict=True)
        for row in reader:
            if not row:
                pass  # an empty line
            elif header is None:
                header = _column_names(row, path, line)
            elif len(row) != len(header):
                raise PodiumError(
                    f"{path}, line {line}: {plural(len(row), 'field')}, but the header has {len(header)}"
                    f" ({first_few(header, 20)}); correct that line"
                )
            else:
                rows.append(row)
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise PodiumError(f"{path}, line {line}: {error}; correct the quotes of that line") from None
    if header is None and not may_be_empty:
        raise PodiumError(f"{path}: the file is empty; {remedy}")
    if not rows and not may_be_empty:
        raise PodiumError(f"{path}: a header but no rows; {remedy}")
    # From one array, because pandas takes a list of rows apart into a column each, and there may be a million.
    cells = np.array(rows, dtype=object).reshape(len(rows), len(header or ()))
    table = pd.DataFrame(cells, columns=header, index=pd.Index(lines, name="line"), dtype=object)
    table.attrs["encoding"] = encoding
    return table


def csv_text(rows: Iterable[Iterable[object]], newline: str = "\n", delimiter: str = ",") -> str:
    """Returns rows (the header first) as the text of a CSV file that `read_table` reads back unchanged."""
    # The writer keeps its own line end, CRLF: only so does it quote cells that hold any kind of line end.
    writer: Any = csv.writer(_Echo(), delimiter=delimiter)
    return "".join(writer.writerow(row)[:-2] + newline for row in rows)


class _Echo:
    """A file whose `write` returns the line, so that `csv.writer.writerow` does too."""

    def write(self, line: str) -> str:
        return line


class CsvStyle(NamedTuple):
    """How a table is written."""

    header: str  # the header line, unchanged
    delimiter: str
    newline: str
    notes: tuple[str, ...] = ()  # what is unusual about it


def csv_style_of(path: Path, columns: list[str]) -> CsvStyle:
    """Returns how a table is written; raises if its header line does not hold exactly these columns."""
    (text, encoding), name = _read_text(path, "download it again", may_guess=True), path.name
    header = re.split("[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0]
    line_ends = re.findall("\r*\n|\r", text)
    newline = "\n"
    if line_ends:
        newline = line_ends[0] if line_ends[0] in ("\n", "\r\n", "\r") else "\r\n"
    delimiter, notes = _delimiter_of(text), [note] if (note := note_on_encoding(name, encoding)) else []
    cells = next(csv.reader([header.removeprefix("\ufeff")], delimiter=delimiter), [])
    if _column_names(cells, path, 1) != columns:
        raise PodiumError(
            f"{path}, line 1: this header cannot be copied into a submission; save the table as plain CSV"
        )
    if delimiter != ",":
        notes.append(f"{name} is separated by {delimiter!r}, and so is the submission; Kaggle's own files use commas")
    if len(set(line_ends)) > 1 or newline == "\r":
        notes.append(f"{name} has unusual or mixed line ends; the submission uses those of its header, {newline!r}")
    if path.read_bytes().startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        notes.append(f"{name} starts with a byte order mark, as spreadsheets write it; the submission has none")
    return CsvStyle(header, delimiter, newline, tuple(notes))


def _read_text(path: Path, remedy: str, may_guess: bool) -> tuple[str, str]:
    """Returns the text of a file, and its encoding if that is a guess."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise PodiumError(f"{path}: not a regular file; {remedy}")
        data = path.read_bytes()
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; {remedy}, or fix its permissions") from None
    start = data.lstrip()[:9]
    for signature, kind in SIGNATURES.items():
        if start.startswith(signature) or start.lower().startswith(signature):
            raise PodiumError(f"{path}: this is {kind}, not a CSV file; {remedy}")
    try:
        text, encoding = decode_text(data, may_guess)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PodiumError(f"{path}, line {line}: not {error.encoding}; save the table as UTF-8") from None
    text = text.removeprefix("\ufeff")  # a second mark: some tools add one to a file that already has one
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise PodiumError(f"{path}, line {line}: a NUL character, so this is not a text table; save it as UTF-8")
    return text, encoding


def _delimiter_of(text: str) -> str:
    """Returns the first of comma, tab and semicolon that splits the header, or the comma if none does."""
    for delimiter in ",\t;":
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        if len(next(filter(None, records), [])) > 1:
            return delimiter
    return ","


def _column_names(cells: list[str], path: Path, line: int) -> list[str]:
    names = [cell.strip() for cell in cells]
    names = [name or f"column {i + 1}" for i, name in enumerate(names)]  # pandas writes its index without a name
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise PodiumError(f"{path}, line {line}: the header has the column '{repeated[0]}' twice; rename one")
    return names


# --- the encoding of a text --------------------------------------------------------------------------

WESTERN = "cp1252"
MOST_SIDE_BY_SIDE = 0.5  # of the bytes beyond ASCII: in Western words such letters stand alone


def decode_text(data: bytes, may_guess: bool = True) -> tuple[str, str]:
    """Returns the text, and its encoding if that is a guess; raises UnicodeDecodeError if none fits."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16"), ""
    try:
        return data.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        if may_guess and _looks_western(data):
            return data.decode(WESTERN), WESTERN
        raise


def _looks_western(data: bytes) -> bool:
    import numpy as np

    codes = np.frombuffer(data, np.uint8)
    places = np.flatnonzero(codes > 127)
    has_neighbour = np.diff(places, prepend=-2) == 1
    has_neighbour[:-1] |= has_neighbour[1:]
    is_text = not np.isin(codes, [*range(9), 11, *range(14, 32), 0x81, 0x8D, 0x8F, 0x90, 0x9D, 127]).any()
    return bool(is_text and has_neighbour.mean() <= MOST_SIDE_BY_SIDE)


def note_on_encoding(name: str, encoding: str) -> str:
    """Says that an encoding was guessed; "" if it was not."""
    return encoding and f"{name} is not UTF-8; that it is Western text ({encoding}) is a guess: save it as UTF-8 if not"
