"""A competition in the form of Jaguar Re-ID: test rows are pairs of images, and some individuals are new."""

from pathlib import Path

import numpy as np
from PIL import Image

from pictures import write_table
from tiny import write_card

SLUG = "jaguars"
LEVELS = (20, 92, 164, 236)  # of red, green and blue: an individual is a colour
NOISE = 10  # of the light, in an image
COLUMNS = ("query_image", "gallery_image")


def write_jaguars(root: Path, individuals: int = 24, images_each: int = 4, strangers: int = 6) -> Path:
    """Writes training images of individuals, and test images of strangers and of as many known ones.

    Returns the path of the solution: 1 for pairs of one individual.
    """
    rng = np.random.default_rng(0)
    colours = rng.permutation([(red, green, blue) for red in LEVELS for green in LEVELS for blue in LEVELS])
    folder = root / "data" / "raw" / SLUG

    def write(part: str, number: int, individual: int) -> str:
        path = folder / part / f"{part}_{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = colours[individual] + rng.normal(0, NOISE, 3) + rng.normal(0, 20, (24, 24, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
        return path.name

    known = [number for number in range(individuals) for _ in range(images_each)]
    asked = [number for number in range(individuals - strangers, individuals + strangers) for _ in range(2)]
    train = [(write("train", row, number), f"jaguar{number:02d}") for row, number in enumerate(known)]
    test = [(write("test", row, number), number) for row, number in enumerate(asked)]
    pairs = [(first, second) for first in test for second in test if first != second]
    rows = [(f"{row}", first[0], second[0]) for row, (first, second) in enumerate(pairs)]
    truth = [(f"{row}", f"{int(first[1] == second[1])}") for row, (first, second) in enumerate(pairs)]
    write_table(folder / "train.csv", [("filename", "ground_truth"), *train])
    write_table(folder / "test.csv", [("row_id", *COLUMNS), *rows[::-1]])
    write_table(folder / "sample_submission.csv", [("row_id", "similarity"), *((row, "0.5") for row, *_ in rows)])
    write_table(root / "solution.csv", [("row_id", "similarity"), *truth])
    return root / "solution.csv"


def ask_for_clusters(root: Path) -> None:
    """Replaces the pairs by a row for each test image, whose individual is to be named."""
    folder = root / "data" / "raw" / SLUG
    (folder / "test.csv").unlink()
    names = sorted(path.name for path in (folder / "test").iterdir())
    write_table(folder / "sample_submission.csv", [("filename", "ground_truth"), *((name, "one") for name in names)])


def individual_of_test(images: int = 2, individuals: int = 24, strangers: int = 6) -> list[str]:
    """Returns the name of the individual of each test image; strangers have names of their own."""
    asked = range(individuals - strangers, individuals + strangers)
    return [f"jaguar{number:02d}" for number in asked for _ in range(images)]


def write_jaguar_card(root: Path, text: str) -> None:
    write_card(root, text, SLUG)
