"""Test images whose values or sizes are others than those of training are named, with the remedy."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pictures import write_image_competition
from podium.competition.load import load
from podium.images.other_images import describe_other_images
from podium.images.store import open_store
from podium.submissions.check import ADVICE, advice_on_same_answer
from test_deep_images import TRAIN
from tiny import Podium, assert_says, done, write_card


def grey(seed: int, brightest: int, dtype: type = np.uint16, size: tuple[int, int] = (30, 40)) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, brightest, size, endpoint=True)
    values[0, :2] = 0, brightest
    return Image.fromarray(values.astype(dtype))


def found(root: Path, train: list[Image.Image], test: list[Image.Image]) -> list[str]:
    named = {f"{number:02}": image for number, image in enumerate(train)}
    write_image_competition(
        root,
        {name: ("ab"[int(name) % 2], image) for name, image in named.items()},
        dict(zip("xyz", test, strict=False)),
    )
    competition = load("tiny", root)
    return describe_other_images(competition, open_store(competition, 128))


@pytest.mark.parametrize(
    ("train", "remedy"),
    [
        ([grey(seed, 255, np.uint8) for seed in range(6)], "write range = [0, 4095] or "),
        ([grey(seed, 60_000) for seed in range(6)], 'write range = "image" in '),
    ],
)
def test_12_bits_in_16_among_test_images_are_named(tmp_path: Path, train: list[Image.Image], remedy: str) -> None:
    (sentence,) = found(tmp_path, train, [grey(50, 50_000), grey(51, 4095), grey(52, 4095)])
    assert_says(sentence, "2 of 3 test images", "id y first", "values 0 to 4095")
    assert remedy in sentence
    assert str(tmp_path / "data" / "competitions" / "tiny.toml") in sentence
    assert "train again" in sentence
    write_card(tmp_path, 'range = "image"\n')
    competition = load("tiny", tmp_path)
    assert not describe_other_images(competition, open_store(competition, 128))


def test_dark_images_that_training_has_too_are_nothing_new(tmp_path: Path) -> None:
    train = [grey(seed, 60_000) for seed in range(5)] + [grey(9, 3000)]
    assert not found(tmp_path, train, [grey(50, 50_000), grey(51, 4095)])


def test_other_sizes_are_named(tmp_path: Path) -> None:
    train = [grey(seed, 255, np.uint8) for seed in range(6)]
    small, wide = grey(51, 255, np.uint8, (9, 12)), grey(52, 255, np.uint8, (30, 80))
    (sentence,) = found(tmp_path, train, [grey(50, 255, np.uint8, (40, 50)), small, wide])
    assert_says(sentence, "2 of 3 test images have sizes", "id y first", "12 x 9 pixels; most training images: 40 x 30")


def test_the_advice_where_all_get_one_class_is_about_these_images() -> None:
    assert advice_on_same_answer([]) == ADVICE
    assert advice_on_same_answer(["2 of 3 test images are dark; do this"]).startswith(
        "2 of 3 test images are dark; do "
    )
    assert "train longer" not in advice_on_same_answer(["x"])
    assert "--anyway" in advice_on_same_answer(["x"])


def test_submit_names_them_where_it_refuses(tmp_path: Path, podium: Podium) -> None:
    train = {f"{number:02}": ("ab"[number % 2], grey(number, 255, np.uint8)) for number in range(12)}
    write_image_competition(tmp_path, train, {f"x{number:02}": grey(9, 4095) for number in range(24)})
    done(podium("folds", "-c", "tiny", "--k", "2"))
    write_card(tmp_path, 'copies = "exact"\n')
    done(podium(*TRAIN))
    status, _, err = podium("submit", "-c", "tiny")
    assert status == 1
    warning, refusal = (line for line in err.splitlines() if "24 of 24 test images" in line)
    assert warning.startswith("podium: warning: ")
    assert_says(refusal, "all 24 test images would get the class", "id x00 first", "range = [0, 4095]")
    assert "train longer" not in refusal
