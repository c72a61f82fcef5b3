"""Competitions whose images have a label in each of two columns: the colour of a bar, and its place."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

SLUG = "marks"
COLOURS = {"red": (210, 30, 30), "green": (30, 190, 40), "blue": (40, 40, 220)}
PLACES = ("0", "1", "2", "10")  # as numbers: 10 comes last
FAST = ("-c", SLUG, "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")
SIDE = 40


def write_mark(path: Path, colour: str, place: int, seed: int) -> None:
    """Draws a bar of this colour in one of four places."""
    pixels = np.full((SIDE, SIDE, 3), 120.0)
    pixels[place * 10 : place * 10 + 10] = COLOURS[colour]
    pixels += np.random.default_rng(seed).normal(0, 15, pixels.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def write_competition(root: Path) -> None:
    folder, rng, rows = root / "data" / "raw" / SLUG, np.random.default_rng(0), []
    for number in range(87):
        colour, place = str(rng.choice(list(COLOURS))), int(rng.integers(len(PLACES)))
        write_mark(folder / ("train" if number < 72 else "test") / f"{number}.png", colour, place, number)
        rows.append([f"{number}.png", PLACES[place], colour])
    header = ["image", "place", "colour"]
    tables = {
        folder / "train.csv": [["image", "colour", "place"], *([row[0], row[2], row[1]] for row in rows[:72])],
        folder / "sample_submission.csv": [header, *([row[0], "0", "red"] for row in rows[72:])],
        root / "solution.csv": [header, *rows[72:]],
    }
    for path, lines in tables.items():
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
