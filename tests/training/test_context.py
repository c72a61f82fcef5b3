"""What all folds of a run share: the images that can be read, from any store, with any number of processes."""

import shutil
from pathlib import Path

import pytest

from podium.competition.find.csv_files import read_table
from tiny import FAST, Podium, assert_says, done, one_line, run_of, weights_hash, write_image

TRAIN = ("train", *FAST, "--model", "test_vit", "--epochs", "2", "--folds", "0")


def spoil_training_images(root: Path, *names: str) -> None:
    for name in names:
        (root / "data" / "raw" / "tiny" / "train_image" / f"{name}.jpg").write_bytes(b"<html>")


def test_unreadable_training_images_are_left_out_only_if_the_user_says_so(tiny: Path, podium: Podium) -> None:
    spoil_training_images(tiny, "003", "011")
    for words in (("--store", "on"), ("--store", "off"), ("--workers", "1")):
        one_line(
            podium(*TRAIN, *words),
            "2 training images cannot be read",
            "train_image/003.jpg (it is a web page",
            " audit -c tiny --drop-bad, or replace them",
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PODIUM_CALLED_BY", "make")
        assert "make audit COMP=tiny ARGS=--drop-bad, or" in one_line(podium(*TRAIN))
    _, err = done(podium("audit", "-c", "tiny", "--drop-bad"))
    assert "2 training images that cannot be read are left out from now on" in err
    lines = (tiny / "data" / "competitions" / "tiny.corrections.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [["003", "drop"], ["011", "drop"]]
    assert "leaves out none" in podium("audit", "-c", "tiny", "--drop-bad")[2]
    done(podium(*TRAIN))
    assert "003" not in run_of(tiny).out_of_fold(0).id


def test_an_image_that_was_left_out_and_is_mended_can_be_taken_back(tiny: Path, podium: Podium) -> None:
    spoil_training_images(tiny, "003", "011")
    done(podium("audit", "-c", "tiny", "--drop-bad"))
    corrections = tiny / "data" / "competitions" / "tiny.corrections.csv"
    corrections.write_text(corrections.read_text() + "005,drop,blurred\n")
    assert "can be read now" not in done(podium("audit", "-c", "tiny"))[1]
    images = tiny / "data" / "raw" / "tiny" / "train_image"
    shutil.copy(images / "004.jpg", images / "003.jpg")
    _, err = done(podium("audit", "-c", "tiny"))
    assert_says(err, "1 training image that --drop-bad has left out can be read now, id 003;", f"line in {corrections}")
    corrections.write_text("".join(line for line in corrections.read_text().splitlines(True) if line[:3] != "003"))
    assert "can be read now" not in done(podium("audit", "-c", "tiny"))[1]


def test_a_fold_of_which_no_image_is_left_is_refused(tiny: Path, podium: Podium) -> None:
    folds = read_table(tiny / "data" / "prepared" / "tiny" / "folds.csv")
    spoil_training_images(tiny, *folds["id"][folds["fold"] == "1"])
    done(podium("audit", "-c", "tiny", "--drop-bad"))
    one_line(podium(*TRAIN), "the corrections leave no image of fold 1; split again with: ")


def test_a_precision_that_the_device_lacks_is_refused_before_an_image_is_read(tiny: Path, podium: Podium) -> None:
    spoil_training_images(tiny, "003")
    assert "--precision float16 needs a GPU" in one_line(podium(*TRAIN, "--precision", "float16"))


def test_the_weights_do_not_depend_on_the_store(tiny: Path, podium: Podium) -> None:
    """The images are larger than what the store keeps, so that they are shrunk."""
    for path in (tiny / "data" / "raw" / "tiny" / "train_image").glob("*.jpg"):
        write_image(path, (200, 30, int(path.stem) * 9), int(path.stem), (90, 150))
    done(podium("folds", "-c", "tiny", "--k", "2"))
    for store in ("on", "off"):
        done(podium(*TRAIN, "--store", store, "--name", store))
    assert weights_hash(tiny, "on") == weights_hash(tiny, "off")


def test_images_are_not_left_out_if_one_class_would_remain(tiny: Path, podium: Podium) -> None:
    table = read_table(tiny / "data" / "raw" / "tiny" / "train.csv")
    labels = table.columns[1]
    spoil_training_images(tiny, *table["id"][table[labels] != table[labels].iloc[0]])
    one_line(podium("audit", "-c", "tiny", "--drop-bad"), "fewer than two classes have images that can be read")
    assert not (tiny / "data" / "competitions" / "tiny.corrections.csv").exists()
