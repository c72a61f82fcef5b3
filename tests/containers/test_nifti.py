"""A NIfTI volume becomes a grid of slices across the body, with the patient's front at the top."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from layouts import load_files, raw_path, table
from podium.competition.containers.number_files import size_in_header
from podium.images.decode import BadImage, decode
from tiny import assert_says, write_file

pytestmark = pytest.mark.annex

nibabel = pytest.importorskip("nibabel")
RAS = np.eye(4)


def written(values: NDArray[np.generic], affine: NDArray[np.float64] = RAS, kind: str = "Nifti1Image") -> bytes:
    image = getattr(nibabel, kind)(values, affine)
    data: bytes = image.to_bytes()
    return data


def volume(depth: int = 4) -> NDArray[np.int16]:
    """Values that say where they are: across, to the front, up."""
    return (np.arange(3)[:, None, None] + 10 * np.arange(5)[:, None] + 100 * np.arange(depth)).astype(np.int16)


def as_greys(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    wide = values.astype(np.float32)
    greys: NDArray[np.uint8] = ((wide - wide.min()) * 255 / (wide.max() - wide.min()) + 0.5).astype(np.uint8)
    return greys


def expected_of(values: NDArray[np.int16]) -> NDArray[np.uint8]:
    slices = [values[:, ::-1, number].T for number in range(4)]
    return as_greys(np.vstack([np.hstack(slices[:2]), np.hstack(slices[2:])]))


@pytest.mark.parametrize("kind", ["Nifti1Image", "Nifti2Image"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_volume_becomes_a_grid_of_its_slices(tmp_path: Path, kind: str, is_packed: bool) -> None:
    data = written(volume(), kind=kind)
    path = tmp_path / "a.nii"
    path.write_bytes(gzip.compress(data) if is_packed else data)
    assert np.array_equal(decode(path.read_bytes(), "a.nii")[..., 0], expected_of(volume()))
    assert size_in_header(path) == (10, 6)


def test_however_a_volume_is_stored_the_picture_is_the_same() -> None:
    stored = np.transpose(volume(), (2, 0, 1))[::-1, :, ::-1]
    affine = np.zeros((4, 4))
    affine[2, 0], affine[0, 1], affine[1, 2], affine[3, 3] = -1, 1, -1, 1  # down, across, to the back
    assert np.array_equal(decode(written(stored, affine), "a.nii")[..., 0], expected_of(volume()))


def test_of_many_slices_sixteen_are_taken_and_of_a_series_the_first_volume(tmp_path: Path) -> None:
    values = np.stack([volume(155), volume(155) + 7], axis=-1)
    pixels = decode(written(values), "a.nii")
    assert pixels.shape == (20, 12, 3)
    for number in range(2):
        path = raw_path(tmp_path, f"train/{number}.nii.gz")
        write_file(path, gzip.compress(written(values)))
    competition = load_files(tmp_path, [], {"train.csv": table("id,target", "0,a", "1,b")})
    assert competition.train["image"].tolist() == ["train/0.nii.gz", "train/1.nii.gz"]
    (note,) = competition.notes
    assert_says(note, "train/0.nii.gz", "16 of its 155 slices", "first of 2 volumes", "4 x 4")


def test_one_slice_is_one_picture() -> None:
    assert decode(written(volume()[..., :1]), "a.nii").shape == (5, 3, 3)
    assert decode(written(volume()[..., 0]), "a.nii").shape == (5, 3, 3)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (written(volume())[:-9], ""),
        (written(volume())[:348], ""),
        (gzip.compress(written(volume()))[:-30], ""),
        (written(np.zeros((3, 3, 3), np.complex64)), "plain numbers"),
        (written(np.full((3, 3, 3), np.nan, np.float32)), "not finite"),
        (written(volume())[:42] + b"\xff\x7f\xff\x7f" + written(volume())[46:], "more than 100 million"),
    ],
)
def test_a_broken_file_is_refused_in_a_line(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage) as refused:
        decode(data, "train/a.nii")
    assert "train/a.nii" in str(refused.value)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_archive_that_is_no_volume_is_no_image() -> None:
    with pytest.raises(BadImage, match="it is an archive"):
        decode(gzip.compress(b"something else" * 50), "a.gz")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(volume())
    monkeypatch.setitem(__import__("sys").modules, "nibabel", None)
    with pytest.raises(BadImage, match=r"a\.nii .*nibabel.*podium\[medical\]"):
        decode(data, "a.nii")
