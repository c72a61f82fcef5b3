"""Finds a box of each image with the models of an earlier run that predicts a point or a box (`--region box:SLUG/RUN`).

An image that the run has held out gets the box of the model that held it out, so no box is better than that of a new
image; any other image, such as a test image, gets the mean of all models. Writes the boxes, in pixels, to
data/prepared/<slug>/boxes-<run>-<key>.csv, where open_regions.py finds them.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.disk import locked, write_text
from podium.basics.machine import Machine
from podium.basics.terminal import plural, progress_bar, say
from podium.competition.find.csv_files import csv_text
from podium.competition.load import Competition
from podium.images.regions import COLUMNS
from podium.images.store import Store, open_store, side_of_run
from podium.training.finder import Finder, finder_of
from podium.training.fold_model import FoldModel
from podium.training.plan import Plan
from podium.training.test_predictions import predict_examples

LEAST = 1 / 4  # of an image's sides, around a point
ERRORS = 2.0  # the half of a point's box, in root mean squared errors of the held-out points


def find_boxes(plan: Plan) -> None:
    """Writes the boxes of the plan's images, unless they are there."""
    if not plan.parts.finder:
        return
    finder = finder_of(plan.competition, plan.parts.finder)
    path = finder.path(plan.competition)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock")):
        if not path.exists():
            rows = _boxes(finder, plan.competition, plan.request.machine)
            write_text(path, csv_text([COLUMNS, *rows]))


def _boxes(finder: Finder, competition: Competition, machine: Machine) -> Iterator[tuple[object, ...]]:
    run = finder.run
    store = open_store(competition, side_of_run(run.recipe["image_size"], run.recipe["test_size"]), machine.keep_pixels)
    rows = pd.concat([competition.train_in_files, competition.test], ignore_index=True)
    rows = rows[~store.bad(store.positions(rows["image"]))]
    numbers = _numbers(finder, competition, store, rows, machine)
    errors, are_shares = _held_out(finder)
    for row, values in zip(rows.itertuples(), numbers, strict=True):
        file = store.files[int(store.positions([row.image])[0])]
        sides = np.array([file.width, file.height], np.float64)
        unit = sides if are_shares else np.ones(2)
        if finder.is_point:
            half = np.maximum(LEAST / 2 * sides, ERRORS * errors * unit)
            start, end = values * unit - half, values * unit + half
        else:
            start, last = values[:2] * unit, values[2:] * unit
            end = last if finder.has_corners else start + last
        start = np.clip(np.minimum(start, end - 1), 0, sides - 1).round()
        end = np.clip(np.maximum(end, start + 1), 1, sides).round()
        yield (row.id, row.image, *start.astype(int).tolist(), *(end - start).astype(int).tolist())


def _numbers(
    finder: Finder, competition: Competition, store: Store, rows: pd.DataFrame, machine: Machine
) -> NDArray[np.float64]:
    """Returns the numbers of the point or the box of each row."""
    run, columns = finder.run, list(finder.columns)
    fold_of = {str(image): fold for fold in run.finished() for image in run.out_of_fold(fold).id}
    folds = rows["id"].map(fold_of).fillna(-1).to_numpy(np.int64)
    if not (folds >= 0).any():
        say(
            f"podium: warning: {run.name} has held out no image with an id of {competition.slug}; if its models have"
            " learned these images, their boxes are better than those of new images"
        )
    found = np.zeros((len(rows), len(columns)))
    asked = len(run.finished()) * int((folds < 0).sum()) + int((folds >= 0).sum())
    with progress_bar(total=asked, desc=f"boxes from {run.name}", unit="image") as bar:
        for fold in run.finished():
            own = (folds == fold) | (folds < 0)
            model = FoldModel.load(run, fold, machine.device)
            numbers = predict_examples(store, store.examples(rows[own]), model, machine)[:, columns]
            found[own] += numbers / np.where(folds[own] < 0, len(run.finished()), 1)[:, None]
            bar.update(int(own.sum()))
    say(f"podium: boxes from {run.name}: {plural(int((folds >= 0).sum()), 'image')} by the model that held them out")
    return found


def _held_out(finder: Finder) -> tuple[NDArray[np.float64], bool]:
    """Returns the errors of the held-out numbers, and whether these are shares of the sides of an image."""
    parts = [finder.run.out_of_fold(fold) for fold in finder.run.finished()]
    truth, told = (
        np.concatenate(arrays)[:, list(finder.columns)]
        for arrays in ([one.target.values for one in parts], [one.probs for one in parts])
    )
    errors: NDArray[np.float64] = np.sqrt(np.nanmean((told - truth) ** 2, 0))[:2]
    return errors, bool(np.nanmax(truth) <= 1)
