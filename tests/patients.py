"""A competition whose sample submission asks for a row for each patient, who has two or three images."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

SLUG = "patients"
FAST = ("-c", SLUG, "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")


def write_patients(root: Path, count: int = 36, tests: int = 9) -> None:
    """Writes two or three images of each patient, ill ones reddish, and a sample with a row for each patient."""
    folder, rng, rows = root / "data" / "raw" / SLUG, np.random.default_rng(0), []
    for patient in range(count + tests):
        for number in range(2 + patient % 2):
            role, name = "train" if patient < count else "test", f"i{patient}_{number}"
            pixels = rng.normal(110, 25, (40, 40, 3)) + np.array([50, 0, 0]) * (patient % 3 == 0)
            (folder / role).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / role / f"{name}.png")
            rows.append([name, f"p{patient}", "ill" if patient % 3 == 0 else "well"])
    train = [row for row in rows if int(row[1][1:]) < count]
    test = [row[:2] for row in rows if int(row[1][1:]) >= count]
    ids = [f"p{patient}" for patient in reversed(range(count, count + tests))]
    tables = {
        "train.csv": [["image_id", "patient_id", "label"], *train],
        "test.csv": [["image_id", "patient_id"], *test],
        "sample_submission.csv": [["patient_id", "ill", "well"], *([name, "0.5", "0.5"] for name in ids)],
    }
    for name, lines in tables.items():
        with (folder / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
