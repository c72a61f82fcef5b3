"""Writes competitions of a few files in any layout, for tests of what Podium reads from them."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from podium.basics.errors import PodiumError
from podium.competition.load import Competition, load

SLUG = "it"
IMAGE = b"an image; these tests never decode it"
LABELS = {"1": "cat", "2": "dog", "3": "cat"}  # of the training images; the test images are 4 and 5


def raw_path(root: Path, *names: str) -> Path:
    """The competition's folder, or a file in it."""
    return root.joinpath("data", "raw", SLUG, *names)


def card_path(root: Path) -> Path:
    return root / "data" / "competitions" / f"{SLUG}.toml"


def write_files(folder: Path, images: Iterable[str], tables: dict[str, str]) -> None:
    contents = {**dict.fromkeys(images, IMAGE), **{name: text.encode() for name, text in tables.items()}}
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def load_files(
    root: Path, images: Iterable[str], tables: dict[str, str], card: str = "", folder: str = "", **settings: object
) -> Competition:
    """Writes these files in a folder of the competition, and the card; loads the competition."""
    write_files(raw_path(root, folder), images, tables)
    if card:
        card_path(root).parent.mkdir(parents=True, exist_ok=True)
        card_path(root).write_text(card)
    return load(SLUG, root, **settings)


def load_error(root: Path, images: Iterable[str], tables: dict[str, str], card: str = "") -> str:
    """Writes these files, and returns the error that loading them raises: always one line."""
    with pytest.raises(PodiumError) as refused:
        load_files(root, images, tables, card)
    message = str(refused.value)
    assert "\n" not in message
    return message


def table(header: str, *rows: str) -> str:
    return "\n".join([header, *rows, ""])


def train_labels(competition: Competition) -> dict[str, str]:
    """The label of each training image."""
    return dict(zip(competition.train["image"], competition.train["target"], strict=True))


def images_by_id(competition: Competition) -> dict[str, str]:
    """The image of each test id, in the order of the submission."""
    return dict(zip(competition.test["id"], competition.test["image"], strict=True))


TRAIN = table("id,target", "1,cat", "2,dog", "3,cat")
SAMPLE = table("id,target", "5,cat", "4,cat")  # not in the order of the file names
IMAGES = ["train/1.jpg", "train/2.jpg", "train/3.jpg", "test/4.jpg", "test/5.jpg"]
TABLES = {"train.csv": TRAIN, "sample_submission.csv": SAMPLE}
