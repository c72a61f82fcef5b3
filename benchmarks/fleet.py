"""Compares cells that jobs of a queue train with what the plain command trains, to the bit, on the handwritten digits.

    python docs/measure_fleet.py FOLDER

Three small models with two seeds, an epoch of two folds each, on 120 digits: once by the plain command, once as twelve
jobs of submitit's executor of this machine, two at a time. FOLDER gets a project for each. It ends with an error if
weights, held-out predictions or the table of scores differ.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from podium.basics.disk import sha256
from podium.saved_runs.run_folder import Run

DIGITS = 120  # that are trained on
MODELS = ("test_vit", "test_resnet", "test_convnext")
TRAIN = ("train", "-c", "sample", "--model", *MODELS, "--seeds", "0-1", "--folds", "0,1", "--weights", "none")
SMALL = ("--image-size", "32", "--epochs", "1", "--device", "cpu", "--workers", "0")
IN_QUEUE = ("--on", "local", "--at-once", "2")


def podium(root: Path, *words: str) -> str:
    command = [sys.executable, "-m", "podium", "--root", str(root), *words]
    environment = {**os.environ, "PODIUM_BEAT": "1s"}  # between two looks at the jobs
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def keep_some_digits(folder: Path) -> None:
    header, *rows = (folder / "train.csv").read_text().splitlines()
    (folder / "train.csv").write_text("\n".join([header, *rows[:DIGITS]]) + "\n")
    for row in rows[DIGITS:]:
        (folder / "train_image" / f"{row.split(',')[0]}.png").unlink()


def trained(root: Path, *where: str) -> dict[str, tuple[str, bytes, float]]:
    """Trains all cells in a new project; returns weights, predictions and score of each, by run and fold."""
    root.mkdir(parents=True)
    podium(root, "sample")
    keep_some_digits(root / "data" / "raw" / "sample")
    podium(root, "folds", "-c", "sample", "--k", "2")
    started = time.monotonic()
    podium(root, *TRAIN, *SMALL, *where)
    print(f"{' '.join(where) or 'plain'}: {time.monotonic() - started:.0f} s")
    scores = {row["run"]: row["score"] for row in json.loads(podium(root, "compare", "-c", "sample", "--json"))}
    found = {}
    for name, score in scores.items():
        run = Run(root / "runs" / "sample" / name)
        for fold in run.finished():
            probs = run.out_of_fold(fold).probs.tobytes()
            found[f"{name} fold {fold}"] = (sha256(run.weights_path(fold)), probs, score)
    return found


def main(folder: Path) -> None:
    plain, cells = trained(folder / "plain"), trained(folder / "cells", *IN_QUEUE)
    different = sorted(name for name in plain.keys() | cells.keys() if plain.get(name) != cells.get(name))
    print(f"{len(plain)} folds of the plain command, {len(cells)} of jobs, {len(different)} differ")
    if different or len(plain) != 2 * 2 * len(MODELS):
        sys.exit(f"not the same: {', '.join(different)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
