"""Measures what pretraining without labels brings: DINO against a start from nothing, for the same time of training.

    python docs/measure_dino.py ROOT [-c SLUG] [--labels 5 20 100 0]

ROOT holds a competition with folds. DINO sees its training and test images once. Then, for each number of labelled
images a class (0: all), three models learn from the same labelled images: one from DINO's weights; a linear head on
DINO's frozen features; and one from nothing, which gets the time of DINO in addition. Prints a table of the accuracy on
images of fold 0: all of them for all labels, else a sample. Time is that of training, without validation, in one
process; run it on a machine that does nothing else. ROOT/measured-dino holds everything; the same command goes on.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

from podium.saved_runs.run_folder import Run

MODEL = ("--model", "resnet10t", "--image-size", "64")
PRETRAINING = ("--epochs", "4", "--batch-size", "64", "--local-crops", "2", "--optimizer", "muon", "--lr", "8e-3")
TRAINING = (
    *("--level", "light", "--mix", "0.25", "--plain", "0.3"),
    *("--optimizer", "muon", "--weight-decay", "1.5", "--layer-decay", "1", "--warmup", "2"),
)
LR = 6e-3  # for batches of 128
EPOCHS = {5: 60, 20: 60, 100: 40, 0: 16}  # from DINO's weights
BATCH = {5: 16, 20: 32, 100: 64, 0: 128}  # so that an epoch has some ten steps
HELD_OUT = 600  # images that tell the accuracy with few labels: each epoch predicts them
NAME = "dino"


def main(root: Path, slug: str, labels: list[int]) -> None:
    folder = root / "measured-dino"
    for count in {*labels, 0}:
        prepare(root, slug, count, project_of(folder, count))
    podium(project_of(folder, 0), "pretrain", slug, *MODEL, *PRETRAINING, "--name", NAME)
    pretraining = project_of(folder, 0) / "runs" / slug / NAME
    lines = (pretraining / "metrics.jsonl").read_text().splitlines()
    seconds = sum(json.loads(line)["seconds"] for line in lines)
    print(f"DINO: {seconds / 60:.1f} minutes\n")
    print("| labels a class | images | from DINO | its training | linear head | from nothing | its training |")
    print("| --- " * 7 + "|", flush=True)
    for count in labels:
        print(measure(project_of(folder, count), slug, count, pretraining, seconds), flush=True)


def project_of(folder: Path, count: int) -> Path:
    return folder / f"{count or 'all'}"


def prepare(root: Path, slug: str, count: int, project: Path) -> None:
    """Makes a project with the same images, whose train.csv has only `count` training images of each class."""
    target = project / "data" / "prepared" / slug / "folds.csv"
    if target.exists():
        return
    raw, own_raw = root / "data" / "raw" / slug, project / "data" / "raw" / slug
    for path in (target.parent, own_raw):
        path.mkdir(parents=True, exist_ok=True)
    folds = pd.read_csv(root / "data" / "prepared" / slug / "folds.csv", dtype=str).sample(frac=1, random_state=0)
    training, held_out = folds[folds["fold"] != "0"], folds[folds["fold"] == "0"]
    if count:
        training, held_out = training.groupby("target").head(count), held_out.head(HELD_OUT)
    chosen = pd.concat([training.assign(fold="1"), held_out]).sort_index()
    for path in raw.iterdir():
        if path.name != "train.csv":
            (own_raw / path.name).symlink_to(path.resolve())
    (project / "data" / "competitions").symlink_to((root / "data" / "competitions").resolve())
    chosen[["id", "target"]].to_csv(own_raw / "train.csv", index=False)
    chosen.to_csv(target, index=False)


def measure(project: Path, slug: str, count: int, pretraining: Path, seconds: float) -> str:
    """Trains the three models; returns a row of the table."""
    runs = project / "runs" / slug
    if not (runs / NAME).exists():
        runs.mkdir(parents=True, exist_ok=True)
        (runs / NAME).symlink_to(pretraining.resolve())
    epochs, lr = EPOCHS[count], LR * math.sqrt(BATCH[count] / 128)
    options = (*MODEL, *TRAINING, "--folds", "0", "--batch-size", str(BATCH[count]), "--lr", f"{lr:.3g}")
    podium(project, "train", slug, *options, "--weights", NAME, "--epochs", str(epochs), "--name", "from-dino")
    linear = (*MODEL, "--folds", "0", "--linear", "--weights", NAME, "--name", "linear")
    podium(project, "train", slug, *linear)
    own = seconds_of(runs / "from-dino")
    longer = round(epochs * (seconds + own) / own)
    podium(project, "train", slug, *options, "--weights", "none", "--epochs", str(longer), "--name", "from-nothing")
    images = len(pd.read_csv(project / "data" / "prepared" / slug / "folds.csv").query("fold != 0"))
    scores = {name: Run(runs / name).score(0, "accuracy") for name in ("from-dino", "linear", "from-nothing")}
    times = {name: seconds_of(runs / name) / 60 for name in ("from-dino", "from-nothing")}
    cells = [
        *(count or "all", f"{images:,}"),
        *(f"{scores['from-dino']:.4f}", f"{times['from-dino']:.1f} min, {epochs} epochs", f"{scores['linear']:.4f}"),
        *(f"{scores['from-nothing']:.4f}", f"{times['from-nothing']:.1f} min, {longer} epochs"),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def seconds_of(run: Path) -> float:
    return sum(record.seconds for record in Run(run).history(0))


def podium(project: Path, command: str, slug: str, *flags: str) -> None:
    words = [sys.executable, "-m", "podium", "--root", str(project), command, "-c", slug, *flags]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PODIUM_ROOT": str(project)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("-c", "--competition", dest="slug", default="boolart-image-classification")
    parser.add_argument("--labels", type=int, nargs="+", default=[5, 20, 100, 0], help="0: all (default: %(default)s)")
    main(**vars(parser.parse_args()))
