"""Measures `podium compete`: score against time, beside other ways to train, and on a larger set made from a small one.

    python docs/measure_compete.py curve ROOT SLUG              a line for each blend and member: minutes and score
    python docs/measure_compete.py enlarge FROM SLUG ROOT [N]   a competition `large` of N images (35,551) at 60 x 80 px
    python docs/measure_compete.py gpu FROM SLUG ROOT           enlarges, and competes for ten minutes

`enlarge` cuts and lights the training images of SLUG anew; the column `source` keeps those of one image in one fold.
For a machine with a GPU and without a network: `gpu` needs the hub's cache, or only packaged weights compete.
"""

import csv
import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np

from podium.competition.load import load
from podium.saved_runs.ledger import ENDED, SUBMITTED, Ledger
from podium.tasks.metrics import score_of

SIZE, IMAGES = (60, 80), 35_551
LEAST_CUT = 0.8  # of an image's sides
LIGHT = 0.2  # at most, more or less


def show_curve(root: Path, slug: str) -> None:
    """Prints when each blend was submitted and each member trained, and their scores."""
    competition, ledger = load(slug, root), Ledger(slug, root)
    print(f"minutes\t{competition.metric}\twhat")
    for line in ledger.of(SUBMITTED, ENDED):
        minutes = line["worked"] / 60
        if line["event"] == SUBMITTED:
            print(f"{minutes:.1f}\t{line['score']:.4f}\tblend of {len(line['runs'])}")
        elif (error := line["errors"].get(line["member"])) is not None:
            print(f"{minutes:.1f}\t{score_of(competition.metric, error):.4f}\t{line['member']}")


def enlarge(source: Path, slug: str, root: Path, count: int = IMAGES) -> None:
    """Writes the competition `large`, whose training images are parts of those of another one."""
    competition, folder = load(slug, source), root / "data" / "raw" / "large"
    rows, tests, rng = competition.train, competition.test, np.random.default_rng(0)
    for name in ("train_image", "test_image"):
        (folder / name).mkdir(parents=True)
    with (folder / "train.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["id", "target", "source"])
        for number in range(count):
            row = rows.iloc[number % len(rows)]
            image = cv2.imread(str(competition.folder / row["image"]))
            cv2.imwrite(str(folder / "train_image" / f"{number}.jpg"), _changed(image, rng))
            table.writerow([number, row["target"], row["id"]])
    with (folder / "sample_submission.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["id", "target"])
        for number, image_path in enumerate(tests["image"]):
            image = cv2.imread(str(competition.folder / image_path))
            cv2.imwrite(str(folder / "test_image" / f"{number}.jpg"), cv2.resize(image, SIZE))
            table.writerow([number, competition.classes[0]])
    cards = root / "data" / "competitions"
    cards.mkdir(parents=True, exist_ok=True)
    (cards / "large.toml").write_text(f'metric = "{competition.metric}"\ngroup_column = "source"\n')


def _changed(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Returns a part of an image, lighter or darker, at the size of the set."""
    height, width = image.shape[:2]
    share = rng.uniform(LEAST_CUT, 1.0)
    high, wide = max(1, int(height * share)), max(1, int(width * share))
    top, left = rng.integers(height - high + 1), rng.integers(width - wide + 1)
    part = cv2.resize(image[top : top + high, left : left + wide], SIZE, interpolation=cv2.INTER_AREA)
    return np.asarray((part * rng.uniform(1 - LIGHT, 1 + LIGHT)).clip(0, 255), np.uint8)


def compete_on_gpu(source: Path, slug: str, root: Path) -> None:
    enlarge(source, slug, root)
    command = [sys.executable, "-m", "podium", "--root", str(root), "compete", "-c", "large", "--budget", "10m"]
    subprocess.run(command, check=True)
    print(json.dumps(Ledger("large", root).of(SUBMITTED)[-1], indent=2))
    show_curve(root, "large")


def main(words: list[str]) -> None:
    match words:
        case ["curve", root, slug]:
            show_curve(Path(root), slug)
        case ["enlarge", source, slug, root, *count]:
            enlarge(Path(source), slug, Path(root), *map(int, count))
        case ["gpu", source, slug, root]:
            compete_on_gpu(Path(source), slug, Path(root))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
