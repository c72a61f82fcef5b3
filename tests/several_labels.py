"""Competitions whose images have several labels: each image shows stripes of some of four colours, or of none."""

import csv
from itertools import combinations
from pathlib import Path

import numpy as np
from PIL import Image

SLUG = "stripes"
COLOURS = {"red": (210, 30, 30), "green": (30, 190, 40), "blue": (40, 40, 220), "yellow": (220, 210, 30)}
FAST = ("-c", SLUG, "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")
SIDE = 40


def label_sets(count: int) -> list[tuple[str, ...]]:
    """Returns so many sets of at most three colours, all of them in turn; the first is empty."""
    sets = [labels for size in range(4) for labels in combinations(COLOURS, size)]
    return [sets[number % len(sets)] for number in range(count)]


def write_stripes(path: Path, labels: tuple[str, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    pixels = np.full((SIDE, SIDE, 3), 120.0)
    height = SIDE // 4
    for place, label in zip(rng.permutation(4), labels, strict=False):
        pixels[place * height : (place + 1) * height] = COLOURS[label]
    pixels += rng.normal(0, 20, pixels.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def write_competition(root: Path, as_tags: bool, count: int = 60, tests: int = 15) -> Path:
    """Writes tags in one cell (without images that have no label), or a column of 0 and 1 for each colour."""
    folder = root / "data" / "raw" / SLUG
    sets = label_sets(count + tests)
    if as_tags:
        sets = [labels or ("red",) for labels in sets]
    rows = []
    for number, labels in enumerate(sets):
        role = "train" if number < count else "test"
        write_stripes(folder / role / f"{number}.png", labels, number)
        marks = [" ".join(labels)] if as_tags else [str(int(name in labels)) for name in COLOURS]
        rows.append([f"{number}.png", *marks])
    header = ["image", *(["labels"] if as_tags else COLOURS)]
    placeholders = ["red"] if as_tags else ["0.5"] * len(COLOURS)
    tables = {
        "train.csv": [header, *rows[:count]],
        "sample_submission.csv": [header, *([row[0], *placeholders] for row in rows[count:])],
    }
    for name, lines in tables.items():
        with (folder / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
    with (root / "solution.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows[count:]])
    return folder
