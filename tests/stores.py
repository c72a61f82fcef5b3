"""Stores of a tiny competition: opens and compares them, and interrupts their building."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from podium.basics.disk import sha256
from podium.competition.load import load
from podium.competition.value_range import ValueRange
from podium.images import store_builder
from podium.images.decode import Header, Pixels, decode_with_header, read_image, shrink
from podium.images.store import Store, open_store
from tiny import write_competition, write_image

SIDE = 24  # pixels; most of the images are larger and are shrunk to it
LARGEST = 60  # pixels, the longest shorter side of an image
IMAGES = 12
ODD_SIZES = {"000": (60, 90), "001": (90, 60), "002": (70, 20), "003": (1, 1), "004": (24, 24), "005": (25, 24)}


def write_images_of_many_sizes(root: Path) -> None:
    """Writes a competition of ten training and two test images; one of them has an alpha channel."""
    folder = write_competition(root, per_class=3, test_images=2)
    for name, size in ODD_SIZES.items():
        write_image(folder / "train_image" / f"{name}.jpg", (90, 120, 60), int(name), size)
    image = Image.open(folder / "train_image" / "006.jpg").convert("RGBA")
    image.putalpha(100)
    image.save(folder / "train_image" / "006.jpg", "PNG")


def image_folder(root: Path) -> Path:
    return root / "data" / "raw" / "tiny"


def train_image(root: Path, name: str) -> Path:
    return image_folder(root) / "train_image" / f"{name}.jpg"


def image_names(root: Path) -> list[str]:
    """Returns the paths of all images, in the order of the store."""
    folder = image_folder(root)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jpg"))


def open_tiny(root: Path, side: int = SIDE, keep: bool = True) -> Store:
    return open_store(load("tiny", root), side, keep)


def pixels_in(store: Store) -> list[Pixels]:
    read = store.reader(np.arange(len(store.names)))
    return [read(number) for number in range(len(store.names))]


def decoded(root: Path, side: int) -> list[Pixels]:
    """Returns the pixels that a store of this side should give."""
    return [shrink(read_image(image_folder(root) / name), side) for name in image_names(root)]


def are_equal(images: list[Pixels], expected: list[Pixels]) -> bool:
    pairs = list(zip(images, expected, strict=True))
    return all(a.dtype == b.dtype == np.uint8 and np.array_equal(a, b) for a, b in pairs)


def file_hashes(store: Store) -> dict[str, str]:
    return {path.name: sha256(path) for path in store.path.iterdir()}


def store_folders(root: Path, pattern: str = "*pixels-*") -> list[str]:
    """Returns the names of the stores, finished and unfinished."""
    return sorted(path.name for path in (root / "data" / "prepared" / "tiny").glob(pattern))


def unfinished_store(root: Path) -> Path:
    return root / "data" / "prepared" / "tiny" / store_folders(root, ".pixels-*")[0]


def interrupt_build(root: Path, after: int, side: int = SIDE) -> None:
    """Interrupts the building of a store when this many images are on the disk."""
    last_name = image_names(root)[after]

    def decode_until_last(data: bytes, name: str, value_range: ValueRange | None) -> tuple[Pixels, Header]:
        if name == last_name:
            raise KeyboardInterrupt
        return decode_with_header(data, name, value_range)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_builder, "decode_with_header", decode_until_last)
        patch.setattr(store_builder, "IMAGES_PER_TASK", 1)
        patch.setattr(store_builder, "COMMIT_EVERY", -1)
        with pytest.raises(KeyboardInterrupt):
            open_tiny(root, side)


def shorten(name: str, by: int) -> Callable[[Path], None]:
    """Returns a function that cuts the end off this file of a store."""

    def damage(store_path: Path) -> None:
        os.truncate(store_path / name, max(0, (store_path / name).stat().st_size - by))

    return damage


def append(name: str, data: bytes) -> Callable[[Path], None]:
    """Returns a function that appends to this file of a store."""

    def damage(store_path: Path) -> None:
        with (store_path / name).open("ab") as file:
            file.write(data)

    return damage


def remove(name: str) -> Callable[[Path], None]:
    """Returns a function that deletes this file of a store."""
    return lambda store_path: (store_path / name).unlink()
