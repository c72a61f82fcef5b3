"""Columns of numbers are told from labels by their cells; a few wrong cells do not make labels of numbers."""

from pathlib import Path

import pytest

from layouts import load_error, load_files, table
from tiny import assert_says

NUMBERS = range(1, 31)
IMAGES = [f"train/{number}.jpg" for number in NUMBERS] + ["test/90.jpg"]


def tables(columns: list[str], wrong: dict[int, str] | None = None, whole: bool = False) -> dict[str, str]:
    """A table of numbers in these columns, with other cells in the first one; its header is line 1."""
    rows = [
        ",".join([str(number), *[(wrong or {}).get(number, f"{number}{'' if whole else '.5'}")], *["2.25"] * beside])
        for number in NUMBERS
        for beside in [len(columns) - 1]
    ]
    header = ",".join(["id", *columns])
    sample = table(header, ",".join(["90", *["0" if whole else "0.0"] * len(columns)]))
    return {"train.csv": table(header, *rows), "sample_submission.csv": sample}


@pytest.mark.parametrize("cell", ["nan", "inf", "-inf", "NaN", "broken", "12;5", "1e999"])
@pytest.mark.parametrize("columns", [["age"], ["height", "width"]], ids=["one", "two"])
def test_one_wrong_cell_among_numbers_is_refused_with_its_line(tmp_path: Path, columns: list[str], cell: str) -> None:
    message = load_error(tmp_path, IMAGES, tables(columns, {4: cell}))
    assert_says(message, "train.csv, line 5", f"'{cell}' in the column '{columns[0]}'", "correct it or delete the line")


def test_all_lines_are_named_and_a_comma_has_its_own_remedy(tmp_path: Path) -> None:
    assert_says(load_error(tmp_path, IMAGES, tables(["age"], {4: '"4,5"', 8: '"8,5"'})), "lines 5, 9: '4,5'", "a point")


def test_the_card_may_say_that_they_are_labels(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, tables(["age"], {4: "nan"}), 'task = "one_label"')
    assert "nan" in competition.classes


def test_missing_whole_numbers_are_refused_but_a_word_among_numbers_is_a_class(tmp_path: Path) -> None:
    assert "line 5: 'nan'" in load_error(tmp_path / "missing", IMAGES, tables(["individual"], {4: "nan"}, whole=True))
    competition = load_files(tmp_path / "word", IMAGES, tables(["individual"], {4: "new_whale"}, whole=True))
    assert "new_whale" in competition.classes


def test_many_words_beside_numbers_are_labels(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, tables(["label"], dict.fromkeys(range(1, 9), "sky")))
    assert "sky" in competition.classes


def test_a_number_far_from_all_others_is_named(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, tables(["age"], {4: "1e9"}))
    (note,) = [note for note in competition.notes if "far from" in note]
    assert_says(note, "train.csv, line 5: 1e+09", "'age'")
    assert not any(
        "far from" in note for note in load_files(tmp_path / "b", IMAGES, tables(["age"], {4: "900.5"})).notes
    )
