"""CSV files: every cell is read as unchanged text; a file that cannot be read is refused with its line."""

import csv
import gzip
import io
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from podium.basics.errors import PodiumError
from podium.competition.find.csv_files import csv_style_of, read_table
from second_round import examples
from tiny import assert_says

on_disk = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
cells = texts | st.sampled_from(
    ["007", "1e5", "True", "NA", "None", "null", " padded ", "", '"', "a,b", "a\nb", "a\r\nb"]
)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read_error(path: Path) -> str:
    with pytest.raises(PodiumError) as refused:
        read_table(path)
    return str(refused.value)


# --- reading -----------------------------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[str]], str]:
    """A header and rows, and their delimiter."""
    delimiter = draw(st.sampled_from(",\t;"))
    forbidden = set() if delimiter == "," else set(",\t;")
    names = texts.filter(lambda name: name and name == name.strip() and not set(name) & forbidden)
    header = draw(st.lists(names, min_size=2, max_size=4, unique=True))
    assume(not header[0].startswith("\ufeff"))
    row = st.lists(cells, min_size=len(header), max_size=len(header))
    return [header, *draw(st.lists(row, min_size=1, max_size=5))], delimiter


@on_disk
@given(table=tables(), encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]), quoted=st.booleans())
def test_a_table_is_read_back_as_csv_writer_wrote_it(
    tmp_path: Path, table: tuple[list[list[str]], str], encoding: str, quoted: bool
) -> None:
    (header, *rows), delimiter = table
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL).writerows(
        [header, *rows]
    )
    read = read_table(write(tmp_path / "t.csv", text.getvalue().encode(encoding)))
    assert list(read.columns) == header
    assert read.to_numpy().tolist() == rows


@on_disk
@given(rows=st.lists(cells, min_size=1))
def test_a_table_of_one_column_is_read_back_as_csv_writer_wrote_it(tmp_path: Path, rows: list[str]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["id"], *([row] for row in rows)])
    assert list(read_table(write(tmp_path / "t.csv", text.getvalue()))["id"]) == rows


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfid,target\n1,caf\xc3\xa9\n",
        "id,target\n1,café\n".encode("utf-16"),
        "id;target\r\n1;café\r\n".encode(),
        "id\ttarget\n1\tcafé".encode(),
        "\n\n id , target \n\n1,café\n\n\n".encode(),
        '"id","target"\n"1","café"\n'.encode(),
        "id,target\r1,café\r".encode(),
    ],
    ids=["BOM", "UTF-16", "semicolons and CRLF", "tabs, no last newline", "padding, empty lines", "quotes", "CR"],
)
def test_variants_that_spreadsheets_and_editors_write_are_read_alike(tmp_path: Path, content: bytes) -> None:
    table = read_table(write(tmp_path / "t.csv", content))
    assert list(table.columns) == ["id", "target"]
    assert table.to_numpy().tolist() == [["1", "café"]]


def test_a_header_is_split_at_commas_even_if_its_names_hold_other_delimiters(tmp_path: Path) -> None:
    assert list(read_table(write(tmp_path / "t.csv", "id;old;new,target\n1,2\n")).columns) == ["id;old;new", "target"]
    assert list(read_table(write(tmp_path / "t.csv", '"a,b";c\n1;2\n')).columns) == ["a,b", "c"]


def test_the_nameless_index_that_pandas_writes_is_a_column_like_others(tmp_path: Path) -> None:
    assert list(read_table(write(tmp_path / "t.csv", ",id\n0,a\n")).columns) == ["column 1", "id"]


def test_the_index_holds_the_line_on_which_each_row_starts(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "t.csv", 'id,text\n\n1,"two\nlines"\n2,x\n'))
    assert list(table.index) == [3, 5]


@pytest.mark.parametrize(
    ("content", "header", "newline", "note"),
    [
        ("a,b\r\n1,2\r\n", "a,b", "\r\n", ""),
        ("a,b\n1,2\n", "a,b", "\n", ""),
        ("a,b\r1,2\r", "a,b", "\r", "line ends"),
        ("a,b\r1,2", "a,b", "\r", "line ends"),
        ("a,b\n1,2\r\n", "a,b", "\n", "line ends"),
        ("a,b\r\n1,2\n", "a,b", "\r\n", "line ends"),
        ("\ufeffa,b\n1,2\n", "a,b", "\n", "byte order mark"),
        ("\ufeff\ufeffa,b\n1,2\n", "a,b", "\n", "byte order mark"),
        ("a;b\n1;2\n", "a;b", "\n", "separated by ';'"),
        ('"a", "b"\n1,2\n', '"a", "b"', "\n", ""),
        (",b\n1,2\n", ",b", "\n", ""),
        (" a ,\u00a0b\n1,2\n", " a ,\u00a0b", "\n", ""),
        ("a,x\u2028y\n1,2\n", "a,x\u2028y", "\n", ""),
    ],
)
def test_the_style_of_a_table_is_its_header_line_and_line_ends(
    tmp_path: Path, content: str, header: str, newline: str, note: str
) -> None:
    path = write(tmp_path / "t.csv", content)
    style = csv_style_of(path, list(read_table(path).columns))
    assert (style.header, style.newline) == (header, newline)
    assert note in " ".join(style.notes)
    assert bool(note) == bool(style.notes)


