"""Boxes of images, read from a CSV file or from cells: what is read, and what is refused with file and line."""

from pathlib import Path

import pytest

from layouts import IMAGES, TABLES, load_files, table
from podium.basics.errors import PodiumError
from podium.competition.load import Competition
from podium.images.region_tables import read_boxes_of_column, read_boxes_of_file
from tiny import assert_says

HEADER = "id,x,y,width,height"


@pytest.fixture
def competition(tmp_path: Path) -> Competition:
    return load_files(tmp_path, IMAGES, TABLES)


def boxes_in(competition: Competition, root: Path, text: str) -> dict[str, list[tuple[float, ...]]]:
    """Writes a table of boxes and reads it; returns the boxes by image."""
    (root / "boxes.csv").write_text(text)
    read = read_boxes_of_file(root / "boxes.csv", competition)
    return {image: [tuple(box[:4]) for box in boxes] for (_, image), boxes in read.of_row.items()}


def refusal(competition: Competition, root: Path, text: str) -> str:
    with pytest.raises(PodiumError) as refused:
        boxes_in(competition, root, text)
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("header", "row"),
    [
        (HEADER, "1,10,20,30,40"),
        ("ID,x,y,w,h", "1,10,20,30,40"),
        ("image_id,x_min,y_min,x_max,y_max", "1,10,20,40,60"),
        ("id,x0,y0,x1,y1,confidence", "1,10,20,40,60,0.5"),
        ("image,xmin,ymin,xmax,ymax", "train/1.jpg,10,20,40,60"),
        ("filename,left,top,right,bottom", "1.jpg,10,20,40,60"),
    ],
)
def test_a_box_has_sides_or_corners_and_an_id_or_an_image(
    competition: Competition, tmp_path: Path, header: str, row: str
) -> None:
    assert boxes_in(competition, tmp_path, table(header, row)) == {"train/1.jpg": [(10, 20, 30, 40)]}


def test_an_image_may_have_several_boxes_or_none(competition: Competition, tmp_path: Path) -> None:
    text = table(HEADER, "1,0,0,5,5", "4,1,1,2,2", "1,3,3,4,4", "2,,,,", "3,nan,nan,nan,nan")
    assert boxes_in(competition, tmp_path, text) == {
        "train/1.jpg": [(0, 0, 5, 5), (3, 3, 4, 4)],
        "test/4.jpg": [(1, 1, 2, 2)],
    }


def test_shares_of_the_sides_are_told_from_pixels_by_the_whole_table(competition: Competition, tmp_path: Path) -> None:
    path = tmp_path / "boxes.csv"
    path.write_text(table(HEADER, "1,0.1,0,0.5,1", "2,0,0,1,1"))
    assert read_boxes_of_file(path, competition).are_shares
    path.write_text(table(HEADER, "1,10,0,50,1", "2,0,0,12,1"))
    assert not read_boxes_of_file(path, competition).are_shares


@pytest.mark.parametrize(
    ("rows", "line", "kind"),
    [
        (["1,0.1,0,0.5,1", "2,0.1,0,0.5,1", "3,0,0,12,1"], 4, "12, 1 are pixels"),
        (["1,0,0,0.5,1", "2,10,0,50,1", "3,0,0,12,1"], 2, "0.5, 1 are shares"),
    ],
)
def test_boxes_of_two_units_are_refused_and_the_fewer_are_named(
    competition: Competition, tmp_path: Path, rows: list[str], line: int, kind: str
) -> None:
    message = refusal(competition, tmp_path, table(HEADER, *rows))
    assert f"boxes.csv, line {line}" in message
    assert kind in message
    assert "1 of 3 boxes" in message


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("1,10,20,0,40", "a box 0 wide and 40 high at 10, 20 is empty"),
        ("1,10,20,30,-4", "a box 30 wide and -4 high"),
        ("1,10,20,nan,40", "a box nan wide"),
        ("1,inf,20,30,40", "at inf, 20"),
        ("1,ten,20,30,40", "a box has four numbers (could not convert string to float: 'ten')"),
        ("9,10,20,30,40", "'9' is no image of it"),
    ],
)
def test_a_wrong_row_is_refused_with_its_line(competition: Competition, tmp_path: Path, row: str, problem: str) -> None:
    message = refusal(competition, tmp_path, table(HEADER, "2,1,1,5,5", row))
    assert f"{tmp_path / 'boxes.csv'}, line 3: " in message
    assert problem in message
    assert "correct" in message


