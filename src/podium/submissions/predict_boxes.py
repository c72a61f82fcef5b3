"""Predicts images of one's own by their boxes, as a run with `--region` has learned from boxes.

    podium predict RUN IMAGES-or-FOLDERS --boxes FILE.csv

The table is like that of `--region`; its column holds paths or names of files, or these without their extension. A run
that sees tiles needs none.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.terminal import say
from podium.blending.blend import equal_blend
from podium.images.decode import BadImage, read_image, shrink
from podium.images.region_tables import ReadBoxes, read_boxes, rows_in
from podium.images.regions import MARGIN, doubts_about, frame_of, make_boxes
from podium.images.store import side_of_run
from podium.images.store_format import FileRecord
from podium.images.tiles import tiles_in
from podium.options.moves.seen_parts import SeenParts
from podium.options.moves.shape import Shape
from podium.saved_runs.regions_of_run import has_boxes
from podium.saved_runs.run_folder import Run
from podium.submissions.predict_images import Folds, ImagePredictions, predict_listed
from podium.tasks.pool import pooled
from podium.training.own_images import list_images


def see_tiles(folds: Folds) -> bool:
    """Returns whether one of the runs sees tiles, which any image has."""
    return any(SeenParts.recorded(run.recipe).tiles for run in folds)


def predict_boxes(folds: Folds, images: Any, machine: Machine, path: Path | None) -> ImagePredictions:
    """Returns the mean of the predictions of each image's boxes; an image without a box is seen whole.

    Without a table of boxes, they are the tiles that the run sees.
    """
    run, *others = folds
    if others:
        raise PodiumError("a blend may see boxes or tiles in several ways; name one of its runs in place of it")
    if not has_boxes(run):
        raise PodiumError(f"--boxes: {run.name} has not learned from boxes (--region); leave the table out")
    listed = list_images(images)
    rows = pd.DataFrame({"id": [image.stem for image in listed], "image": list(map(str, listed))})
    read = read_boxes(path, [rows], "those to predict") if path else _tiles_of(rows, run)
    files = {record.image: record for record in _records_of(read)}
    recipe = run.recipe
    margin = recipe.get("region_margin", MARGIN)  # earlier versions had others
    shape = Shape.recorded(recipe)
    boxes = make_boxes(read, files, frame_of(recipe["image_size"], shape.fit, margin))
    for doubt in doubts_about(read, files):
        say(f"podium: warning: {doubt}")
    if missing := boxes.without(rows):
        say(f"podium: note: {missing:,} of {len(rows):,} images have no box; they are seen whole")
    return _predict_places(folds, listed, boxes.places(rows), machine)


def _tiles_of(rows: pd.DataFrame, run: Run) -> ReadBoxes:
    along, of_row = SeenParts.recorded(run.recipe).tiles, {}
    side = side_of_run(run.recipe["image_size"], run.recipe["test_size"])
    for row in rows_in(rows):
        with suppress(BadImage):  # predict_listed says which cannot be read
            of_row[row] = list(tiles_in(shrink(read_image(Path(row[1])), side), along, row[1]))
    return ReadBoxes(f"tiles:{along}", of_row)


def _records_of(read: ReadBoxes) -> Iterator[FileRecord]:
    """Yields what the files of boxes are: a box needs the size of its image."""
    for _, image in read.of_row:
        sides, reason = (0, 0), ""
        try:
            sides = read_image(Path(image)).shape[:2]
        except BadImage as bad:
            reason = bad.reason
        height, width = sides
        yield FileRecord(image, 0, "", "", "", "", width, height, width, height, reason)


def _predict_places(folds: Folds, listed: list[Any], places: list[list[str]], machine: Machine) -> ImagePredictions:
    shown = [Path(place) for own in places for place in own]
    counts = np.array([len(own) for own in places])
    found = predict_listed(folds, equal_blend(1), shown, machine)
    owners = np.repeat(np.arange(len(listed)), counts)
    unreadable = {int(owners[number]): reason for number, reason in found.unreadable.items()}
    return replace(found, images=listed, probs=pooled(found.probs, counts), unreadable=unreadable)
