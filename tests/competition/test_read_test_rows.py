"""Test rows: from the sample submission, else from a table of test ids, else from the folder of test images."""

from pathlib import Path

import pytest

from layouts import IMAGES, LABELS, SAMPLE, TRAIN, load_error, load_files, table
from podium.competition.describe import describe
from tiny import assert_says


@pytest.mark.parametrize("card", ["", 'wants = "probs"'])
def test_without_a_sample_submission_the_test_table_lists_the_rows(tmp_path: Path, card: str) -> None:
    competition = load_files(tmp_path, IMAGES, {"train.csv": TRAIN, "test.csv": table("age,id", "40,5", "50,4")}, card)
    assert list(competition.test["id"]) == ["5", "4"]
    assert competition.submission_format.columns == ("id", "target")
    assert competition.submission_format.source == "no sample submission"


@pytest.mark.parametrize(("pattern", "ids"), [("{}", ["4", "5"]), ("{}.jpg", ["4.jpg", "5.jpg"])])
def test_without_any_table_the_images_of_the_test_folder_are_the_rows(
    tmp_path: Path, pattern: str, ids: list[str]
) -> None:
    train = table("image,label", *(f"{pattern.format(name)},{label}" for name, label in LABELS.items()))
    competition = load_files(tmp_path, IMAGES, {"train.csv": train})
    assert list(competition.test["id"]) == ids
    assert list(competition.test["image"]) == ["test/4.jpg", "test/5.jpg"]
    assert competition.submission_format.columns == ("image", "label")


def test_test_images_of_the_same_name_are_refused(tmp_path: Path) -> None:
    message = load_error(tmp_path, [*IMAGES, "test/more/4.jpg"], {"train.csv": TRAIN})
    assert_says(message, "2 test images are called '4'", 'test_images = "FOLDER"')


@pytest.mark.parametrize("folder", ["train/", "photos/", ""])
def test_a_table_and_a_folder_of_its_images_need_no_test_images(tmp_path: Path, folder: str) -> None:
    competition = load_files(tmp_path, [f"{folder}{i}.jpg" for i in (1, 2, 3)], {"labels.csv": TRAIN})
    assert (len(competition.train), len(competition.test)) == (3, 0)
    assert list(competition.test.columns) == ["id", "image"]
    assert "no test images" in describe(competition)
    assert not competition.notes


@pytest.mark.parametrize("folder", ["train/", ""])
def test_a_folder_for_each_class_needs_no_test_images(tmp_path: Path, folder: str) -> None:
    competition = load_files(tmp_path, [f"{folder}cat/1.jpg", f"{folder}dog/2.jpg"], {})
    assert (competition.classes, len(competition.test)) == (("cat", "dog"), 0)
    assert "no test images" in describe(competition)


@pytest.mark.parametrize("name", ["sample_submission.csv", "test.csv"])
def test_test_images_that_a_table_lists_may_not_be_missing(tmp_path: Path, name: str) -> None:
    message = load_error(tmp_path, IMAGES[:3], {"train.csv": TRAIN, name: SAMPLE})
    assert_says(message, f"{name}: 2 of 2 rows have no image", "download again")
