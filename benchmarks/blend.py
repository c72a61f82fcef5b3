"""Makes a competition with known test labels, to compare the expected score of a submission with the real one.

    python docs/measure_blend.py ROOT SLUG HELD

Writes the competition `held` below HELD. Its test images are those of fold 0 of SLUG in ROOT; their duplicates are in
that fold too. Its training images are all others. HELD/solution.csv holds the labels, for `podium score`.
"""

import os
import shutil
import sys
from pathlib import Path

from podium.competition.find.csv_files import csv_text
from podium.competition.load import load
from podium.folds.folds_csv import read_folds


def main(root: Path, slug: str, held: Path) -> None:
    competition = load(slug, root)
    train, raw = competition.train, held / "data" / "raw" / "held"
    is_test = read_folds(competition).validates(0)
    for role, rows in (("train_image", train[~is_test]), ("test_image", train[is_test])):
        for image in rows["image"]:
            target = raw / role / Path(image).name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(competition.folder / image, target)
    tables = {
        raw / "train.csv": ("target", train[~is_test], train["target"][~is_test]),
        raw / "sample_submission.csv": ("predict", train[is_test], [competition.classes[0]] * int(is_test.sum())),
        held / "solution.csv": ("predict", train[is_test], train["target"][is_test]),
    }
    for path, (column, rows, labels) in tables.items():
        path.write_text(csv_text([("id", column), *zip(rows["id"], labels, strict=True)]))
    card = root / "data" / "competitions" / f"{slug}.toml"
    if card.exists():
        (held / "data" / "competitions").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(card, held / "data" / "competitions" / "held.toml")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
