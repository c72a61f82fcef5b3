"""folds = "val" in the card: the images that the competition gives for validation are the only fold."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from layouts import load_error, load_files, table
from podium.folds.split import labels_of, validation_fold
from tiny import COLOURS, FAST, Podium, done, one_line, write_card, write_image

FOLDS = Path("data/prepared/tiny/folds.csv")


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    """train/, val/ and test/ with a folder for each colour; the card makes val/ the only fold."""
    folder = tmp_path / "data" / "raw" / "tiny"
    for number, (colour, role) in enumerate((c, r) for c in ("red", "green") for r in [*["train"] * 8, *["val"] * 4]):
        write_image(folder / role / colour / f"{number}.jpg", COLOURS[colour], number)
    for number in range(3):
        write_image(folder / "test" / f"{number}.jpg", COLOURS["red"], 100 + number)
    write_card(tmp_path, 'folds = "val"\n')
    return tmp_path


def validated(root: Path) -> list[str]:
    folds = pd.read_csv(root / FOLDS)
    assert set(folds["fold"]) == {-1, 0}
    return [name for name, fold in zip(folds["id"], folds["fold"], strict=True) if fold == 0]


def test_the_images_for_validation_are_the_only_fold(colours: Path, podium: Podium) -> None:
    _, err = done(podium("folds", "-c", "tiny"))
    assert "the 8 images for validation are the only fold" in err
    names = validated(colours)
    assert len(names) == 8
    assert all(name.startswith("val/") for name in names)
    done(podium("folds", "-c", "tiny", "--verify"))
    out, err = done(podium("train", *FAST, "--model", "test_resnet", "--epochs", "1"))
    assert "over 1 of 1 folds" in out + err
    out, err = done(podium("submit", "-c", "tiny", "--anyway"))
    assert "on 8 held-out images" in err
    assert len(pd.read_csv(out.strip())) == 3


def test_a_second_way_to_split_is_refused(colours: Path, podium: Podium) -> None:
    one_line(
        podium("folds", "-c", "tiny", "--by-time", "taken"),
        'tiny.toml: folds = "val" decides the folds',
        "leave out --by-time",
    )


def test_duplicates_of_training_images_are_not_validated(colours: Path, podium: Podium) -> None:
    folder = colours / "data" / "raw" / "tiny"
    shutil.copy(folder / "train" / "red" / "0.jpg", folder / "val" / "red" / "copy.jpg")
    _, err = done(podium("folds", "-c", "tiny"))
    assert "1 of 9 images for validation are trained on: they are duplicates" in err
    assert "val/red/copy.jpg" not in validated(colours)
    assert len(validated(colours)) == 8


def test_nothing_left_to_validate_is_refused(colours: Path, podium: Podium) -> None:
    folder = colours / "data" / "raw" / "tiny"
    for colour in ("red", "green"):
        shutil.rmtree(folder / "val" / colour)
        shutil.copytree(folder / "train" / colour, folder / "val" / colour)
    assert "no image for validation is left: they are duplicates" in one_line(podium("folds", "-c", "tiny"))


def test_classes_and_groups_stay_whole() -> None:
    """Image 4 shares a group with a training image; 5 is the only one of its class, and 6 shares its group."""
    targets, groups = ["a", "a", "b", "b", "a", "c", "b", "a"], np.array([0, 1, 2, 3, 1, 5, 5, 7])
    is_validation = np.array([False, False, False, False, True, True, True, True])
    folds = validation_fold(is_validation, labels_of(targets), groups)
    assert folds.tolist() == [-1, -1, -1, -1, -1, -1, -1, 0]


def test_it_needs_images_for_validation(tmp_path: Path) -> None:
    images = [f"train/{name}/{number}.jpg" for name in ("cat", "dog") for number in range(3)]
    assert 'folds = "val", but no training images are in a folder val/ or a table val.json' in load_error(
        tmp_path / "a", images, {}, 'folds = "val"'
    )
    assert "folds must be one of val, not 'test'" in load_error(tmp_path / "b", images, {}, 'folds = "test"')


def test_rows_of_a_table_for_validation_count(tmp_path: Path) -> None:
    def coco(numbers: range) -> str:
        images = ",".join(f'{{"id": {n}, "file_name": "train_val/{n}.jpg"}}' for n in numbers)
        labels = ",".join(f'{{"id": {n}, "image_id": {n}, "category_id": {n % 2}}}' for n in numbers)
        return f'{{"images": [{images}], "annotations": [{labels}]}}'

    tables = {
        "train2019.json": coco(range(6)),
        "val2019.json": coco(range(6, 9)),
        "sample_submission.csv": table("id,predicted", "9,0"),
    }
    images = [f"train_val/{n}.jpg" for n in range(9)] + ["test/9.jpg"]
    assert load_files(tmp_path, images, tables).validation == frozenset()
    assert load_files(tmp_path, images, tables, 'folds = "val"').validation == {"6", "7", "8"}
