"""Training rows: from a table, where every id counts once, or from a folder per class."""

from pathlib import Path

import pytest

from layouts import IMAGES, SAMPLE, TABLES, TRAIN, load_error, load_files, table
from tiny import assert_says


def test_a_repeated_row_counts_once_and_is_noted(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, TABLES | {"train.csv": TRAIN + "2,dog\n1,cat\n"})
    assert list(competition.train["id"]) == ["1", "2", "3"]
    (note,) = competition.notes
    assert_says(note, "2 rows of train.csv left out", "they repeat an id with the same label")


def test_a_table_that_names_no_image_is_refused(tmp_path: Path) -> None:
    tables = {"labels.csv": table("number,name", "0,cat", "1,dog"), "sample_submission.csv": SAMPLE}
    message = load_error(tmp_path, ["train/a.jpg", *IMAGES[3:]], tables)
    assert_says(message, "labels.csv: no column names images below", "number, name", 'id_column = "NAME"')


# --- a folder per class ------------------------------------------------------------------------------

FOLDERS = ["train/cat/1.jpg", "train/dog/1.jpg", "train/dog/2.jpg", "test/4.jpg", "test/5.jpg"]


@pytest.mark.parametrize("train", ["train", "images/train", "train/train", "Training", "pictures"])
@pytest.mark.parametrize("top", ["", "training-data"])
def test_folders_per_class_are_labels(tmp_path: Path, train: str, top: str) -> None:
    images = [image.replace("train", train) for image in FOLDERS]
    sample = table("file,species", "5.jpg,cat", "4.jpg,cat")
    competition = load_files(tmp_path, images, {"sample_submission.csv": sample}, folder=top)
    assert list(competition.train["id"]) == ["cat/1.jpg", "dog/1.jpg", "dog/2.jpg"]
    assert list(competition.train["target"]) == ["cat", "dog", "dog"]
    assert competition.train["image"][0].endswith(f"{train}/cat/1.jpg")
    assert list(competition.test["id"]) == ["5.jpg", "4.jpg"]
    assert competition.submission_format.columns == ("file", "species")
    assert competition.notes == ()


def test_folders_per_class_need_no_sample_submission(tmp_path: Path) -> None:
    competition = load_files(tmp_path, FOLDERS, {}, 'id_column = "image"\ntarget_column = "kind"')
    assert list(competition.test["id"]) == ["4.jpg", "5.jpg"]
    assert competition.submission_format.columns == ("image", "kind")


def test_folders_per_class_may_have_a_column_per_class_in_the_sample_submission(tmp_path: Path) -> None:
    sample = table("img,dog,cat", "4.jpg,0,0", "5.jpg,0,0")
    assert load_files(tmp_path, FOLDERS, {"sample_submission.csv": sample}).classes == ("dog", "cat")


def test_class_folders_for_test_are_not_trained_on(tmp_path: Path) -> None:
    extra = ["test/cat/9.jpg", "test/dog/10.jpg"]
    competition = load_files(tmp_path, [*FOLDERS, *extra], {"sample_submission.csv": table("id,label", "4,cat")})
    assert list(competition.train["target"]) == ["cat", "dog", "dog"]
    assert competition.notes[1:] == ("2 images in neither the training nor the test rows",)


@pytest.mark.parametrize("name", ["val", "valid", "Validation", "val_images"])
@pytest.mark.parametrize("top", ["", "chest_xray/"])
def test_class_folders_for_validation_join_the_training_images(tmp_path: Path, name: str, top: str) -> None:
    """Even if their files have the names of training images: ids are paths."""
    images = [top + image for image in (*FOLDERS, f"{name}/cat/1.jpg", f"{name}/dog/2.jpg")]
    competition = load_files(tmp_path, images, {"sample_submission.csv": table("id,label", "4,cat", "5,cat")})
    ids = ["train/cat/1.jpg", "train/dog/1.jpg", "train/dog/2.jpg", f"{name}/cat/1.jpg", f"{name}/dog/2.jpg"]
    assert list(competition.train["id"]) == ids
    assert list(competition.train["image"]) == [top + image for image in ids]
    assert list(competition.train["target"]) == ["cat", "dog", "dog", "cat", "dog"]
    (note,) = competition.notes
    assert f"2 images in {top}{name}/ join the 3 training images in {top}train/" in note
    card = f'train_images = "{top}train"'
    assert f"to leave them out, write {card} in" in note
    assert list(load_files(tmp_path, [], {}, card).train["id"]) == ["cat/1.jpg", "dog/1.jpg", "dog/2.jpg"]


def test_a_validation_folder_of_another_class_or_a_second_one_is_refused(tmp_path: Path) -> None:
    message = load_error(tmp_path, [*FOLDERS, "val/cat/1.jpg", "val/bird/2.jpg"], {})
    assert_says(message, "val holds the folder 'bird', which train lacks", 'write train_images = "train"')
    message = load_error(tmp_path / "two", [*FOLDERS, "val/cat/1.jpg", "valid/cat/1.jpg"], {})
    assert "val holds images for validation, and so does valid" in message


def test_train_and_validation_are_not_classes(tmp_path: Path) -> None:
    message = load_error(tmp_path, ["images/train/1.jpg", "images/val/2.jpg", "images/test/3.jpg"], {})
    assert "neither a table of training labels (train.csv) nor a folder for each of several classes" in message
    assert 'write train_table = "NAME" or train_images = "FOLDER"' in message


def test_two_sets_of_class_folders_are_refused_unless_the_card_names_one(tmp_path: Path) -> None:
    images = [f"{top}/{label}/1.jpg" for top in ("photos", "masks") for label in ("cat", "dog")]
    message = load_error(tmp_path, [*images, "test/4.jpg"], {})
    assert "both masks and photos hold a folder for each of several classes" in message
    assert 'write train_images = "FOLDER"' in message
    competition = load_files(tmp_path, [], {}, 'train_images = "photos"')
    assert list(competition.train["image"]) == ["photos/cat/1.jpg", "photos/dog/1.jpg"]


def test_a_single_class_folder_is_not_enough(tmp_path: Path) -> None:
    assert "folder for each of several classes" in load_error(tmp_path, ["train/cat/1.jpg", "test/4.jpg"], {})


def test_the_card_can_say_that_a_table_does_not_list_the_training_images(tmp_path: Path) -> None:
    tables = {"labels.csv": table("number,name", "a,cat", "b,dog")}
    assert 'train_table = ""' in load_error(tmp_path, FOLDERS, tables)
    assert load_files(tmp_path, [], {}, 'train_table = ""').classes == ("cat", "dog")


def test_ids_that_repeat_for_each_patient_are_no_wrong_lines(tmp_path: Path) -> None:
    images = [f"train/{patient}/{number}.jpg" for patient in "ab" for number in range(3)]
    rows = [f"{patient},{number},{label}" for patient, label in (("a", "x"), ("b", "y")) for number in range(3)]
    message = load_error(tmp_path, [*images, "test/9.jpg"], {"train.csv": table("patient,slice,label", *rows)})
    assert_says(message, "has two labels", "add a column that names the files")
    assert "delete" not in message
