"""A competition whose objects are small, on large backgrounds, with a table of their boxes: plain colours.

The backgrounds have patches of the same colours, so that only the boxes tell which one counts.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from tiny import COLOURS, podium_at

SLUG = "objects"
SIZE = 96  # of the images; an object has between 16 and 24 pixels
PATCH = 12
TRAIN, TEST = 24, 6
LABELS = ("red", "green", "blue")
BOXES = "boxes.csv"  # in the project's folder


class Planted(NamedTuple):
    id: str
    image: str
    label: str
    boxes: list[tuple[int, int, int, int]]  # x, y, width, height


def plant(root: Path, write_table: bool = True, objects: Callable[[int], int] = lambda number: 1) -> list[Planted]:
    """Writes a project of two folds; returns where the objects are. `objects` says how many an image has."""
    rng = np.random.default_rng(0)
    folder = root / "data" / "raw" / SLUG
    planted = []
    for number in range(TRAIN + TEST):
        role = "train" if number < TRAIN else "test"
        label = LABELS[number % 3]
        image = f"{role}_image/{number:03d}.png"
        boxes = _write_image(folder / image, rng, label, objects(number))
        planted.append(Planted(f"{number:03d}", image, label, boxes))
    tables: dict[Path, list[tuple[object, ...]]] = {
        folder / "train.csv": [("id", "target"), *((one.id, one.label) for one in planted[:TRAIN])],
        folder / "test.csv": [("id",), *((one.id,) for one in planted[TRAIN:])],
        folder / "sample_submission.csv": [("id", "predict"), *((one.id, "red") for one in planted[TRAIN:])],
    }
    if write_table:
        rows = [(one.id, *box) for one in planted for box in one.boxes]
        tables[root / BOXES] = [("id", "x", "y", "width", "height"), *rows]
    for path, lines in tables.items():
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
    podium_at(root, "folds", "-c", SLUG, "--k", "2")
    return planted


def _write_image(path: Path, rng: np.random.Generator, label: str, count: int) -> list[tuple[int, int, int, int]]:
    """Writes patches with this many objects on them, each in a third of the image of its own."""
    patches = rng.choice([COLOURS[name] for name in LABELS], (SIZE // PATCH, SIZE // PATCH)).astype(np.uint8)
    pixels = patches.repeat(PATCH, 0).repeat(PATCH, 1)
    boxes = []
    for number in range(count):
        width, height = rng.integers(16, 25, 2).tolist()
        x = int(rng.integers(SIZE // 3 - width)) + number * SIZE // 3
        y = int(rng.integers(SIZE - height))
        pixels[y : y + height, x : x + width] = COLOURS[label]
        boxes.append((x, y, width, height))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return boxes
