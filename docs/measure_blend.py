"""Makes a competition whose test labels are known, to hold what a submission is expected to score against what it does.

    python docs/measure_blend.py ROOT SLUG HELD

Writes the competition `held` below HELD: its test images are those of fold 0 of SLUG in ROOT, whose copies are in that
fold too, and its training images are the rest. HELD/solution.csv has the answers, for `podium score`.
"""

import os
import shutil
import sys
from pathlib import Path

from podium.competition.csv_files import csv_text
from podium.competition.load import load
from podium.folds.folds_csv import read_folds


def main(root: Path, slug: str, held: Path) -> None:
    competition = load(slug, root)
    train, raw = competition.train, held / "data" / "raw" / "held"
    asked = read_folds(competition, root) == 0
    for role, rows in (("train_image", train[~asked]), ("test_image", train[asked])):
        for image in rows["image"]:
            target = raw / role / Path(image).name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(competition.folder / image, target)
    tables = {
        raw / "train.csv": ("target", train[~asked], train["target"][~asked]),
        raw / "sample_submission.csv": ("predict", train[asked], [competition.classes[0]] * int(asked.sum())),
        held / "solution.csv": ("predict", train[asked], train["target"][asked]),
    }
    for path, (name, rows, answers) in tables.items():
        path.write_text(csv_text([("id", name), *zip(rows["id"], answers, strict=True)]))
    card = root / "data" / "competitions" / f"{slug}.toml"
    if card.exists():
        (held / "data" / "competitions").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(card, held / "data" / "competitions" / "held.toml")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
