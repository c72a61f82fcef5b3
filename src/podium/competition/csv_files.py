"""The one reader for every CSV: all cells are text, to the letter, and a mistake has a file and a line.

`read_table(path)` gives a DataFrame of text whose index holds the line each row began on.
"""

import codecs
import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from podium import PodiumError

# How files begin that are called tables and are none.
KINDS = {
    b"\x1f\x8b": "a gzip archive, to be unpacked,",
    b"PK\x03\x04": "a spreadsheet or a ZIP archive, to be saved as CSV or unpacked,",
    b"<!doctype": "a web page",
    b"<html": "a web page",
}


def read_table(path: Path, remedy: str = "download it again") -> pd.DataFrame:
    text = _text(path, remedy)
    header: list[str] | None = None
    rows: list[list[str]] = []
    lines: list[int] = []
    began = 1
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
        for row in reader:
            if not row:
                pass  # an empty line holds nothing
            elif header is None:
                header = _header(row, path, began)
            elif len(row) != len(header):
                raise PodiumError(
                    f"{path}, line {began}: {len(row)} fields where the header has {len(header)}"
                    f" ({', '.join(header)}); mend that line"
                )
            else:
                rows.append(row)
                lines.append(began)
            began = reader.line_num + 1
    except csv.Error as error:
        raise PodiumError(f"{path}, line {began}: {error}; mend the quotes of that line") from None
    if header is None:
        raise PodiumError(f"{path}: the file is empty; {remedy}")
    if not rows:
        raise PodiumError(f"{path}: a header and no rows; {remedy}")
    return pd.DataFrame(rows, columns=header, index=pd.Index(lines, name="line"), dtype=object)


def csv_text(rows: Iterable[Iterable[object]], newline: str = "\n", delimiter: str = ",") -> str:
    """Rows, the header first, as `read_table` reads them."""
    # Which quotes a cell with any kind of line end in it, as long as its own is CRLF.
    writer: Any = csv.writer(_Echo(), delimiter=delimiter)
    return "".join(writer.writerow(row)[:-2] + newline for row in rows)


class _Echo:
    def write(self, line: str) -> str:
        return line


class CsvStyle(NamedTuple):
    """How a table is written, so that what answers it can be written alike."""

    header: str  # its line, to the letter
    delimiter: str
    newline: str
    notes: tuple[str, ...] = ()  # what is unusual about it


def csv_style_of(path: Path, columns: list[str]) -> CsvStyle:
    text, name = _text(path, "download it again"), path.name
    header = re.split("[\r\n]", text.lstrip("\r\n"), maxsplit=1)[0]
    ends = re.findall("\r*\n|\r", text)
    newline = ends[0] if ends and ends[0] in ("\n", "\r\n", "\r") else "\r\n" if ends else "\n"
    delimiter, notes = _delimiter(text), []
    again = next(csv.reader([header.removeprefix("\ufeff")], delimiter=delimiter), [])
    if _header(again, path, 1) != columns:
        raise PodiumError(f"{path}, line 1: this header cannot be written to the letter; save the table as plain CSV")
    if delimiter != ",":
        notes.append(f"{name} is separated by {delimiter!r}, and so is the submission; Kaggle's own files have commas")
    if len(set(ends)) > 1 or newline == "\r":
        notes.append(f"{name} has unusual or mixed line ends; the submission has those of its header, {newline!r}")
    if path.read_bytes().startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        notes.append(f"{name} begins with a byte order mark, as a spreadsheet writes it; the submission has none")
    return CsvStyle(header, delimiter, newline, tuple(notes))


def _text(path: Path, remedy: str) -> str:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise PodiumError(f"{path}: it is no regular file; {remedy}")
        data = path.read_bytes()
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; {remedy}, or mend its rights") from None
    head = data.lstrip()[:9]
    kinds = [kind for begin, kind in KINDS.items() if head.startswith(begin) or head.lower().startswith(begin)]
    if kinds:
        raise PodiumError(f"{path}: this is {kinds[0]} and no CSV; {remedy}")
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PodiumError(f"{path}, line {line}: not {error.encoding}; save the table as UTF-8") from None
    text = text.removeprefix("\ufeff")  # a second mark, by whoever added one to a file that had it
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise PodiumError(f"{path}, line {line}: a NUL character; this is no text table, save it as UTF-8")
    return text


def _delimiter(text: str) -> str:
    """Comma, unless the header has none outside of quotes and has another."""
    for mark in ",\t;":
        records = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
        if len(next(filter(None, records), [])) > 1:
            return mark
    return ","


def _header(row: list[str], path: Path, line: int) -> list[str]:
    names = [name.strip() for name in row]
    names = [name or f"column {i + 1}" for i, name in enumerate(names)]  # pandas writes its index unnamed
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise PodiumError(f"{path}, line {line}: the column '{twice[0]}' stands twice in the header; rename one")
    return names
