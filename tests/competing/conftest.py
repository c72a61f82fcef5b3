"""A small competition, and a portfolio of the smallest models."""

from pathlib import Path

import pytest

from podium.competing.next_step import KIND_CHANCE
from podium.competing.portfolio import TUNED, BackboneRow
from templates import copied
from tiny import podium_at, write_competition

SMALL = {"model": "test_resnet", "weights": "none", "image_size": 32, "batch_size": 8, "epochs": 2}


def mixed_with_folds(root: Path) -> None:
    """Makes a project of colours, some of which have another one's label: no model is right about all images."""
    table = write_competition(root, per_class=12) / "train.csv"
    lines = table.read_text().splitlines()
    others = {"red": "green", "green": "blue", "blue": "red"}
    for number in range(1, 37, 4):
        image, label = lines[number].split(",")
        lines[number] = f"{image},{others[label]}"
    table.write_text("\n".join(lines) + "\n")
    podium_at(root, "folds", "-c", "tiny", "--k", "2")


mixed = copied(mixed_with_folds)


@pytest.fixture
def small_portfolio(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (BackboneRow("tf_efficientnet_lite0", "efficientnet_lite", 25.2, (32, 48)),)
    monkeypatch.setattr("podium.competing.understand.BACKBONES", rows)
    monkeypatch.setattr("podium.competing.portfolio.AUTO", {"cpu": SMALL})
    monkeypatch.setitem(KIND_CHANCE, TUNED, 0.0)  # it takes hundreds of steps
    monkeypatch.setattr("podium.competing.workshop.Workshop._rate", lambda *_: 1_000.0)  # not measured
    monkeypatch.setattr("podium.competing.workshop.Workshop._correction", lambda *_: 1.0)
