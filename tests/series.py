"""A competition of grey slices, of which a patient has eleven, in files that are numbered."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

SLUG = "series"
FAST = ("-c", SLUG, "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")
SLICES = 11  # so that the names sort in another order than the numbers


def write_series(
    root: Path, count: int = 8, tests: int = 4, in_colour: bool = False, with_answers: bool = True
) -> None:
    """Writes slices p<patient>_<number>.png, those of the ill brighter; the column `z` counts them backwards.

    Without `with_answers`, a row of the submission is for one slice, and `patient_id` is a group.
    """
    folder, rng, rows = root / "data" / "raw" / SLUG, np.random.default_rng(0), []
    for patient in range(count + tests):
        for number in range(SLICES):
            role, name = "train" if patient < count else "test", f"p{patient}_{number}"
            spots = rng.integers(0, 150, (6, 6, 3 if in_colour else 1)) + 80 * (patient % 2)
            pixels = np.broadcast_to(spots.repeat(6, 0).repeat(6, 1), (36, 36, 3)).astype(np.uint8)
            (folder / role).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / role / f"{name}.png")
            rows.append([name, f"p{patient}", str(SLICES - number), "ill" if patient % 2 else "well"])
    train = [row for row in rows if int(row[1][1:]) < count]
    test = [row[:3] for row in rows if int(row[1][1:]) >= count]
    ids = dict.fromkeys(row[1] if with_answers else row[0] for row in test)
    tables = {
        "train.csv": [["image_id", "patient_id", "z", "label"], *train],
        "test.csv": [["image_id", "patient_id", "z"], *test],
        "sample_submission.csv": [
            ["patient_id" if with_answers else "image_id", "ill", "well"],
            *([name, "0.5", "0.5"] for name in ids),
        ],
    }
    for name, lines in tables.items():
        with (folder / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
