"""Measures the page of a run of many images: how large it is, how long it takes to write and to open.

    PYTHONPATH=tests python -m benchmarks.page FOLDER [--images 35000 --classes 44]

Writes a competition of made-up images of 256 x 256 pixels into FOLDER, trains a tiny model on one fold for one epoch,
and puts predictions of all five folds in place of its own: 4 % wrong, half of them for the next class. Then it writes
the page, opens it in a headless Chromium, and measures until the gallery is drawn: "A page of a run".
"""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import Project, call, in_turn, seconds, with_range
from benchmarks.sets import read_folds, write_photographs
from podium.saved_runs.run_folder import Run

OPTIONS = (
    *("--model", "test_resnet", "--weights", "none", "--image-size", "64"),
    *("--batch-size", "512", "--epochs", "1"),
)
WRONG = 0.04  # share of the images


def page(folder: Path, images: int = 35_000, classes: int = 44) -> None:
    from report.browser import Browser, find_chromium

    project = Project(folder, "many")
    run = project.run("run")
    if not run.path.exists():
        write_photographs(folder, "many", images, images // 4, classes, size=(256, 256))
        project.podium("folds")
        simulate(project.train("run", *OPTIONS), read_folds(folder, "many"))
    taken, path = seconds(lambda: project.podium("report")), run.path / "report.html"
    print(f"written in {taken:.0f} s, {path.stat().st_size / 1e6:.1f} MB")
    program = find_chromium()
    assert program, "this needs Chromium"
    with Browser.start(program, folder / "chromium") as browser:
        (times,) = in_turn([partial(open_page, browser, path)], 5)
    shutil.rmtree(folder / "chromium")
    print(f"opened in {with_range(times, 2)} s, the median of five")


def open_page(browser: Any, path: Path) -> None:
    """Waits from the request until the gallery's first images are decoded and drawn."""
    browser.open(path)
    browser.run("document.querySelector('#gallery').scrollIntoView()")
    first = "[...document.querySelectorAll('.card img')].slice(0, 6)"
    browser.wait(lambda: browser.run(f"{first}.length && {first}.every((image) => image.complete)"))


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


if __name__ == "__main__":
    call(page)
