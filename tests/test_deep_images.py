"""Images of more than 8 bits: the card's range, in every place that decodes images, and greys that are too few."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pictures import saved, write_image_competition
from podium.competition.load import load
from podium.competition.value_range import ValueRange
from podium.images.decode import decode, decode_with_header, read_image
from podium.images.store import open_store
from podium.models.model_file import read_spec
from tiny import FAST, Podium, assert_says, done, one_line, run_of, write_card

TRAIN = ("train", *FAST, "--model", "test_vit", "--folds", "0", "--epochs", "1")
RANGE = "range = [0, 4095]\n"


def xray(seed: int, brightest: int = 3700) -> Image.Image:
    """An image of 16 bits that uses a fraction of 12 bits, as a converted DICOM does."""
    values = np.random.default_rng(seed).integers(2800, brightest, (30, 40), endpoint=True)
    values[0, :2] = 2800, brightest
    return Image.fromarray(values.astype(np.uint16))


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A project whose competition `tiny` has 16-bit images with values from 2800 to 3700."""
    train = {f"{number:02}": ("ab"[number % 2], xray(number, 3700 - 100 * (number % 2))) for number in range(12)}
    write_image_competition(tmp_path, train, {"x": xray(50), "y": xray(51)})
    return tmp_path


# --- one image ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "values", "value_range", "expected"),
    [
        ("uint16", (2800, 3700), None, (11, 14)),
        ("uint16", (0, 4095), (0.0, 4095.0), (0, 255)),
        ("uint16", (2800, 3700), (0.0, 4095.0), (174, 230)),
        ("uint16", (2800, 3700), "image", (0, 255)),
        ("uint16", (50, 5000), (100.0, 4000.0), (0, 255)),  # beyond the range
        ("uint16", (700, 700), "image", (0, 0)),  # one value only
        ("int32", (-1000, 3000), (-1000.0, 3000.0), (0, 255)),
        ("float32", (0.25, 0.5), (0.0, 0.5), (128, 255)),
    ],
)
def test_the_range_decides_what_is_black_and_white(
    dtype: str, values: tuple[float, float], value_range: ValueRange | None, expected: tuple[int, int]
) -> None:
    image = Image.fromarray(np.array([values], dtype))
    pixels, header = decode_with_header(saved(image, "TIFF"), "x", value_range)
    assert pixels[0, :, 0].tolist() == list(expected)
    assert header.values == values


def test_images_of_8_bits_have_no_range() -> None:
    data = saved(Image.fromarray(np.array([[3, 9]], np.uint8)), "PNG")
    pixels, header = decode_with_header(data, "x", (0.0, 10.0))
    assert np.array_equal(pixels, decode(data, "x"))
    assert header.values is None


# --- a competition -----------------------------------------------------------------------------------


def test_too_few_greys_are_refused_with_the_line_to_write(deep: Path, podium: Podium) -> None:
    out, _ = done(podium("audit", "-c", "tiny"))
    assert_says(out, "more than 8 bits: 14, with values from 2800 to 3700", "4 of 256 greys (1.6% of the range")
    done(podium("folds", "-c", "tiny", "--k", "2"))
    refusal = one_line(
        podium(*TRAIN), "12 of 12 training images", "2800 to 3700", 'write range = [0, 4095] or range = "image" in '
    )
    assert str(deep / "data/competitions/tiny.toml") in refusal
    for setting in (RANGE, 'range = "image"\n'):
        write_card(deep, setting)
        done(podium(*TRAIN, "--name", str(len(setting))))
    out, _ = done(podium("audit", "-c", "tiny"))
    assert "256 of 256 greys" in out
    assert "warning" not in out


def test_a_few_dark_images_are_a_warning(deep: Path, podium: Podium) -> None:
    for number in range(2, 12):
        xray(number, 60_000).save(deep / f"data/raw/tiny/train/{number:02}.png")
    done(podium("folds", "-c", "tiny", "--k", "2"))
    _, err = done(podium(*TRAIN))
    assert_says(err, "warning: 2 of 12 training images", "00.png first")


@pytest.mark.parametrize("values", [(5.0, 5.02), (-3.0, -2.0)])
def test_where_whole_bits_leave_too_few_greys_the_values_themselves_are_advised(
    deep: Path, podium: Podium, values: tuple[float, float]
) -> None:
    for path in (deep / "data/raw/tiny").glob("*/*.png"):
        path.with_suffix(".tif").write_bytes(saved(Image.fromarray(np.array([values] * 2, np.float32)), "TIFF"))
        path.unlink()
    write_card(deep, 'copies = "exact"\n')
    (deep / "data/prepared/tiny").mkdir(parents=True)
    rows = "".join(f"{number:02},{number % 2}\n" for number in range(12))
    (deep / "data/prepared/tiny/folds.csv").write_text(f"id,fold\n{rows}")
    assert f"range = [{values[0]:g}, {values[1]:g}" in one_line(podium(*TRAIN))


def test_stores_of_two_ranges_are_two_and_without_one_nothing_changes(deep: Path) -> None:
    keys, digests = [], []
    ranges: dict[str, ValueRange | None] = {"": None, RANGE: (0.0, 4095.0), 'range = "image"\n': "image"}
    for setting, value_range in ranges.items():
        write_card(deep, setting)
        for keep in (True, False):
            store = open_store(load("tiny", deep), 128, keep)
            read = store.reader(np.arange(len(store.names)))
            for number, name in enumerate(store.names):
                assert np.array_equal(read(number), read_image(store.folder / str(name), value_range))
        keys.append(store.files_key)
        digests.append(store.digest(np.arange(3)))
    assert len(set(keys)) == len(set(digests)) == 3


def test_a_model_sees_images_of_ones_own_as_it_saw_the_competitions(deep: Path, podium: Podium) -> None:
    write_card(deep, RANGE)
    done(podium("folds", "-c", "tiny", "--k", "2"))
    done(podium(*TRAIN, "--name", "it"))
    assert read_spec(run_of(deep, "it").weights_path(0)).value_range == (0.0, 4095.0)
    done(podium("submit", "-c", "tiny"))
    with np.load(run_of(deep, "it").fold_folder(0) / "test.npz") as file:
        expected = file["probs"]
    out, _ = done(podium("predict", "it", "-c", "tiny", deep / "data/raw/tiny/test", "--csv"))
    assert np.allclose(pd.read_csv(io.StringIO(out))[["a", "b"]], expected, atol=1e-6)
    write_card(deep, 'range = "image"\n')
    assert "range was [0, 4095] and is image" in one_line(podium(*TRAIN, "--name", "it"))
    one_line(podium("submit", "-c", "tiny"), "the range [0, 4095], but", "restore the range")


@pytest.mark.parametrize("value", [[1, 0], [1, 1], [0], ["a", "b"], [True, 2], "all", [0, "inf"]])
def test_a_range_that_is_none_is_refused_with_its_file(deep: Path, podium: Podium, value: object) -> None:
    write_card(deep, f"range = {json.dumps(value)}\n")
    one_line(podium("data", "-c", "tiny"), "tiny.toml: range must be", "[0, 4095]")
