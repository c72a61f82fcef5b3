"""Matching ids with images: every id finds its image and stays unchanged, or is refused with its line."""

from pathlib import Path

import pytest

from layouts import (
    IMAGE,
    IMAGES,
    LABELS,
    SAMPLE,
    TABLES,
    TRAIN,
    images_by_id,
    load_error,
    load_files,
    table,
    train_labels,
)
from tiny import assert_says


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("007", "007.jpg"),
        ("1e5", "1e5.jpg"),
        ("True", "True.jpg"),
        ("NA", "NA.jpg"),
        ("18446744073709551617", "18446744073709551617.jpg"),
        ("-1", "-1.jpg"),
        ("1.5", "1.5.jpg"),
        ("a.b", "a.b.png"),
        ("007.jpg", "007.jpg"),
        ("IMG_7.JPG", "img_7.jpg"),
        ("7.jpg", "7.JPG"),
        ("dog/7", "dog/7.jpg"),
        ("dog/7.jpg", "dog/7.jpg"),
        ("dog\\7.jpg", "dog/7.jpg"),
        ("./dog/7.jpg", "dog/7.jpg"),
        ("7", "dog/7.jpg"),
        ("ünï 7", "ünï 7.jpg"),
        ("e\u0301", "é.jpg"),
        ("猫", "猫.jpg"),
        ("a;b\t'c'", "a;b\t'c'.jpg"),
    ],
)
def test_an_id_finds_its_image_and_stays_unchanged(tmp_path: Path, name: str, image: str) -> None:
    tables = {
        "train.csv": table("id,target", f"{name},cat", "other,dog"),
        "sample_submission.csv": table("id,target", "last,cat", f"{name},cat"),
    }
    images = [f"train/{image}", f"test/{image}", "train/other.jpg", "test/last.jpg"]
    competition = load_files(tmp_path, images, tables)
    assert list(competition.train["id"]) == [name, "other"]
    assert list(competition.train["image"]) == [f"train/{image}", "train/other.jpg"]
    assert list(competition.test["id"]) == ["last", name]
    assert list(competition.test["image"]) == ["test/last.jpg", f"test/{image}"]


@pytest.mark.parametrize("prefix", ["train/", "./train/", "train\\", ""])
def test_ids_may_start_with_their_folder(tmp_path: Path, prefix: str) -> None:
    train = table("path,target", *(f"{prefix}{name}.jpg,{label}" for name, label in LABELS.items()))
    competition = load_files(tmp_path, IMAGES, {"train.csv": train, "sample_submission.csv": SAMPLE})
    assert list(competition.train["image"]) == IMAGES[:3]


@pytest.mark.parametrize("name", [" 5", "5 ", "5\u00a0"])
def test_blanks_around_an_id_are_kept_and_do_not_hide_its_image(tmp_path: Path, name: str) -> None:
    sample = table("id,target", f"{name},cat", "4,cat")
    competition = load_files(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})
    assert images_by_id(competition) == {name: "test/5.jpg", "4": "test/4.jpg"}


@pytest.mark.parametrize(
    "name", ["../test/4", "/etc/passwd", "../../secret.jpg", "train/../test/4", "C:\\4.jpg", "~/4", "//4", "."]
)
@pytest.mark.parametrize("file", ["train.csv", "sample_submission.csv"])
def test_an_id_that_leads_outside_has_no_image(tmp_path: Path, file: str, name: str) -> None:
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "secret.jpg").write_bytes(IMAGE)
    message = load_error(tmp_path, IMAGES, TABLES | {file: TABLES[file] + f"{name},cat\n"})
    assert_says(message, f"{file}: 1 of", f"(ids {name})")


def test_rows_without_images_are_counted_and_named(tmp_path: Path) -> None:
    extra = "".join(f"x{i},cat\n" for i in range(1200))
    message = load_error(tmp_path, IMAGES, TABLES | {"train.csv": TRAIN + extra})
    assert "train.csv: 1,200 of 1,203 rows have no image below" in message
    assert "(ids x0, x1, x2, x3, x4, ... (1200 in all)), the first on line 5" in message
    assert "download again, delete those rows" in message
    assert f'write train_images = "FOLDER" in {tmp_path}/data/competitions/it.toml' in message
    message = load_error(tmp_path, [], TABLES | {"sample_submission.csv": SAMPLE + "6,cat\n"})
    assert_says(message, "sample_submission.csv: 1 of 3 rows have no image", 'test_images = "FOLDER"')


