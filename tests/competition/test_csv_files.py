"""Tables: every cell is text, to the letter; what cannot be read is refused with its file and line."""

import csv
import io
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from podium import PodiumError
from podium.competition.csv_files import csv_style_of, read_table

on_disk = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
cells = texts | st.sampled_from(
    ["007", "1e5", "True", "NA", "None", "null", " padded ", "", '"', "a,b", "a\nb", "a\r\nb"]
)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(PodiumError) as refused:
        read_table(path)
    return str(refused.value)


# --- what is read ----------------------------------------------------------------------------------------


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[str]], str]:
    """A header and rows, and the mark between their cells."""
    mark = draw(st.sampled_from(",\t;"))
    names = texts.filter(lambda name: name and name == name.strip() and not (mark != "," and set(name) & set(",\t;")))
    header = draw(st.lists(names, min_size=2, max_size=4, unique=True))
    assume(not header[0].startswith("\ufeff"))
    row = st.lists(cells, min_size=len(header), max_size=len(header))
    return [header, *draw(st.lists(row, min_size=1, max_size=5))], mark


@on_disk
@given(table=tables(), encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]), quoted=st.booleans())
def test_what_csv_writer_wrote_is_read_back_to_the_letter(
    tmp_path: Path, table: tuple[list[list[str]], str], encoding: str, quoted: bool
) -> None:
    (header, *rows), mark = table
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=mark, quoting=csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL).writerows([header, *rows])
    read = read_table(written(tmp_path / "t.csv", text.getvalue().encode(encoding)))
    assert list(read.columns) == header
    assert read.to_numpy().tolist() == rows


@on_disk
@given(rows=st.lists(cells, min_size=1))
def test_a_table_of_one_column_is_read_to_the_letter_too(tmp_path: Path, rows: list[str]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["id"], *([row] for row in rows)])
    assert list(read_table(written(tmp_path / "t.csv", text.getvalue()))["id"]) == rows


@pytest.mark.parametrize("cell", ["007", "1e5", "True", "9" * 30, "NA", "None", "null", "nan", "-0", "1.0", " x ", ""])
def test_no_cell_becomes_a_number_a_date_or_nothing(tmp_path: Path, cell: str) -> None:
    table = read_table(written(tmp_path / "t.csv", f"id,target\n{cell},{cell}\n"))
    assert table.iloc[0].tolist() == [cell, cell]


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
def test_what_excel_macs_and_editors_do_to_a_table_is_undone(tmp_path: Path, content: bytes) -> None:
    table = read_table(written(tmp_path / "t.csv", content))
    assert list(table.columns) == ["id", "target"]
    assert table.to_numpy().tolist() == [["1", "café"]]


def test_a_header_is_split_at_commas_though_its_names_hold_other_marks(tmp_path: Path) -> None:
    assert list(read_table(written(tmp_path / "t.csv", "id;old;new,target\n1,2\n")).columns) == ["id;old;new", "target"]
    assert list(read_table(written(tmp_path / "t.csv", '"a,b";c\n1;2\n')).columns) == ["a,b", "c"]


def test_the_index_that_pandas_writes_unnamed_is_a_column_like_others(tmp_path: Path) -> None:
    assert list(read_table(written(tmp_path / "t.csv", ",id\n0,a\n")).columns) == ["column 1", "id"]


def test_rows_know_the_line_they_began_on(tmp_path: Path) -> None:
    table = read_table(written(tmp_path / "t.csv", 'id,text\n\n1,"two\nlines"\n2,x\n'))
    assert list(table.index) == [3, 5]


@pytest.mark.parametrize(
    ("content", "header", "newline", "noted"),
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
def test_the_form_of_a_table_is_kept_to_the_letter(
    tmp_path: Path, content: str, header: str, newline: str, noted: str
) -> None:
    path = written(tmp_path / "t.csv", content)
    form = csv_style_of(path, list(read_table(path).columns))
    assert (form.header, form.newline) == (header, newline)
    assert noted in " ".join(form.notes)
    assert bool(noted) == bool(form.notes)


# --- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("id,target\n1,a\n2,b,c\n", 3, "3 fields where the header has 2 (id, target)"),
        ("id,target\n1,a,\n2,b,\n", 2, "3 fields"),
        ("id,target\n1,a\n2\n", 3, "1 fields"),
        ('id,text\n1,"x\ny"\n2\n', 4, "1 fields"),
        ('id,target\n1,a\n2,"b\n3,c\n', 3, "quotes"),
        ('id,target\n1,"a" b\n', 2, "quotes"),
        ("id,target\n1,a\n2,\0\n", 3, "NUL"),
        ("id,target,id\n1,a,1\n", 1, "'id' stands twice"),
        ("\nid,target,id \n1,a,1\n", 2, "'id' stands twice"),
        ("id,target\n1,a\n2,café\n".encode("latin-1"), 3, "UTF-8"),
        ("id,target\n1,a\n".encode("utf-16-le"), 1, "UTF-8"),
        ("id,target\n1,a\n".encode("utf-16") + b"x", 3, "UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", 1, "UTF-8"),
        ("x" * 200_000, 1, "field larger"),
        ("id,target\n1," + "x" * 200_000, 2, "field larger"),
    ],
    ids=lambda value: None if isinstance(value, int) else repr(value)[:30],
)
def test_a_mistake_has_its_file_its_line_and_a_remedy(
    tmp_path: Path, content: str | bytes, line: int, reason: str
) -> None:
    path = written(tmp_path / "t.csv", content)
    said = refusal(path)
    assert said.startswith(f"{path}, line {line}: ")
    assert reason in said
    assert re.search("mend|rename|save", said)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("content", "reason"), [("", "empty"), ("\n\n", "empty"), ("\ufeff", "empty"), ("id,target\n", "no rows")]
)
def test_a_table_without_rows_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = written(tmp_path / "t.csv", content)
    said = refusal(path)
    assert said.startswith(f"{path}: ")
    assert reason in said
    assert "download it again" in said


def test_a_table_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("nowhere")
    assert refusal(tmp_path / "link.csv").startswith(f"{tmp_path / 'link.csv'}: No such file")
    assert refusal(tmp_path).startswith(f"{tmp_path}: it is no regular file; ")


pieces = st.lists(st.sampled_from([*"id,;\t\"'\n\r ", "\r\n", "\0", "é", "id,target\n", '"a\n', "1,a\n"]), max_size=30)


@on_disk
@given(content=st.binary(max_size=60) | pieces.map(lambda parts: "".join(parts).encode()))
def test_whatever_a_file_holds_it_is_a_table_or_refused_with_file_and_line(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path / "t.csv", content)
    try:
        table = read_table(path)
    except PodiumError as error:
        said = str(error)
        assert re.match(
            f"{re.escape(str(path))}(, line [1-9][0-9]*: |: the file is empty|: a header and no rows|: this is )", said
        )
    else:
        assert len(table)
        assert all(isinstance(cell, str) for row in table.to_numpy() for cell in row)
        assert table.columns.is_unique
        assert table.index.is_monotonic_increasing