# --- refusing ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("id,target\n1,a\n2,b,c\n", 3, "3 fields, but the header has 2 (id, target)"),
        ("id,target\n1,a,\n2,b,\n", 2, "3 fields"),
        ("id,target\n1,a\n2\n", 3, "1 field,"),
        ('id,text\n1,"x\ny"\n2\n', 4, "1 field,"),
        ('id,target\n1,a\n2,"b\n3,c\n', 3, "quotes"),
        ('id,target\n1,"a" b\n', 2, "quotes"),
        ("id,target\n1,a\n2,\0\n", 3, "NUL"),
        ("id,target,id\n1,a,1\n", 1, "the column 'id' twice"),
        ("\nid,target,id \n1,a,1\n", 2, "the column 'id' twice"),
        ("id,target\n1,a\n2,café\n".encode("latin-1"), 3, "UTF-8"),
        ("id,target\n1,a\n".encode("utf-16-le"), 1, "UTF-8"),
        ("id,target\n1,a\n".encode("utf-16") + b"x", 3, "UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", 1, "UTF-8"),
        ("x" * 200_000, 1, "field larger"),
        ("id,target\n1," + "x" * 200_000, 2, "field larger"),
    ],
    ids=lambda value: None if isinstance(value, int) else repr(value)[:30],
)
def test_a_mistake_is_refused_with_its_file_its_line_and_a_remedy(
    tmp_path: Path, content: str | bytes, line: int, reason: str
) -> None:
    path = write(tmp_path / "t.csv", content)
    message = read_error(path)
    assert message.startswith(f"{path}, line {line}: ")
    assert reason in message
    assert re.search("correct|rename|save", message)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "reason"), [("", "empty"), ("\n\n", "empty"), ("\ufeff", "empty"), ("id,target\n", "no rows")]
)
def test_a_table_without_rows_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = write(tmp_path / "t.csv", content)
    message = read_error(path)
    assert message.startswith(f"{path}: ")
    assert reason in message
    assert "download it again" in message


def test_a_table_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("nowhere")
    assert read_error(tmp_path / "link.csv").startswith(f"{tmp_path / 'link.csv'}: No such file")
    assert read_error(tmp_path).startswith(f"{tmp_path}: not a regular file; ")


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (gzip.compress(b"id,target\n5,cat\n", mtime=0), "a gzip archive"),
        (b"PK\x03\x04 and so on", "a spreadsheet or a ZIP archive"),
        (b"\n<!DOCTYPE html><html>", "a web page"),
        (b"<HTML>", "a web page"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_its_kind(tmp_path: Path, content: bytes, kind: str) -> None:
    assert_says(read_error(write(tmp_path / "t.csv", content)), f"this is {kind}", "not a CSV file; download it again")


pieces = st.lists(st.sampled_from([*"id,;\t\"'\n\r ", "\r\n", "\0", "é", "id,target\n", '"a\n', "1,a\n"]), max_size=30)


@on_disk
@given(content=st.binary(max_size=60) | pieces.map(lambda parts: "".join(parts).encode()))
def test_any_content_is_a_table_or_is_refused_with_file_and_line(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "t.csv", content)
    try:
        table = read_table(path)
    except PodiumError as error:
        message = str(error)
        assert re.match(
            f"{re.escape(str(path))}(, line [1-9][0-9]*: |: the file is empty|: a header but no rows|: this is )",
            message,
        )
    else:
        assert len(table)
        assert all(isinstance(cell, str) for row in table.to_numpy() for cell in row)
        assert table.columns.is_unique
        assert table.index.is_monotonic_increasing


def test_a_table_of_as_many_columns_as_a_colour_photograph_has_pixels_is_read(tmp_path: Path) -> None:
    """Work for each column that grows with the number of columns would not end here."""
    count = 224 * 224 * 3
    names, path = [f"value {number}" for number in range(count)], tmp_path / "train.csv"
    cells = ",".join(map(str, range(count)))
    path.write_text(f"{','.join(names)}\n{cells}\n{cells}\n")
    rows = read_table(path)
    assert list(rows.columns) == names
    assert rows.iloc[1, -1] == str(count - 1)
    path.write_text(f"{','.join([*names, 'value 7'])}\n{cells},1\n")
    with pytest.raises(PodiumError, match=r"line 1.*'value 7' twice; rename"):
        read_table(path)
    path.write_text(f"{','.join(names)}\n1\n")
    with pytest.raises(PodiumError, match=r"line 2: 1 field.*correct that line") as refusal:
        read_table(path)
    assert len(str(refusal.value)) < 1000
