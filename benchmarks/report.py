"""Measures the page of a run of many images: how large it is, how long it takes to write and to open.

    PYTHONPATH=tests python docs/measure_report.py FOLDER [--images 35000 --classes 44]

Writes a competition of made-up images of 256 x 256 pixels into FOLDER, trains a tiny model on one fold for one epoch,
and puts predictions of all five folds in place of its own: 4 % wrong, half of them for the next class. Then it writes
the page, opens it in a headless Chromium, and measures until the gallery is drawn.
"""

import argparse
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from synthetic_competition import write_competition

from podium.folds.folds_csv import folds_path
from podium.saved_runs.run_folder import Run
from report.browser import Browser, find_chromium

SLUG = "many"
OPTIONS = ("--model", "test_resnet", "--weights", "none", "--image-size", "64", "--batch-size", "512", "--epochs", "1")
WRONG = 0.04  # share of the images
OPENINGS = 5


def main(folder: Path, images: int, classes: int) -> None:
    run = Run(folder / "runs" / SLUG / "run")
    if not run.path.exists():
        write_competition(folder, SLUG, images, images // 4, classes, size=(256, 256))
        podium(folder, "folds", "-c", SLUG)
        podium(folder, "train", "-c", SLUG, *OPTIONS, "--folds", "0", "--name", "run")
        simulate(run, pd.read_csv(folds_path(SLUG, folder), dtype=str))
    started = time.monotonic()
    podium(folder, "report", "-c", SLUG)
    page = run.path / "report.html"
    print(f"written in {time.monotonic() - started:.0f} s, {page.stat().st_size / 1e6:.1f} MB")
    program = find_chromium()
    assert program, "this needs Chromium"
    profile = folder / "chromium"
    with Browser.start(program, profile) as browser:
        times = [opening(browser, page) for _ in range(OPENINGS)]
    shutil.rmtree(profile)
    print(f"opened in {median(times):.2f} s (median of {OPENINGS}: {min(times):.2f} to {max(times):.2f})")


def opening(browser: Browser, page: Path) -> float:
    """Returns the seconds from the request until the gallery's first images are decoded and drawn."""
    started = time.monotonic()
    browser.open(page)
    browser.run("document.querySelector('#gallery').scrollIntoView()")
    first = "[...document.querySelectorAll('.card img')].slice(0, 6)"
    browser.wait(lambda: browser.run(f"{first}.length && {first}.every((image) => image.complete)"))
    return time.monotonic() - started


def simulate(run: Run, folds: pd.DataFrame) -> None:
    """Writes predictions of every fold, and the other files of the first fold for the others."""
    trained, rng = run.out_of_fold(0), np.random.default_rng(0)
    number_of = {name: number for number, name in enumerate(trained.classes)}
    for fold in sorted(set(folds["fold"]) - {"-1"}):
        rows = folds[folds["fold"] == fold]
        target = rows["target"].map(number_of).to_numpy(np.int64)
        others = np.where(rng.random(len(rows)) < 0.5, target + 1, rng.integers(len(number_of), size=len(rows)))
        shown = np.where(rng.random(len(rows)) < WRONG, others % len(number_of), target)
        probs = rng.dirichlet(np.full(len(number_of), 0.05), len(rows)).astype(np.float32) * 0.4
        probs[np.arange(len(rows)), shown] += 0.6
        if fold != "0":
            shutil.copytree(run.fold_folder(0), run.fold_folder(int(fold)))
        predictions = replace(trained, id=rows["id"].to_numpy(str), probs=probs, target=target)
        predictions.save(run.fold_folder(int(fold)) / "oof.npz")


def podium(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "podium", "--root", str(folder), *words], check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=35_000)
    parser.add_argument("--classes", type=int, default=44)
    main(**vars(parser.parse_args()))
