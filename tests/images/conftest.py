"""Fixtures of the tests of images: a competition for stores, one with duplicates, and what is decoded or compared."""

import shutil
from pathlib import Path

import pytest
from PIL import ImageOps

from pictures import photograph, write_image_competition
from podium.competition.value_range import ValueRange
from podium.images import store_builder
from podium.images.decode import Header, Pixels, decode_with_header
from stores import file_hashes, open_tiny, write_images_of_many_sizes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose competition `tiny` has images of many sizes (stores.py)."""
    write_images_of_many_sizes(tmp_path)
    return tmp_path


@pytest.fixture
def decoded_names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the images that a store has decoded since the fixture was set up."""
    names: list[str] = []

    def decode_and_note(data: bytes, name: str, value_range: ValueRange | None) -> tuple[Pixels, Header]:
        names.append(name)
        return decode_with_header(data, name, value_range)

    monkeypatch.setattr(store_builder, "decode_with_header", decode_and_note)
    return names


@pytest.fixture
def expected_hashes(root: Path) -> dict[str, str]:
    """The hashes of the files of a store that was built without an interruption; that store is deleted again."""
    store = open_tiny(root)
    hashes = file_hashes(store)
    shutil.rmtree(store.path)
    return hashes


@pytest.fixture
def duplicates_folder(tmp_path: Path) -> Path:
    """The folder of a competition with three groups of duplicates: same file, mirrored, and in training and test."""
    train = {str(seed): ("a" if seed % 2 else "b", photograph(seed)) for seed in range(10)}
    train["copy"] = ("b", photograph(0))  # of 0, with its label
    train["other"] = ("b", ImageOps.mirror(photograph(1)).resize((120, 90)))  # of 1, with another label
    return write_image_competition(
        tmp_path, train, {"x": photograph(100), "leak": photograph(2).resize((40, 30)), "y": photograph(101)}
    )