def test_ids_without_images_are_shown_with_their_blanks_and_a_remedy(tmp_path: Path) -> None:
    sample = table("id,target", "05 ,cat", "4,cat")
    message = load_error(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})
    assert_says(message, "(ids '05 ')", "name their files in a test.csv, beside 'id'")
    tables = {
        "sample_submission.csv": table("id,target", "05,cat", "4,cat"),
        "test.csv": table("id,file", "05,5", "4,4"),
    }
    competition = load_files(tmp_path, IMAGES, TABLES | tables)
    assert list(competition.test["image"]) == ["test/5.jpg", "test/4.jpg"]


# --- several images for one id, several ids for one image --------------------------------------------


@pytest.mark.parametrize("twin", ["train/1.png", "train/1.JPG", "train/sub/1.jpg", "more/1.jpg"])
def test_an_id_that_could_mean_two_images_is_refused_with_both(tmp_path: Path, twin: str) -> None:
    is_second_set = "sub" in twin or "more" in twin
    others = [twin.replace("1", name) for name in ("2", "3") if is_second_set]
    message = load_error(tmp_path, [*IMAGES, twin, *others], TABLES)
    assert_says(message, "train.csv, line 2: id '1' could be ", "train/1.jpg")
    assert twin in message
    assert "delete one of them" in message
    # A folder tells two files apart only if they are in two.
    assert ('train_images = "FOLDER"' in message) == is_second_set
    assert ("with their extension" in message) != is_second_set


def test_of_several_images_an_id_means_the_one_with_exactly_its_name(tmp_path: Path) -> None:
    train = table("id,target", "a,cat", "A,dog", "b.jpg,cat", "b.jpg.png,dog")
    images = ["train/a.jpg", "train/A.jpg", "train/b.jpg", "train/b.jpg.png", *IMAGES]
    assert train_labels(load_files(tmp_path, images, TABLES | {"train.csv": train})) == {
        "train/a.jpg": "cat",
        "train/A.jpg": "dog",
        "train/b.jpg": "cat",
        "train/b.jpg.png": "dog",
    }


def test_a_folder_of_a_few_examples_does_not_make_ids_ambiguous(tmp_path: Path) -> None:
    competition = load_files(tmp_path, [*IMAGES, "examples/1.jpg", "examples/4.jpg"], TABLES)
    assert list(competition.train["image"]) == IMAGES[:3]
    assert competition.notes == ("2 images in neither the training nor the test rows",)


def test_ids_with_their_class_folder_tell_equal_numbers_apart(tmp_path: Path) -> None:
    images = ["train/cat/1.jpg", "train/dog/1.jpg", "examples/cat/1.jpg"]
    train = table("id,target", "cat/1,cat", "dog/1,dog")
    competition = load_files(tmp_path, [*images, *IMAGES[3:]], TABLES | {"train.csv": train})
    assert list(competition.train["image"]) == images[:2]


# --- ids that are row numbers ------------------------------------------------------------------------

NUMBERED = {
    "train.csv": table("id,image_path,label", "0,train/1.jpg,cat", "1,train/2.jpg,dog", "2,train/3.jpg,cat"),
    "test.csv": table("id,image_path", "0,test/4.jpg", "1,test/5.jpg"),
    "sample_submission.csv": table("id,label", "1,0", "0,0"),
}


def test_if_ids_are_row_numbers_another_column_names_the_images(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, NUMBERED)
    assert competition.train.to_numpy().tolist() == [
        ["0", "cat", "train/1.jpg"],
        ["1", "dog", "train/2.jpg"],
        ["2", "cat", "train/3.jpg"],
    ]
    assert competition.test.to_numpy().tolist() == [["1", "test/5.jpg"], ["0", "test/4.jpg"]]


@pytest.mark.parametrize("file", ["{}.jpg", "test/{}.jpg"])
def test_a_column_of_files_says_which_images_are_meant_even_if_others_are_called_like_the_ids(
    tmp_path: Path, file: str
) -> None:
    images = [f"{role}/{number}.jpg" for role in ("train", "test") for number in range(3)]
    tables = {
        "train.csv": table("id,label,filename", "0,a,2.jpg", "1,b,0.jpg", "2,a,1.jpg"),
        "test.csv": table("id,filename", *(f"{row},{file.format((row + 1) % 3)}" for row in range(3))),
        "sample_submission.csv": table("id,label", "0,a", "1,a", "2,a"),
    }
    competition = load_files(tmp_path, images, tables)
    assert images_by_id(competition) == {"0": "test/1.jpg", "1": "test/2.jpg", "2": "test/0.jpg"}
    assert train_labels(competition) == {"train/2.jpg": "a", "train/0.jpg": "b", "train/1.jpg": "a"}
    assert [note for note in competition.notes if "column 'filename'" in note and "test.csv" in note]


