"""The one reader for every CSV: all cells are text, to the letter, and a mistake has a file and a line.

`read_table(path)` gives a DataFrame of text whose index holds the line each row began on.
"""

import codecs
import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from podium import PodiumError


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


def table_text(rows: Iterable[Iterable[object]], newline: str = "\n") -> str:
    """Rows, the header first, as `read_table` reads them."""
    writer: Any = csv.writer(_Echo())  # which quotes a cell with any kind of line end in it, as long as its own is CRLF
    return "".join(writer.writerow(row)[:-2] + newline for row in rows)


class _Echo:
    def write(self, line: str) -> str:
        return line


def newline_of(path: Path) -> str:
    """The line end a table is written with, so that what answers it can be written alike."""
    return "\r\n" if _text(path, "").partition("\n")[0].endswith("\r") else "\n"


def _text(path: Path, remedy: str) -> str:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise PodiumError(f"{path}: it is no regular file; {remedy}")
        data = path.read_bytes()
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; {remedy}, or mend its rights") from None
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PodiumError(f"{path}, line {line}: not {error.encoding}; save the table as UTF-8") from None
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
