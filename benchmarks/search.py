"""Measures what a search is worth: its winner against the defaults, with equal time, on images that neither has seen.

    python docs/measure_search.py ROOT WORK -c SLUG [SLUG ...] [--budget 30m] [--seeds 0 1 2] [--size 64] [--epochs 6]

ROOT holds competitions. Of each, one with a hidden test is made below WORK (measure_moves.py), of four folds. A search
uses the first two, and the third judges it. Then the winner and the defaults are trained on the third and the fourth
with several seeds, and the defaults with more seeds for as long as the search and one run of its winner took. It prints
the accuracy on the hidden test of both, and of the blend of these seeds, each with the difference from the defaults and
its 95 % interval over the images. The same command goes on; first delete the runs of a search that was stopped, because
its time would not be whole.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from measure_moves import MODEL, make_competition, podium

from podium.competition.load import load
from podium.options.recipe import flag_of
from podium.saved_runs.run_folder import Run
from podium_annex.searching.search_report import Found

SEARCHED, UNSEEN = "0-2", "2,3"  # folds; the last of the searched ones judges


def search(work: Path, slug: str, budget: str, recipe: Sequence[str]) -> tuple[float, list[str]]:
    """Returns how long the search took, in seconds, and the flags of its winner; none if the defaults won."""
    notes = work / "runs" / slug / "measured-search.json"
    if not notes.exists():
        started = time.monotonic()
        podium(work, "search", "-c", slug, "--folds", SEARCHED, "--budget", budget, "--trials", "1000", *recipe)
        notes.write_text(json.dumps(time.monotonic() - started))
    changed = Found(load(slug, work), work, "search").changed_options()
    words = [word for name, value in changed.items() for word in (flag_of(name), str(value))]
    return json.loads(notes.read_text()), words


def train(work: Path, slug: str, run: str, seed: int, recipe: Sequence[str]) -> float:
    """Trains a run on the folds that the search did not use; returns how long its epochs took, in seconds."""
    if len(Run(work / "runs" / slug / run).finished()) < 2:
        podium(work, "train", "-c", slug, "--name", run, "--folds", UNSEEN, "--seed", str(seed), *recipe)
    trained = Run(work / "runs" / slug / run)
    return sum(record.seconds for fold in trained.finished() for record in trained.history(fold))


def right(work: Path, slug: str, *runs: str) -> np.ndarray:
    """Returns for each image of the hidden test whether the blend of the runs names its class."""
    name = runs[0] if len(runs) == 1 else f"{runs[0]}-and-{len(runs) - 1}-more"
    if not (work / "submissions" / slug / f"{name}.csv").exists():
        equal = () if len(runs) == 1 else ("--blend", "equal")
        podium(
            work, "submit", "-c", slug, "--runs", *runs, "--name", name, "--decision", "none", "--anyway", *equal
        )  # fmt: skip
    answers = pd.read_csv(work / "submissions" / slug / f"{name}.csv", dtype=str).set_index("id")["label"]
    truth = pd.read_csv(work / "data" / f"{slug}-hidden.csv", dtype=str).set_index("id")["label"]
    return np.asarray(answers.loc[truth.index] == truth, dtype=float)


def measure(work: Path, slug: str, budget: str, seeds: Sequence[int], recipe: Sequence[str]) -> None:
    seconds, words = search(work, slug, budget, recipe)
    print(f"{slug}: {seconds / 60:.0f} min of search; the winner: {' '.join(words) or 'the defaults'}", flush=True)
    took = [train(work, slug, f"default-{seed}", seed, recipe) for seed in seeds]
    defaults = np.mean([right(work, slug, f"default-{seed}") for seed in seeds], axis=0)
    more = [*seeds]
    rows = {"defaults": defaults}
    if words:
        won = [train(work, slug, f"winner-{seed}", seed, [*recipe, *words]) for seed in seeds]
        rows["winner"] = np.mean([right(work, slug, f"winner-{seed}") for seed in seeds], axis=0)
        rows["winner, blend of its seeds"] = right(work, slug, *(f"winner-{seed}" for seed in seeds))
        seconds += statistics.mean(won)
    while sum(took) + statistics.mean(took) <= seconds:
        more.append(max(more) + 1)
        took.append(train(work, slug, f"default-{more[-1]}", more[-1], recipe))
    rows[f"defaults, blend of {len(more)} seeds: equal time"] = right(work, slug, *(f"default-{seed}" for seed in more))
    print("| runs | hidden test | gain | 95 % interval |\n| --- | ---: | ---: | --- |")
    for name, own in rows.items():
        gain = 100 * (own - defaults)
        around = 1.96 * gain.std(ddof=1) / len(gain) ** 0.5
        interval = f"{gain.mean() - around:+.1f} to {gain.mean() + around:+.1f}"
        shown = f"{gain.mean():+.1f} | {interval}" if name != "defaults" else " | "
        print(f"| {name} | {own.mean():.4f} | {shown} |")
    print(flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("-c", "--competitions", nargs="+", required=True, metavar="SLUG")
    parser.add_argument("--budget", default="30m")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--epochs", type=int, help="default: searched, around that of the model's kind")
    given = parser.parse_args()
    shared = ["--model", MODEL, "--image-size", str(given.size)]
    if given.epochs:
        shared += ["--epochs", str(given.epochs)]
    for competition in given.competitions:
        planted = make_competition(given.root, given.work, competition, "plain")
        measure(given.work, planted, given.budget, given.seeds, shared)