def test_ids_that_name_their_images_need_no_clear_test_table(tmp_path: Path) -> None:
    tables = {**TABLES, "a/test.csv": table("id,filename", "4,5.jpg"), "b/test.csv": table("id,filename", "4,5.jpg")}
    assert images_by_id(load_files(tmp_path, IMAGES, tables)) == {"4": "test/4.jpg", "5": "test/5.jpg"}


def test_a_second_column_of_files_changes_nothing_if_the_first_agrees_with_the_ids(tmp_path: Path) -> None:
    images = [f"{role}/{number}.jpg" for role in ("train", "test") for number in range(3)]
    tables = {
        "train.csv": table("id,label,mirrored,file", "0,a,1.jpg,0.jpg", "1,b,0.jpg,1.jpg", "2,a,2.jpg,2.jpg"),
        "sample_submission.csv": table("id,label", "0,a", "1,a", "2,a"),
    }
    competition = load_files(tmp_path, images, tables)
    assert train_labels(competition) == {"train/0.jpg": "a", "train/1.jpg": "b", "train/2.jpg": "a"}


def test_row_numbers_need_no_sample_submission(tmp_path: Path) -> None:
    tables = {name: text for name, text in NUMBERED.items() if name != "sample_submission.csv"}
    competition = load_files(tmp_path, IMAGES, tables, 'id_column = "id"\ntarget_column = "label"')
    assert competition.test.to_numpy().tolist() == [["0", "test/4.jpg"], ["1", "test/5.jpg"]]


@pytest.mark.parametrize("some", [True, False])
@pytest.mark.parametrize("file", ["train.csv", "sample_submission.csv"])
def test_ids_that_were_written_as_decimals_are_explained(tmp_path: Path, file: str, some: bool) -> None:
    images = ["train/0.jpg", "train/1.jpg", "train/2.jpg", "test/4.jpg", "test/5.jpg"]
    rows = {"train.csv": ["0,cat", "1,dog", "2,cat"], "sample_submission.csv": ["4,cat", "5,cat"]}
    rows[file] = [row.replace(",", ".0,") if number or not some else row for number, row in enumerate(rows[file])]
    message = load_error(tmp_path, images, {name: table("id,label", *lines) for name, lines in rows.items()})
    assert file in message
    assert_says(message, "look like decimals", "whole numbers", "pandas")


def test_a_row_number_without_an_image_is_refused(tmp_path: Path) -> None:
    message = load_error(tmp_path, IMAGES, NUMBERED | {"sample_submission.csv": table("id,label", "1,0", "7,0")})
    assert_says(message, "sample_submission.csv: 1 of 2 rows have no image", "(ids 7)")
    without_test = {name: text for name, text in NUMBERED.items() if name != "test.csv"}
    assert "sample_submission.csv: 2 of 2 rows have no image" in load_error(tmp_path / "without", IMAGES, without_test)


def test_a_row_number_with_two_images_is_refused(tmp_path: Path) -> None:
    test = NUMBERED["test.csv"] + "1,test/4.jpg\n"
    message = load_error(tmp_path, IMAGES, NUMBERED | {"test.csv": test})
    assert_says(message, "test.csv, line 4: id '1' has a second image", "delete one")


def test_tens_of_thousands_of_images_with_few_names_load_in_a_moment(tmp_path: Path) -> None:
    """Every class numbers its images from 0: looking an id up by its file name alone would take minutes."""
    names = [f"c{label}/{i}.jpg" for label in range(200) for i in range(100)]
    tables = {
        "train.csv": table("id,target", *(f"{name},{name.split('/')[0]}" for name in names)),
        "sample_submission.csv": table("id,target", *(f"t{i},c0" for i in range(10))),
    }
    images = [*(f"train/{name}" for name in names), *(f"test/t{i}.jpg" for i in range(10))]
    assert list(load_files(tmp_path, images, tables).train["image"]) == [f"train/{name}" for name in names]
