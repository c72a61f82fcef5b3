"""Arrays of NumPy become pictures; what is none of a picture, damaged or meant to do harm is refused in a line."""

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy
from numpy.typing import NDArray

from podium.competition.containers.image_place import MAX_PIXELS
from podium.competition.containers.number_files import size_in_header
from podium.competition.containers.numpy_file import read_picture
from podium.images.decode import BadImage, decode, decode_with_header


def saved(array: NDArray[np.generic]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(**changes: object) -> bytes:
    """The header of an array, and eight numbers."""
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (2, 4), **changes})  # type: ignore[arg-type]
    return file.getvalue() + bytes(32)


RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((9, 7), (9, 7)),
        ((9, 7, 1), (9, 7)),
        ((1, 9, 7), (9, 7)),
        ((9, 7, 3), (9, 7)),
        ((9, 7, 4), (9, 7)),
        ((3, 9, 7), (9, 7)),
        ((2, 9, 7), (18, 7)),
        ((6, 9, 7), (54, 7)),
        ((9, 17, 6), (54, 17)),
    ],
)
def test_an_array_becomes_a_picture_of_the_size_in_its_header(
    tmp_path: Path, shape: tuple[int, ...], size: tuple[int, int]
) -> None:
    data = saved(RNG.integers(0, 256, shape, dtype=np.uint8))
    (tmp_path / "a.npy").write_bytes(data)
    assert decode(data, "a.npy").shape == (*size, 3)
    assert size_in_header(tmp_path / "a.npy") == size


def test_planes_stand_one_above_the_other_and_three_are_colours() -> None:
    planes = RNG.integers(0, 256, (6, 9, 7), dtype=np.uint8)
    stacked = np.concatenate(list(planes))
    assert np.array_equal(decode(saved(planes), "a")[..., 1], stacked)
    assert np.array_equal(decode(saved(np.moveaxis(planes[:, :, :], 0, -1)), "a")[..., 1], stacked)
    assert np.array_equal(decode(saved(np.asfortranarray(planes)), "a")[..., 1], stacked)
    assert np.array_equal(decode(saved(planes[:3]), "a"), np.moveaxis(planes[:3], 0, -1))


def test_a_fourth_channel_of_8_bits_is_transparency() -> None:
    pixels = np.full((4, 5, 4), 10, np.uint8)
    pixels[0, ..., 3], pixels[1:, ..., 3] = 0, 255
    rgb = decode(saved(pixels), "a")
    assert (rgb[0] == 255).all()
    assert (rgb[1:] == 10).all()
    assert decode(saved(pixels.astype(np.float32)), "a", (0.0, 20.0)).max() == 128


@pytest.mark.parametrize("dtype", ["float16", "float64", "int16", "int64", "uint16", ">i4"])
def test_numbers_are_seen_in_the_range(dtype: str) -> None:
    pixels, header = decode_with_header(saved(np.array([[0, 50], [100, 120]], dtype)), "a", (0.0, 100.0))
    assert pixels[..., 0].tolist() == [[0, 128], [255, 255]]
    assert header.values == (0.0, 120.0)


def test_truth_is_black_and_white() -> None:
    assert decode(saved(np.array([[True, False]])), "a")[0, :, 0].tolist() == [255, 0]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (saved(np.zeros((4, 4)))[:-9], "ends too early"),
        (saved(np.zeros((4, 4)))[:20], "EOF"),
        (saved(np.array([[1.0, np.nan]])), "not finite"),
        (saved(np.array([[1.0, 1e300]])), "not finite"),
        (saved(np.array([["a", "b"]])), "not plain numbers"),
        (saved(np.zeros((2, 2), complex)), "not plain numbers"),
        (saved(np.zeros((2, 2), [("a", "f4")])), "not plain numbers"),
        (header(descr="|O"), "Python objects"),
        (saved(np.zeros(9)), "shape, 9,"),
        (saved(np.zeros(())), "single number"),
        (saved(np.zeros((2, 2, 2, 2))), "2 x 2 x 2 x 2"),
        (saved(np.zeros((65, 66, 66), np.uint8)), "65 x 66 x 66"),
        (saved(np.zeros((0, 4))), "0 x 4"),
        (header(shape=(10**6, 10**6)), "more than 300 million"),
        (header(shape=(2**62, 2**62, 3)), "more than 300 million"),
        (header(shape=(-2, -4)), "shape"),
        (b"\x93NUMPY\x09\0", "9.0"),
        (b"\x93NUMPY", "magic"),
    ],
)
def test_what_is_no_picture_is_refused_in_a_line(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage) as refused:
        decode(data, "train/a.npy")
    assert "train/a.npy" in str(refused.value)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_objects_are_never_unpickled() -> None:
    class Harm:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return pytest.fail, ("it was unpickled",)

    data = header(descr="|O")[:-32] + pickle.dumps(np.array([Harm()]))
    with pytest.raises(BadImage, match="Python objects"):
        decode(data, "a.npy")


def test_a_picture_takes_no_memory_before_its_header_is_checked() -> None:
    with pytest.raises(ValueError, match="more than"):
        read_picture(header(shape=(MAX_PIXELS, 4)))
