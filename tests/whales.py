"""A competition in the form of Happywhale: the test images show individuals, too, that no training image shows."""

from pathlib import Path

import numpy as np
from PIL import Image

from pictures import write_table
from tiny import write_card

SLUG = "whales"
UNKNOWN = "new_individual"
PLACES = 5
LEVELS = (20, 92, 164, 236)  # of red, green and blue: an individual is a colour
NOISE = 10  # of the light, in an image


def write_whales(root: Path, images_each: int = 8, singles: int = 6, strangers: int = 16, seed: int = 0) -> Path:
    """Writes training images of known individuals, some with one image only, and test images of these and of strangers.

    Returns the path of the solution. The sample submission does not name the unknown class, as Happywhale's does not.
    """
    rng = np.random.default_rng(seed)
    colours = rng.permutation([(red, green, blue) for red in LEVELS for green in LEVELS for blue in LEVELS])
    folder = root / "data" / "raw" / SLUG
    train: list[tuple[str, ...]] = [("image", "individual_id")]
    solution: list[tuple[str, ...]] = [("image", "predictions")]

    def write(part: str, number: int) -> str:
        """Writes an image of an individual, and returns its name."""
        path = folder / part / f"{number:02d}-{rng.integers(1 << 30):08x}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        tint = colours[number] + rng.normal(0, NOISE, 3)
        pixels = tint + rng.normal(0, 20, (24, 24, 3))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
        return path.name

    known = len(colours) - strangers
    for number in range(known):
        for _ in range(1 if number < singles else images_each):
            train.append((write("train_images", number), f"whale{number:02d}"))
    for number in range(singles, len(colours)):
        for _ in range(4):
            solution.append((write("test_images", number), f"whale{number:02d}" if number < known else UNKNOWN))
    guess = " ".join(f"whale{number:02d}" for number in range(PLACES))
    write_table(folder / "train.csv", train)
    write_table(folder / "sample_submission.csv", [solution[0], *((row[0], guess) for row in solution[1:])])
    write_table(root / "solution.csv", solution)
    return root / "solution.csv"


def write_whale_card(root: Path, text: str) -> None:
    write_card(root, text, SLUG)
