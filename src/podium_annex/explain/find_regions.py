"""Finds the part of each image that a run's models look at, for `podium train --region attention:RUN`.

    podium explain RUN --regions

Writes runs/<slug>/<run>/fold<k>/regions.csv: a box of every training and test image, in pixels. Those of fold k come
from its model alone, which has not learned the labels of the images that fold k holds out. So these labels do not reach
a run that sees the boxes. Boxes that are there stay; delete the file to find them again.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.image_size import Box
from podium.basics.machine import Machine
from podium.basics.terminal import command_for, progress_bar, say
from podium.competition.load import Competition
from podium.images.regions import REGIONS, Boxes
from podium.images.store import Store, open_store, side_of_run
from podium.options.moves.seen_parts import SeenParts
from podium.saved_runs.imported_runs import refuse_imported
from podium.saved_runs.run_folder import Run
from podium.training.augment import TestView
from podium.training.fold_model import FoldModel
from podium.training.loader import ImageDataset, batches_in_order, load_batches, pick_workers
from podium_annex.explain.choose_explainer import choose_explainer

SHARE = 0.9  # of what the model looks at: the rest is spread thinly over the background
LEAST = 1 / 4  # of the image's sides: less is a guess about a detail
GRID = 24  # the most cells of a map along a side; most models have 7 to 16
BATCH = 16


def find_regions(run: Run, competition: Competition, machine: Machine | None = None) -> list[Path]:
    """Returns the files, one for each finished fold."""
    refuse_imported([run], "--regions")
    if (parts := SeenParts.recorded(run.recipe)).is_on:
        raise PodiumError(f"{run.name} sees parts of images ({parts.of_images()}); name a run that sees whole images")
    machine = machine or Machine()
    say(f"podium: {run.name}: the boxes of {len(competition.train) + len(competition.test):,} images, for each fold")
    side = side_of_run(run.recipe["image_size"], run.recipe["test_size"])
    store = open_store(competition, side, machine.keep_pixels)
    rows = pd.concat([competition.train, competition.test], ignore_index=True)
    rows = rows[~store.bad(store.positions(rows["image"]))]
    paths = []
    for fold in run.finished():
        folder = run.fold_folder(fold)
        if not (folder / REGIONS).exists():
            _find(run, fold, store, rows, machine).write(folder)
        paths.append(folder / REGIONS)
    say(f"next: {command_for('report', competition.slug, runs=run.name)}, which shows some; then train with --region")
    return paths


def _find(run: Run, fold: int, store: Store, rows: pd.DataFrame, machine: Machine) -> Boxes:
    positions = store.positions(rows["image"])
    of_row = {}
    bar = progress_bar(total=len(rows), desc=f"{run.name} fold {fold}", unit="image")
    with bar:
        heats = _heats(run, fold, store, positions, machine)
        for row_id, image, position, heat in zip(rows["id"], rows["image"], positions, heats, strict=True):
            file = store.files[position]
            if box := box_of_heat(heat, file.height, file.width):
                of_row[row_id, image] = (box,)
            bar.update()
    return Boxes(of_row=of_row)


def _heats(
    run: Run, fold: int, store: Store, positions: NDArray[np.int64], machine: Machine
) -> Iterator[NDArray[np.float32]]:
    """Yields where the fold's model looks in each image, all of which it sees, squeezed into its shape."""
    run.check_weights(fold)
    loaded = FoldModel.load(run, fold, machine.device)
    explain, _ = choose_explainer(loaded.model, loaded.spec.test_size)
    view = TestView(replace(loaded.spec, fit="squash"))
    count = len(positions)
    images = ImageDataset(store.reader(positions), np.full(count, -1), view, np.arange(count))
    for batch, _ in load_batches(images, batches_in_order(count, BATCH), pick_workers(machine.workers, loaded.device)):
        yield from explain(loaded.model, loaded.normalise(batch))


def box_of_heat(heat: NDArray[np.float32], height: int, width: int) -> Box | None:
    """Returns the smallest box of an image with a share of the heat; None if there is no heat."""
    rows, columns = (min(GRID, side) for side in heat.shape)
    cells = cv2.resize(heat.astype(np.float64), (columns, rows), interpolation=cv2.INTER_AREA)
    if not cells.sum() > 0:
        return None
    top, bottom, left, right = _smallest(cells / cells.sum())
    first, last = _widened(top / rows, bottom / rows)
    start, end = _widened(left / columns, right / columns)
    x, y = round(start * width), round(first * height)
    return Box(x, y, max(1, round(end * width) - x), max(1, round(last * height) - y))


def _smallest(cells: NDArray[np.float64]) -> tuple[int, int, int, int]:
    """Returns the rows and columns (from, to) of the box with the fewest cells that holds the share."""
    rows, columns = cells.shape
    sums = np.vstack([np.zeros(columns), np.cumsum(cells, 0)])
    best, fewest = (0, rows, 0, columns), rows * columns
    for top in range(rows):
        for bottom in range(top + 1, rows + 1):
            held = np.append(0.0, np.cumsum(sums[bottom] - sums[top]))
            if held[-1] < SHARE:
                continue
            ends = np.searchsorted(held, held + SHARE * (1 - 1e-9))  # the first end that holds the share
            lefts = np.flatnonzero(ends <= columns)
            left = int(lefts[(ends[lefts] - lefts).argmin()])
            count = (bottom - top) * int(ends[left] - left)
            if count < fewest:
                best, fewest = (top, bottom, left, int(ends[left])), count
    return best


def _widened(start: float, end: float) -> tuple[float, float]:
    """Returns the part of a side, at least as long as the least, inside the side."""
    missing = max(0.0, LEAST - (end - start))
    start = min(max(0.0, start - missing / 2), 1 - max(end - start, LEAST))
    return start, max(start + LEAST, end) if missing else end
