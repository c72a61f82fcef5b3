"""The slices of a folder become one picture, whatever kind of file they are."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from layouts import SLUG, raw_path, table
from podium.competition.containers.grid import lay_in_grid
from podium.competition.containers.image_place import file_of
from podium.competition.load import Competition, load
from podium.images import decode
from podium.images.decode import BadImage, Pixels, read_image
from podium.images.store import open_store
from podium.images.usual_shape import usual_shape
from tiny import write_file

IDS = ("00000", "00002")


def bytes_of(pixels: Pixels, kind: str) -> bytes:
    file = io.BytesIO()
    if kind == ".npy":
        np.save(file, pixels)
    else:
        Image.fromarray(pixels).save(file, {".png": "PNG", ".jpg": "JPEG"}[kind], quality=95)
    return file.getvalue()


def write_scans(root: Path, kind: str = ".png", count: int = 20) -> Competition:
    """Writes two scans of two series; slice n is as grey as 10 n."""
    for image_id in IDS:
        for number in range(1, count + 1):
            series, value = "FLAIR" if number <= count // 2 else "T1w", 10 * number
            path = raw_path(root, "train", image_id, series, f"Image-{number}{kind}")
            write_file(path, bytes_of(np.full((6, 8), value, np.uint8), kind))
    raw_path(root, "train.csv").write_text(table("id,label", *(f"{image_id},{image_id[-1]}" for image_id in IDS)))
    return load(SLUG, root, id_column="id")


@pytest.mark.parametrize("kind", [".png", ".jpg", ".npy"])
def test_nine_evenly_spaced_slices_are_one_picture(tmp_path: Path, kind: str) -> None:
    competition = write_scans(tmp_path, kind)
    picture = read_image(competition.folder / competition.train["image"].iloc[1])
    greys = [[20, 40, 60], [80, 110, 130], [150, 170, 190]]
    assert picture.shape == (18, 24, 3)
    assert np.array_equal(picture, np.repeat(np.kron(greys, np.ones((6, 8)))[..., None], 3, axis=2))
    store = open_store(competition, 256)
    assert np.array_equal(store.reader(store.positions(competition.train["image"]))(1), picture)


@pytest.mark.annex
def test_dicom_slices_are_one_picture(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    competition = write_scans(tmp_path, count=4)
    example = Path(pydicom.data.get_testdata_file("CT_small.dcm", download=False))
    for number in (1, 2, 3, 4):
        for path in raw_path(tmp_path, "train").glob(f"*/*/Image-{number}.png"):
            path.with_suffix(".dcm").write_bytes(example.read_bytes())
            path.unlink()
    competition = load(SLUG, tmp_path, id_column="id")
    assert file_of(competition.train["image"].iloc[0]) == "train/00000/FLAIR/Image-1.dcm"
    picture = read_image(competition.folder / competition.train["image"].iloc[0])
    assert np.array_equal(picture, lay_in_grid([read_image(example)] * 4, empty=0))


def test_a_slice_that_cannot_be_read_makes_a_bad_image_that_names_it(tmp_path: Path) -> None:
    competition = write_scans(tmp_path, count=3)
    raw_path(tmp_path, "train", "00002", "T1w", "Image-2.png").write_bytes(b"")
    with pytest.raises(BadImage, match=r"train/00002 cannot be read: its slice T1w/Image-2\.png: the file is empty"):
        read_image(competition.folder / competition.train["image"].iloc[1])
    store = open_store(competition, 256)
    reasons = [store.files[position].reason for position in store.positions(competition.train["image"])]
    assert reasons == ["", "its slice T1w/Image-2.png: the file is empty"]


def test_a_grid_that_is_too_large_is_refused_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    competition = write_scans(tmp_path, count=4)
    monkeypatch.setattr(decode, "MAX_PIXELS", 4 * 6 * 8 - 1)
    with pytest.raises(BadImage, match=r"4 slices of 8 x 6 pixels.*smaller number of slices"):
        read_image(competition.folder / competition.train["image"].iloc[0])


def test_slices_of_several_sizes_are_laid_on_black(tmp_path: Path) -> None:
    competition = write_scans(tmp_path, count=2)
    raw_path(tmp_path, "train", "00000", "T1w", "Image-2.png").write_bytes(
        bytes_of(np.full((3, 3), 99, np.uint8), ".png")
    )
    picture = read_image(competition.folder / competition.train["image"].iloc[0])[..., 0]
    assert picture.shape == (6, 16)
    assert (picture[:3, 8:11] == 99).all()
    assert (picture[3:, 8:] == 0).all()
    assert (picture[:, 11:] == 0).all()


@pytest.mark.parametrize(("count", "shape"), [(20, 8 / 6), (2, 16 / 6)])
def test_the_usual_shape_is_that_of_the_grid(tmp_path: Path, count: int, shape: float) -> None:
    assert usual_shape(write_scans(tmp_path, count=count)) == pytest.approx(shape)


def test_arrays_of_large_numbers_get_one_range(tmp_path: Path) -> None:
    write_scans(tmp_path, ".npy")
    for path in raw_path(tmp_path, "train").rglob("*.npy"):
        np.save(path, np.load(path).astype(np.int16) * 100)
    competition = load(SLUG, tmp_path, id_column="id")
    assert competition.card.get("range") == [2000, 19000]
