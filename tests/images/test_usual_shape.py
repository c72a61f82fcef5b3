"""The shape that nearly all images have decides how they become square."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from podium.competition.load import load
from podium.images.decode import ORIENTATION
from podium.images.usual_shape import usual_shape
from podium.options.recipe_defaults import Backbone, Data, fill_in_defaults
from podium.training.plan import make_plan
from podium.training.request import Request, check_before_plan
from tiny import write_competition, write_image


def images_of(root: Path) -> list[Path]:
    return sorted((root / "data" / "raw" / "tiny" / "train_image").glob("*.jpg"))


def shape_in(root: Path) -> float:
    return usual_shape(load("tiny", root))


def test_it_is_that_of_nearly_all_images(tmp_path: Path) -> None:
    write_competition(tmp_path)
    paths = images_of(tmp_path)
    assert shape_in(tmp_path) == 30 / 40
    for number, path in enumerate(paths[:2]):  # of 25
        write_image(path, (200, 30, 30), number, size=(50, 50))
    assert shape_in(tmp_path) == 30 / 40
    write_image(paths[2], (200, 30, 30), 2, size=(50, 50))
    assert shape_in(tmp_path) == 1.0


def test_a_camera_s_orientation_counts(tmp_path: Path) -> None:
    write_competition(tmp_path)
    for path in images_of(tmp_path):
        image = Image.open(path)
        exif = image.getexif()
        exif[ORIENTATION] = 6
        image.save(path, exif=exif)
    assert shape_in(tmp_path) == 40 / 30


def test_a_pipe_is_not_opened_and_has_no_shape(tmp_path: Path) -> None:
    write_competition(tmp_path)
    for path in images_of(tmp_path)[:3]:
        path.unlink()
        os.mkfifo(path)
    assert shape_in(tmp_path) == 30 / 40


def test_an_image_that_cannot_be_read_has_no_shape(tmp_path: Path) -> None:
    write_competition(tmp_path)
    for path in images_of(tmp_path)[:20]:
        path.write_bytes(b"no image")
    assert shape_in(tmp_path) == 30 / 40
    for path in images_of(tmp_path):
        path.write_bytes(b"no image")
    assert shape_in(tmp_path) == 1.0


def test_images_whose_channels_are_files_are_read_too(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "raw" / "tiny"
    rng = np.random.default_rng(0)
    rows = ["id,target"]
    for number in range(6):
        for channel in ("red", "green", "blue"):
            path = folder / "train" / f"a{number}_{channel}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (20, 40), dtype=np.uint8)).save(path)
        rows.append(f"a{number},{'xy'[number % 2]}")
    (folder / "train.csv").write_text("\n".join(rows) + "\n")
    assert shape_in(tmp_path) == 2.0


@pytest.mark.parametrize("weights", ["pretrained", "none"])
def test_oblong_images_are_squashed_unless_the_user_the_card_or_the_shape_says_otherwise(
    tiny: Path, weights: str
) -> None:
    options = {"model": "tf_efficientnet_lite0", "weights": weights}
    plan = make_plan(check_before_plan("tiny", tiny, Request(options)))
    assert (plan.recipe.fit, plan.origins["fit"]) == ("squash", "shape of the images")
    plan = make_plan(check_before_plan("tiny", tiny, Request({**options, "fit": "pad"})))
    assert (plan.recipe.fit, plan.origins["fit"]) == ("pad", "flag")
    backbone = Backbone("efficientnet", "batch norm", 224, 224)
    assert fill_in_defaults(options, {"fit": "crop"}, backbone, Data(shape=0.75)).fit == "crop"
    assert [fill_in_defaults(options, {}, backbone, Data(shape=shape)).fit for shape in (1.1, 1.2)] == [
        "crop",
        "squash",
    ]