def test_other_columns_are_refused_by_name(competition: Competition, tmp_path: Path) -> None:
    message = refusal(competition, tmp_path, table("id,cx,cy,width,height", "1,1,1,5,5"))
    assert_says(message, "its columns are id, cx, cy, width, height", "rename them")


def test_a_table_without_any_box_is_refused(competition: Competition, tmp_path: Path) -> None:
    assert "has no box; leave it out" in refusal(competition, tmp_path, table(HEADER, "1,,,,"))


def test_an_id_of_two_images_needs_the_path_of_one(tmp_path: Path) -> None:
    images = ["train/1.jpg", "train/2.jpg", "train/3.jpg", "test/1.jpg", "test/5.jpg"]
    tables = {**TABLES, "sample_submission.csv": table("id,target", "1,cat", "5,cat")}
    competition = load_files(tmp_path, images, tables)
    assert "line 2: '1' is the id of several images" in refusal(competition, tmp_path, table(HEADER, "1,1,1,5,5"))
    by_path = table("image,x,y,width,height", "test/1.jpg,1,1,5,5")
    assert boxes_in(competition, tmp_path, by_path) == {"test/1.jpg": [(1, 1, 5, 5)]}


# --- columns -----------------------------------------------------------------------------------------


def read_column(root: Path, *cells: str) -> dict[str, list[tuple[float, ...]]]:
    """Writes a column of these cells, of the images 1 to 5; returns the boxes by image."""
    train = table("id,target,place", *(f'{n},{"cat" if n != 2 else "dog"},"{cells[n - 1]}"' for n in (1, 2, 3)))
    test = table("id,place", *(f'{n},"{cells[n - 1]}"' for n in (4, 5)))
    competition = load_files(root, IMAGES, {**TABLES, "train.csv": train, "test.csv": test}, features=["place"])
    read = read_boxes_of_column("place", competition)
    return {image: [tuple(box[:4]) for box in boxes] for (_, image), boxes in read.of_row.items()}


def test_a_cell_holds_one_box_several_or_none(tmp_path: Path) -> None:
    cells = ("[10, 20, 30, 40]", "1 2 3 4", "[[1, 2, 3, 4], [5.5, 6, 7, 8]]", "", "[]")
    assert read_column(tmp_path, *cells) == {
        "train/1.jpg": [(10, 20, 30, 40)],
        "train/2.jpg": [(1, 2, 3, 4)],
        "train/3.jpg": [(1, 2, 3, 4), (5.5, 6, 7, 8)],
    }


@pytest.mark.parametrize(("cell", "problem"), [("1 2 3", "'1 2 3' is no box"), ("[1, 2, 3, x]", "four numbers")])
def test_a_cell_that_is_no_box_is_refused_with_its_id(tmp_path: Path, cell: str, problem: str) -> None:
    with pytest.raises(PodiumError, match="column place of it, id 2: ") as refused:
        read_column(tmp_path, "1 2 3 4", cell, "", "", "")
    assert problem in str(refused.value)


def test_a_column_that_is_not_there_is_refused(tmp_path: Path, competition: Competition) -> None:
    with pytest.raises(PodiumError, match=r"--region: there is no such file, and train\.csv has no column 'place'"):
        load_files(tmp_path, IMAGES, TABLES, features=["place"])
    with pytest.raises(PodiumError, match="--region place: there is no such file, and the tables of it do not both"):
        read_boxes_of_column("place", competition)
