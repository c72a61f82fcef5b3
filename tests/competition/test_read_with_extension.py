"""A reader of the project's own: what it gives is used, and checked with the name of its file."""

from pathlib import Path

import pytest

from layouts import IMAGES, TABLES, images_by_id, load_error, load_files, table, train_labels

TRAIN = '{"id": [1, 2, 3], "target": ["cat", "dog", "cat"], "image": [f"train/{i}.jpg" for i in (1, 2, 3)]}'
TEST = '{"id": [4, 5], "image": ["test/4.jpg", "test/5.jpg"]}'
CARD = 'extend = "mine.py"'


def write_reader(root: Path, result: str) -> None:
    source = "import pandas as pd\nfrom podium import extend\n\n@extend.reader\ndef mine(folder):\n    return "
    (root / "mine.py").write_text(source + result)


def frames(train: str = TRAIN, test: str = TEST) -> str:
    return f"pd.DataFrame({train}), pd.DataFrame({test})"


def test_the_rows_of_a_reader_take_the_place_of_tables(tmp_path: Path) -> None:
    write_reader(tmp_path, frames())
    competition = load_files(tmp_path, IMAGES, {"notes.csv": table("a,b", "x,y")}, CARD)
    assert train_labels(competition) == {"train/1.jpg": "cat", "train/2.jpg": "dog", "train/3.jpg": "cat"}
    assert images_by_id(competition) == {"4": "test/4.jpg", "5": "test/5.jpg"}
    assert competition.submission_format.columns == ("id", "label")


def test_the_sample_submission_gives_the_order_or_the_test_rows(tmp_path: Path) -> None:
    sample = {"sample_submission.csv": TABLES["sample_submission.csv"]}
    write_reader(tmp_path, frames())
    assert list(load_files(tmp_path, IMAGES, sample, CARD).test["id"]) == ["5", "4"]
    write_reader(tmp_path, f"pd.DataFrame({TRAIN}), None")
    assert images_by_id(load_files(tmp_path, IMAGES, sample, CARD)) == {"5": "test/5.jpg", "4": "test/4.jpg"}


def test_a_reader_needs_no_clear_tables_beside_it(tmp_path: Path) -> None:
    tables = {name: table("id,label", "1,a") for name in ("a/test.csv", "b/test.csv", "a/train.csv", "b/train.csv")}
    write_reader(tmp_path, frames())
    assert images_by_id(load_files(tmp_path, IMAGES, tables, CARD)) == {"4": "test/4.jpg", "5": "test/5.jpg"}


def test_a_reader_of_another_layout_changes_nothing(tmp_path: Path) -> None:
    write_reader(tmp_path, "None")
    assert len(load_files(tmp_path, IMAGES, TABLES, CARD).train) == 3


def test_groups_of_a_reader_are_kept(tmp_path: Path) -> None:
    write_reader(tmp_path, frames("{**" + TRAIN + ', "group": ["a", None, "a"]}'))
    groups = load_files(tmp_path, IMAGES, {}, CARD).groups
    assert groups is not None
    assert list(groups) == ["a", "", "a"]


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        ("pd.DataFrame()", "must return None or two data frames, (train, test)"),
        (frames("{'id': [1]}"), "must give train as a data frame with rows and the columns id, target, image"),
        (frames(TRAIN.replace('"dog"', "None")), "gives no target in row 1 of train"),
        (frames(TRAIN.replace("1, 2, 3]", "1, 1, 3]", 1)), "gives the id '1' twice in train"),
        (frames(TRAIN.replace("in (1, 2, 3)", "in (1, 2, 2)")), "gives the image 'train/2.jpg' twice in train"),
        (frames(test=TEST.replace("test/4", "../4")), "names 1 of 2 images of test that are not below"),
        (frames(test=TEST.replace("[4, 5]", "[4, 6]")), "gives other test ids than sample_submission.csv: 5, 6"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_wrong_rows_are_refused_with_the_readers_file(tmp_path: Path, result: str, problem: str) -> None:
    write_reader(tmp_path, result)
    message = load_error(tmp_path, IMAGES, TABLES, CARD)
    assert str(tmp_path / "mine.py") in message
    assert "reader mine" in message
    assert problem in message


def test_a_group_column_needs_groups_of_the_reader(tmp_path: Path) -> None:
    write_reader(tmp_path, frames())
    assert "gives no column group" in load_error(tmp_path, IMAGES, TABLES, CARD + '\ngroup_column = "patient"')
