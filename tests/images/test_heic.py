"""HEIC images: read where the package pillow-heif is installed, by a stand-in for it, and named where it is not."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pictures import photograph, saved, write_table
from podium.competition.load import load
from podium.images.decode import BadImage, decode, read_image
from podium.images.store import open_store
from tiny import write_competition

HEIC = b"\0\0\0\x18ftypheic"
PACKAGE = f"""
from PIL import Image, PngImagePlugin

class HeifFile(PngImagePlugin.PngImageFile):
    format = "HEIF"
    def _open(self):
        start = self.fp.read({len(HEIC)})
        if start != {HEIC!r}:
            raise SyntaxError("no HEIC")
        super()._open()

def register_heif_opener():
    Image.register_open("HEIF", HeifFile, lambda start: start[4:8] == b"ftyp")
"""


@pytest.fixture
def with_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A stand-in for pillow-heif, whose images are PNG files behind the first bytes of HEIC."""
    folder = tmp_path / "packages"
    folder.mkdir()
    (folder / "pillow_heif.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "pillow_heif", raising=False)
    monkeypatch.setattr(Image, "OPEN", dict(Image.OPEN))
    monkeypatch.setattr(Image, "ID", list(Image.ID))
    yield
    sys.modules.pop("pillow_heif", None)


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.competition.find.image_names.find_spec", lambda name: None)


@pytest.mark.usefixtures("without_package")
@pytest.mark.parametrize("name", ["1.heic", "1.jpg"])
def test_without_the_package_the_message_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(HEIC + saved(photograph(0), "PNG"))
    with pytest.raises(BadImage, match=rf"{name} cannot be read: it is a HEIC image; .*pillow-heif.*podium\[formats\]"):
        read_image(tmp_path / name)


@pytest.mark.usefixtures("with_package")
def test_with_the_package_they_are_read_under_any_name(tmp_path: Path) -> None:
    for name in ("1.heic", "1.jpg"):
        (tmp_path / name).write_bytes(HEIC + saved(photograph(0), "PNG"))
        assert np.array_equal(read_image(tmp_path / name), np.asarray(photograph(0)))
    with pytest.raises(BadImage, match="unusual HEIC, or its header is damaged"):
        decode(HEIC + b"damaged", "1.heic")


@pytest.mark.usefixtures("with_package")
def test_a_competition_of_them_is_stored_like_one_of_other_images(tmp_path: Path) -> None:
    folder = write_competition(tmp_path)
    expected = [read_image(path) for path in sorted(folder.glob("*/*.jpg"))]
    for path in folder.glob("*/*.jpg"):
        path.with_suffix(".HEIC").write_bytes(HEIC + saved(Image.open(io.BytesIO(path.read_bytes())), "PNG"))
        path.unlink()
    store = open_store(load("tiny", tmp_path), 128)
    assert {record.format for record in store.files} == {"HEIF"}
    read = store.reader(np.arange(len(store.names)))
    assert all(np.array_equal(read(number), pixels) for number, pixels in enumerate(expected))


def test_what_could_not_be_read_is_read_once_the_package_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "data/raw/tiny/train").mkdir(parents=True)
    for number in range(4):
        data = saved(photograph(number), "PNG")
        (tmp_path / f"data/raw/tiny/train/{number}.jpg").write_bytes(HEIC + data if number else data)
    rows: list[tuple[str, ...]] = [("id", "label"), *((str(number), "ab"[number % 2]) for number in range(4))]
    write_table(tmp_path / "data/raw/tiny/train.csv", rows)
    with monkeypatch.context() as patch:
        patch.setattr("podium.competition.find.image_names.find_spec", lambda name: None)
        store = open_store(load("tiny", tmp_path), 128)
        assert store.bad(np.arange(4)).tolist() == [False, True, True, True]
    request.getfixturevalue("with_package")
    assert not open_store(load("tiny", tmp_path), 128).bad(np.arange(4)).any()
