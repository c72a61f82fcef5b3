"""Competitions of a few files in any layout, for tests of what Podium makes of them."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from podium import PodiumError
from podium.competition.load import Competition, load

IMAGE = b"an image; nobody here looks into it"
LABELS = {"1": "cat", "2": "dog", "3": "cat"}  # of the training images; those to answer are 4 and 5


def load_it(root: Path, images: Iterable[str], tables: dict[str, str], card: str = "", folder: str = "") -> Competition:
    """A competition with these files, read."""
    raw = root / "data" / "raw" / "it"
    for name, content in {**dict.fromkeys(images, IMAGE), **{n: text.encode() for n, text in tables.items()}}.items():
        path = raw / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    if card:
        (root / "data" / "competitions").mkdir(parents=True, exist_ok=True)
        (root / "data" / "competitions" / "it.toml").write_text(card)
    return load("it", root)


def refusal(root: Path, images: Iterable[str], tables: dict[str, str], card: str = "") -> str:
    with pytest.raises(PodiumError) as refused:
        load_it(root, images, tables, card)
    said = str(refused.value)
    assert "\n" not in said
    return said


def rows(header: str, *lines: str) -> str:
    return "\n".join([header, *lines, ""])


def pairs(competition: Competition) -> tuple[dict[str, str], dict[str, str]]:
    train, test = competition.train, competition.test
    return dict(zip(train["image"], train["target"], strict=True)), dict(zip(test["id"], test["image"], strict=True))


TRAIN = rows("id,target", "1,cat", "2,dog", "3,cat")
SAMPLE = rows("id,target", "5,cat", "4,cat")  # the answers in an order of their own
IMAGES = ["train/1.jpg", "train/2.jpg", "train/3.jpg", "test/4.jpg", "test/5.jpg"]
TABLES = {"train.csv": TRAIN, "sample_submission.csv": SAMPLE}
