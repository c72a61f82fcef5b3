"""Images of one's own, without a test set: they are audited, split, trained on and compared; nothing is submitted."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from second_round import first_of
from tiny import FAST, Podium, done, one_line, write_competition

Arrange = Callable[[Path], None]


def arrange_as_table(folder: Path) -> None:
    (folder / "train_image").rename(folder / "photos")


def arrange_as_class_folders(folder: Path) -> None:
    with (folder / "train.csv").open() as file:
        for row in csv.DictReader(file):
            path = folder / row["target"] / f"{row['id']}.jpg"
            path.parent.mkdir(exist_ok=True)
            (folder / "train_image" / path.name).rename(path)
    (folder / "train_image").rmdir()
    (folder / "train.csv").unlink()


@pytest.mark.annex
@pytest.mark.parametrize("arrange", first_of([arrange_as_class_folders], [arrange_as_table, arrange_as_class_folders]))
def test_images_without_a_test_set_are_trained_on_and_compared(
    tmp_path: Path, podium: Podium, arrange: Arrange
) -> None:
    folder = write_competition(tmp_path)
    shutil.rmtree(folder / "test_image")
    (folder / "sample_submission.csv").unlink()
    shutil.copy(folder / "train_image" / "000.jpg", folder / "train_image" / "001.jpg")  # a duplicate
    arrange(folder)
    out, _ = done(podium("data", "-c", "tiny"))
    assert "no test images" in out
    out, _ = done(podium("audit", "-c", "tiny"))
    assert "2 training images with a duplicate" in out
    assert "test image" not in out
    for words in (("folds", "-c", "tiny", "--k", "2"), ("folds", "-c", "tiny", "--verify")):
        done(podium(*words))
    _, err = done(podium("train", *FAST, "--model", "test_convnext", "--epochs", "1"))
    assert f"next: podium --root {tmp_path} compare -c tiny" in err
    out, err = done(podium("compare", "-c", "tiny"))
    assert "test_convnext" in out
    assert err.splitlines()[-1] == f"next: podium --root {tmp_path} report -c tiny"
    _, err = done(podium("report", "-c", "tiny"))
    assert err.splitlines()[-1] == f"next: podium --root {tmp_path} compete -c tiny"
    for command in ("submit", "kaggle-bundle"):
        one_line(
            podium(command, "-c", "tiny"), f"{folder}: no test images", f"podium --root {tmp_path} compare -c tiny"
        )
