"""--image-size 80x60: models see oblong images, in the shape of the files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from podium.basics.errors import PodiumError
from podium.basics.image_size import ImageSize, area_of, parse_size, shorter_side, sides_of, square_side
from podium.basics.randomness import generator
from podium.models.build import ModelSpec
from podium.options.moves.augmenter import random_crop
from podium.training.augment import TestView
from tiny import (
    Podium,
    assert_stopped_and_resumed_alike,
    done,
    one_line,
    podium_at,
    recipe_of,
    run_of,
    write_card,
    write_competition,
)

SPEC = ModelSpec(
    "test_vit", ("a", "b"), "80x40", "80x40", (0.5, 0.4, 0.3), (0.2, 0.2, 0.1), "bicubic", 1, "crop", "none"
)
TRAIN = ("train", "-c", "tiny", "--weights", "none", "--image-size", "48x32", "--batch-size", "8", "--workers", "0")


def test_a_size_is_a_number_or_two() -> None:
    sizes: dict[object, ImageSize] = {224: 224, "224": 224, "64x64": 64, "80x60": "80x60"}
    for value, size in sizes.items():
        assert parse_size(value) == size
    for value in ("80x", "x60", "80X60", "-3", "8x6x4", "", True, 2.5, None):
        with pytest.raises(ValueError, match="HEIGHTxWIDTH"):
            parse_size(value)
    assert sides_of("80x60") == (80, 60)
    assert area_of("80x60") == 4800
    assert shorter_side("80x60", 64) == 64
    assert square_side(64, "it") == 64
    with pytest.raises(PodiumError, match="it needs square images, not 80x60; use --image-size 60"):
        square_side("80x60", "it")


def test_both_sides_grow() -> None:
    recipe = recipe_of("test_resnet").but(image_size="96x48", epochs=10, grow=0.5)
    assert [recipe.size_at(epoch) for epoch in (0, 2, 4, 5)] == ["48x32", "64x32", "80x32", "96x48"]


def test_an_image_of_the_same_shape_is_seen_whole() -> None:
    image = np.random.default_rng(0).integers(0, 256, (80, 40, 3), dtype=np.uint8)
    for fit in ("crop", "squash", "pad"):
        assert np.array_equal(TestView(replace(SPEC, fit=fit))(image), image)


def test_another_shape_is_cropped_squashed_or_padded() -> None:
    """The image is 40 high and 120 wide; a third of its width, in the middle, is white."""
    image = np.zeros((40, 120, 3), np.uint8)
    image[:, 40:80] = 255
    cropped, squashed, padded = (TestView(replace(SPEC, fit=fit))(image) for fit in ("crop", "squash", "pad"))
    assert {seen.shape for seen in (cropped, squashed, padded)} == {(80, 40, 3)}
    assert (cropped == 255).all()  # 40 x 20 of it
    assert (squashed[:, 20] == 255).all()
    assert (squashed[:, 2] == 0).all()
    assert padded[0, 20].tolist() == [128, 102, 76]  # the mean colour
    assert (padded[40, 20] == 255).all()
    assert (padded[40, 2] == 0).all()
    is_white = (padded[:, 20] == 255).all(1)  # of 120 x 40 pixels, 40 x 13 are left
    assert np.flatnonzero(is_white).tolist() == list(range(34, 46))


@pytest.mark.parametrize("target", [0.5, 1.0, 2.0])
def test_a_random_crop_has_nearly_the_final_shape(target: float) -> None:
    image = np.zeros((200, 300, 3), np.uint8)
    ratios = []
    for row in range(200):
        box = random_crop(image, generator(9, row), (0.2, 0.5), "crop", target)
        ratios.append(box.shape[1] / box.shape[0] / target)
    assert 0.72 < min(ratios) < 0.85
    assert 1.18 < max(ratios) < 1.45


@pytest.fixture(scope="module")
def folded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("oblong")
    write_competition(root)
    podium_at(root, "folds", "-c", "tiny", "--k", "2")
    return root


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("test_resnet", ("--grow", "0.6", "--views", "mirror+zoom")),
        pytest.param("test_vit", ("--fit", "pad", "--ops", "1"), marks=pytest.mark.all),
        ("test_vit", ("--fit", "squash", "--test-size", "48x32")),
        ("test_resnet", ("--linear",)),
    ],
)
def test_models_learn_and_predict(folded: Path, podium: Podium, model: str, options: tuple[str, ...]) -> None:
    name = "-".join([model, *(option.strip("-") for option in options)])
    _, err = done(podium("--root", folded, *TRAIN, "--model", model, "--epochs", "2", "--name", name, *options))
    assert f"{model} at 48x32 px" in err
    assert run_of(folded, name).recipe["image_size"] == "48x32"
    out, _ = done(podium("--root", folded, "submit", "-c", "tiny", "--runs", name, "--anyway"))
    csv = Path(out.strip())
    assert len(pd.read_csv(csv)) == 7
    csv.unlink()
    done(podium("--root", folded, "submit", "--from", csv.with_suffix(".json")))
    picture = folded / "data" / "raw" / "tiny" / "test_image" / "000.jpg"
    done(podium("--root", folded, "predict", "-c", "tiny", name, picture))
    done(podium("--root", folded, "compare", "-c", "tiny"))


@pytest.mark.all
def test_a_run_resumes_to_the_bit(folded: Path, podium: Podium) -> None:
    words = ("--root", folded, *TRAIN, "--model", "test_resnet", "--epochs", "3", "--folds", "0")
    assert_stopped_and_resumed_alike(podium, folded, 2, *words)


@pytest.mark.annex
def test_what_needs_squares_says_so(folded: Path, podium: Podium) -> None:
    train = ("--root", folded, *TRAIN, "--epochs", "1")
    one_line(
        podium(*train, "--model", "test_resnet", "--views", "turn"),
        "--views turn needs square images, not 48x32; use --image-size 32",
    )
    one_line(
        podium(*train, "--model", "test_vit", "--image-size", "50x33"),
        "cannot take images of 50x33 pixels",
        "try --image-size 48x32",
    )
    card = write_card(folded, '[recipe]\nimage_size = "48x32"\n')
    problem = one_line(podium("--root", folded, "pretrain", "-c", "tiny", "--model", "test_resnet"))
    card.write_text("[recipe]\nimage_size = 5000\n")
    assert "pretraining needs square images, not 48x32" in problem
    problem = one_line(podium("--root", folded, "train", "-c", "tiny", "--model", "test_resnet"))
    card.unlink()
    assert "[recipe]: image_size must be between 1 and 4,096, not 5000" in problem
    for value in ("0x32", "32x5000"):
        one_line(
            podium(*train, "--model", "test_resnet", "--image-size", value),
            f"--image-size must be between 1 and 4,096, not {value}",
        )
    assert (
        "'big' is not a number of pixels, or HEIGHTxWIDTH as in 80x60"
        in podium(*train, "--model", "test_resnet", "--image-size", "big")[2]
    )


@pytest.mark.annex
def test_the_recipe_of_a_square_is_a_number(folded: Path, podium: Podium) -> None:
    train = ("--root", folded, *TRAIN[:5], "--batch-size", "8", "--workers", "0", "--model", "test_resnet")
    done(podium(*train, "--image-size", "32x32", "--epochs", "1", "--folds", "0", "--name", "square"))
    assert run_of(folded, "square").recipe["image_size"] == 32
