"""The parts of images that a run sees: from boxes that were read to pixels, and the store that holds them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from podium.basics.errors import PodiumError
from podium.basics.image_size import Box
from podium.competition.load import load
from podium.images.decode import read_image, shrink
from podium.images.region_tables import ReadBox, ReadBoxes
from podium.images.regions import INSIDE_BORDERS, WHOLE, Boxes, Frame, doubts_about, make_boxes, read_regions
from podium.images.store import Store, open_store
from podium.images.store_format import FileRecord
from stores import image_folder
from tiny import assert_says, write_competition

FILE = FileRecord("a.jpg", 1, "", "", "", "", 200, 100, 200, 100, "")
ROW = ("1", "a.jpg")
AS_IT_IS = Frame(0.0, None)


def made(box: tuple[float, float, float, float], frame: Frame = AS_IT_IS, file: FileRecord = FILE) -> tuple[Box, ...]:
    read = ReadBoxes("boxes.csv", {ROW: [ReadBox(*box, "boxes.csv, line 2")]})
    return tuple(make_boxes(read, {"a.jpg": file}, frame).of_row.get(ROW, ()))


def test_a_box_of_shares_becomes_pixels() -> None:
    assert made((0.1, 0.2, 0.5, 0.5)) == (Box(20, 20, 100, 50),)
    assert made((20, 20, 100, 50)) == (Box(20, 20, 100, 50),)


def test_a_box_is_clipped_to_its_image() -> None:
    assert made((-10, 90, 30, 30)) == (Box(0, 90, 20, 10),)


def doubts(*boxes: tuple[float, float, float, float]) -> list[str]:
    rows = {(str(number), "a.jpg"): [ReadBox(*box, f"boxes.csv, line {number}")] for number, box in enumerate(boxes, 2)}
    return doubts_about(ReadBoxes("boxes.csv", rows), {"a.jpg": FILE})


def test_boxes_that_are_clipped_or_tiny_are_counted() -> None:
    good = [(10.0, 10.0, 60.0, 60.0)] * 9
    (warning,) = doubts(*good, (-10, 90, 30, 30))
    assert_says(warning, "1 box of 10", "line 11")
    (warning,) = doubts((10, 10, 3, 60), *good)
    assert_says(warning, "less than 4 pixels", "line 2")
    assert not doubts(*good, (-1, 0, 100, 50))
    (warning,) = doubts((0.1, 0.1, 0.01, 0.5), (0.2, 0.2, 0.5, 0.5))
    assert "less than 4 pixels" in warning


def test_corners_under_the_headers_of_sides_are_refused() -> None:
    corners = [(60.0, 30.0, 190.0, 90.0), (120.0, 40.0, 180.0, 95.0), (10.0, 10.0, 20.0, 20.0)]
    with pytest.raises(PodiumError) as refused:
        doubts(*corners)
    assert_says(str(refused.value), "boxes.csv, line 2", "x_min, y_min, x_max, y_max")


def test_a_margin_is_a_share_of_the_boxes_sides_and_stays_inside() -> None:
    assert made((50, 20, 100, 50), Frame(0.1, None)) == (Box(40, 15, 120, 60),)
    assert made((0, 0, 200, 100), Frame(0.5, None)) == (Box(0, 0, 200, 100),)


def test_a_box_grows_to_the_shape_of_the_images_as_far_as_there_is_room() -> None:
    """Else a crop of this shape would cut off its ends. At an edge it grows inwards."""
    assert made((100, 40, 50, 20), Frame(0.0, 1.0)) == (Box(100, 25, 50, 50),)
    assert made((100, 0, 50, 20), Frame(0.0, 1.0)) == (Box(100, 0, 50, 50),)
    assert made((40, 40, 150, 20), Frame(0.0, 1.0)) == (Box(40, 0, 150, 100),)


def test_a_box_beside_its_image_is_refused_with_file_and_line() -> None:
    with pytest.raises(PodiumError) as refused:
        made((300, 20, 10, 10))
    message = str(refused.value)
    assert message.startswith("boxes.csv, line 2: the box lies outside of its image, a.jpg, which is 200 pixels wide")
    assert message.endswith("correct or remove it")


def test_an_image_that_cannot_be_read_has_no_box() -> None:
    assert made((10, 10, 10, 10), file=replace_reason("it is empty")) == ()


def replace_reason(reason: str) -> FileRecord:
    return FILE._replace(reason=reason, width=0, height=0)


def test_the_boxes_of_a_run_are_read_back(tmp_path: Path) -> None:
    boxes = Boxes(of_row={("7", 'a,"b.jpg'): (Box(1, 2, 3, 4), Box(5, 6, 7, 8)), ROW: (Box(0, 0, 9, 9),)})
    boxes.write(tmp_path)
    read = read_regions(tmp_path / "regions.csv")
    assert (read, read.sha256) == (boxes, boxes.sha256)
    (tmp_path / "regions.csv").write_text("id,image,x,y,width,height\n1,a.jpg,1,2,3,wide\n")
    with pytest.raises(PodiumError, match=r"it was changed .* restore it"):
        read_regions(tmp_path / "regions.csv")


def test_whole_images_have_no_boxes_to_keep(tmp_path: Path) -> None:
    for regions in (WHOLE, INSIDE_BORDERS):
        regions.write(tmp_path)
        assert regions.sha256 == ""
    assert not (tmp_path / "regions.csv").exists()


# --- the store ---------------------------------------------------------------------------------------


def boxes_of_first(width: int = 20) -> Boxes:
    """Two boxes of the first training image; the image of the test image has the same id and none."""
    return Boxes(of_row={("000", "train_image/000.jpg"): (Box(3, 4, width, 10), Box(0, 0, 5, 6))})


def open_parts(root: Path, boxes: Boxes, keep: bool = True) -> Store:
    return open_store(load("tiny", root), 24, keep, boxes)


@pytest.mark.parametrize("keep", [True, False])
def test_the_store_holds_boxes_cut_from_the_full_image(tmp_path: Path, keep: bool) -> None:
    write_competition(tmp_path, per_class=3, test_images=2)
    competition, store = load("tiny", tmp_path), open_parts(tmp_path, boxes_of_first(), keep)
    examples = store.examples(competition.train)
    assert examples.counts.tolist() == [2] + [1] * 9
    read, pixels = store.reader(examples.positions), read_image(image_folder(tmp_path) / "train_image" / "000.jpg")
    assert (read(0) == pixels[4:14, 3:23]).all()
    assert (read(1) == pixels[0:6, 0:5]).all()
    whole = read_image(image_folder(tmp_path) / "train_image" / "001.jpg")
    assert (read(2) == shrink(whole, 24)).all()
    assert store.examples(competition.test).counts.tolist() == [1, 1]


def test_stores_of_whole_images_and_of_boxes_live_side_by_side(tmp_path: Path) -> None:
    write_competition(tmp_path, per_class=3, test_images=2)
    competition = load("tiny", tmp_path)
    whole = open_store(competition, 24)
    parts, others = open_parts(tmp_path, boxes_of_first()), open_parts(tmp_path, boxes_of_first(21))
    assert len({whole.path, parts.path, others.path}) == 3
    assert whole.path.exists()
    assert open_store(competition, 24).path == whole.path
    assert open_parts(tmp_path, boxes_of_first()).path == parts.path
    (image_folder(tmp_path) / "train_image" / "001.jpg").touch()
    changed = open_store(competition, 24)
    assert changed.path != whole.path
    assert not parts.path.exists()  # stale: it belongs to files that have changed


def test_a_part_has_the_hash_of_its_file(tmp_path: Path) -> None:
    """The data of a run are the same with boxes and without, so that it can learn from a run without."""
    write_competition(tmp_path, per_class=3, test_images=2)
    competition = load("tiny", tmp_path)
    stores = open_store(competition, 24), open_parts(tmp_path, boxes_of_first())
    one, other = (store.digest(store.examples(competition.train).first) for store in stores)
    assert one == other


def test_a_row_of_a_table_has_its_own_boxes_of_a_shared_image() -> None:
    rows = pd.DataFrame({"id": ["1", "2"], "image": ["a.jpg", "a.jpg"]})
    boxes = replace(boxes_of_first(), of_row={("1", "a.jpg"): (Box(0, 0, 5, 5),), ("2", "a.jpg"): (Box(5, 5, 5, 5),)})
    assert boxes.places(rows) == [["a.jpg#cut=0,0,5,5"], ["a.jpg#cut=5,5,5,5"]]
    assert np.unique(boxes.places(rows)).size == 2
