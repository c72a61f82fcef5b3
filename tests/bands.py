"""A competition whose images are four grey files each; only the fourth, yellow, tells the class."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from tiny import write_card

SLUG = "bands"
CHANNELS = ("red", "green", "blue", "yellow")
FAST = ("-c", SLUG, "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")


def write_bands(root: Path, count: int = 40, tests: int = 8, channels: tuple[str, ...] = CHANNELS) -> None:
    """Writes <id>_<channel>.png, and a card that names these channels."""
    folder, rng = root / "data" / "raw" / SLUG, np.random.default_rng(0)
    rows = [(f"i{number:03d}", "odd" if number % 2 else "even") for number in range(count + tests)]
    for number, (name, _) in enumerate(rows):
        role = "train" if number < count else "test"
        (folder / role).mkdir(parents=True, exist_ok=True)
        for channel in channels:
            grey = rng.integers(0, 120, (6, 6)) + (100 * (number % 2) if channel == channels[-1] else 40)
            pixels = grey.repeat(6, 0).repeat(6, 1).astype(np.uint8)
            Image.fromarray(pixels).save(folder / role / f"{name}_{channel}.png")
    tables: dict[str, list[tuple[str, ...]]] = {
        "train.csv": [("id", "target"), *rows[:count]],
        "sample_submission.csv": [("id", "even", "odd"), *((name, "0.5", "0.5") for name, _ in rows[count:])],
    }
    for name, lines in tables.items():
        with (folder / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
    write_card(root, f"channels = {list(channels)}\n", SLUG)
