"""Measures whether the expected score includes a decision of the project's own, and whether the CSV is rebuilt.

    python -m benchmarks.decisions ROOT SLUG WORK [--most 3000] [--size 96]

A third of the (most) training images of SLUG become the test images of the competition `decided` in WORK. Both tables
get made-up columns: `scene` (three images of one class, the group of the folds), `camera` (any three images) and
`shelf` (a fifth of the classes, wrong for every tenth image). A frozen head is submitted without a decision and with
three, of SOURCE. Prints a row for each: the table of "Decisions of your own".
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.harness import call, head, row
from benchmarks.sets import images_of, is_right, write_set
from podium.competition.load import load, raw_folder

MODEL = "tf_efficientnet_lite0"
SHELVES = 5
SOURCE = '''
import numpy as np
from podium import extend


def share(probabilities, groups):
    """Returns the mean of the logarithms in each group, as probabilities."""
    return np.exp(np.log(probabilities.clip(lower=1e-9)).groupby(groups).transform("mean"))


@extend.decision
def one_answer_a_scene(ids, probabilities, table):
    return share(probabilities, table["scene"])


@extend.decision
def as_the_shelf_says(ids, probabilities, table):
    shelves = np.arange(probabilities.shape[1]) * 5 // probabilities.shape[1]
    fits = table["shelf"].astype(int).to_numpy()[:, None] == shelves
    return probabilities * np.where(fits, 0.92, 0.02)


@extend.decision
def one_answer_a_camera(ids, probabilities, table):
    return share(probabilities, table["camera"])
'''
DECISIONS = ("one_answer_a_scene", "as_the_shelf_says", "one_answer_a_camera")


def decisions(root: Path, slug: str, work: Path, most: int = 3000, size: int = 96) -> None:
    source, rng = load(slug, root), np.random.default_rng(0)
    rows = images_of(source).sample(frac=1, random_state=0).head(most).assign(id=lambda rows: range(len(rows)))
    is_test = rng.random(len(rows)) < 1 / 3
    project = write_set(work, "decided", rows[~is_test], rows[is_test], 'metric = "accuracy"\ngroup_column = "scene"\n')
    for name, part in (("train", rows[~is_test]), ("test", rows[is_test])):
        columns = ["id", "label"] if name == "train" else ["id"]
        with_columns(part, list(source.classes), rng)[[*columns, "scene", "camera", "shelf"]].to_csv(
            raw_folder("decided", work) / f"{name}.csv", index=False
        )
    (work / "mine.py").write_text(SOURCE)
    (work / "podium.toml").write_text('extend = "mine.py"\n')
    project.podium("folds")
    project.train("head", "--model", MODEL, "--linear", "--image-size", size, folds="0,1,2,3,4")
    head("decision", "held out", "gain, 95 % interval", "expected on the test images", "there", "rebuilt")
    for decision in ("none", *DECISIONS):
        csv = project.submit(decision, "--decision", decision)
        lineage, content = csv.with_suffix(".json"), csv.read_bytes()
        recorded = json.loads(lineage.read_text())
        csv.unlink()
        project.podium("submit", "--from", lineage)
        estimate, gain = recorded["estimate"], recorded.get("decision", {}).get("between")
        row(
            decision,
            f"{estimate['score']:.4f}",
            "{:+.4f} to {:+.4f}".format(*gain) if gain else "",
            "{:.4f} to {:.4f}".format(*estimate["between"]),
            f"{is_right(project, csv).mean():.4f}",
            "byte for byte" if csv.read_bytes() == content else "other",
        )


def with_columns(rows: pd.DataFrame, classes: list[str], rng: np.random.Generator) -> pd.DataFrame:
    """Adds the made-up columns."""
    number = rows.groupby("label").cumcount() // 3
    shelf = rows["label"].map({name: place * SHELVES // len(classes) for place, name in enumerate(classes)})
    is_wrong = rng.random(len(rows)) < 0.1
    return rows.assign(
        scene=pd.factorize(rows["label"] + " " + number.astype(str))[0],
        camera=rng.permutation(len(rows)) // 3,
        shelf=np.where(is_wrong, rng.integers(SHELVES, size=len(rows)), shelf),
    )


if __name__ == "__main__":
    call(decisions)
