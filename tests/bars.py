"""Competitions whose images have one number or two: the sides of a bright bar."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

SLUG = "bars"
FAST = ("-c", SLUG, "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")
COLUMNS = {"one": ["height"], "two": ["height", "width"]}
SIDE = 40


def write_bar(path: Path, height: int, width: int, seed: int) -> None:
    """Draws a bright bar of this height and width in the corner."""
    pixels = np.full((SIDE, SIDE, 3), 60.0)
    pixels[:height, :width] = 220
    pixels += np.random.default_rng(seed).normal(0, 10, pixels.shape)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


def write_competition(root: Path, columns: list[str], count: int = 60, tests: int = 15) -> None:
    """Writes heights in thousands, with fractions, and widths; of two columns, some training cells are blank."""
    folder, rng, rows = root / "data" / "raw" / SLUG, np.random.default_rng(0), []
    for number in range(count + tests):
        height, width = (int(side) for side in rng.integers(4, SIDE, 2))
        write_bar(folder / ("train" if number < count else "test") / f"{number}.png", height, width, number)
        cells = {"height": f"{1000 * height + number}.5", "width": f"{width / 10}"}
        if len(columns) == 2 and number < count and number % 7 == 0:
            cells["width"] = ""
        rows.append([f"{number}.png", *(cells[name] for name in columns)])
    header = ["image", *columns]
    tables = {
        folder / "train.csv": [header, *rows[:count]],
        folder / "sample_submission.csv": [header, *([row[0], *["0"] * len(columns)] for row in rows[count:])],
        root / "solution.csv": [header, *rows[count:]],
    }
    for path, lines in tables.items():
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
