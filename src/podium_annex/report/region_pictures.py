"""Shows some images with the boxes that a run sees, or that its models have found for another one."""

import base64
from collections.abc import Iterator
from html import escape
from itertools import chain, islice, zip_longest

import cv2
import numpy as np

from podium.basics.image_size import Box
from podium.competition.load import Competition
from podium.images.decode import BadImage, Pixels, read_image
from podium.images.regions import Boxes, read_regions
from podium.saved_runs.regions_of_run import found_regions, has_boxes, regions_of
from podium.saved_runs.run_folder import Run
from podium_annex.report.gallery import jpeg_of, shrink_to
from podium_annex.report.sections import note, section

SHOWN = 12
SIDE = 176  # pixels of the longer side of a picture
COLOUR = (255, 0, 160)  # rare in photographs


def regions_section(competition: Competition, run: Run) -> str:
    """Returns held-out images with their boxes; nothing for a run that has none."""
    folds = run.finished()
    if has_boxes(run):
        regions = regions_of(run)
        by_fold = {fold: regions.of_fold(fold) for fold in folds}
        text = "What this run sees of its images (--region), with the margin."
    else:
        by_fold = {fold: read_regions(path) for fold, path in found_regions(run).items() if fold in folds}
        text = f"Where the models of this run look: podium train --region attention:{run.name} trains on these boxes."
    pictures = [_pictures(competition, run, fold, boxes) for fold, boxes in by_fold.items() if isinstance(boxes, Boxes)]
    in_turn = (figure for figure in chain(*zip_longest(*pictures)) if figure)
    figures = "".join(islice(in_turn, SHOWN))
    return section("regions", "Regions", note(text), f"<div>{figures}</div>") if figures else ""


def _pictures(competition: Competition, run: Run, fold: int, boxes: Boxes) -> Iterator[str]:
    """Yields the held-out images of a fold, each as a piece of HTML."""
    image_of = dict(zip(competition.train["id"], competition.train["image"], strict=True))
    for image_id in run.out_of_fold(fold).id.tolist():
        own = boxes.of_row.get((image_id, image_of.get(image_id, "")), ())
        if not own:
            continue
        try:
            pixels = read_image(competition.folder / image_of[image_id], competition.card.value_range)[..., :3]
        except BadImage:
            continue
        data = base64.b64encode(jpeg_of(_drawn(pixels, own))).decode()
        name = escape(f"{image_id}, fold {fold}")
        yield f'<img src="data:image/jpeg;base64,{data}" alt="{name}" title="{name}"> '


def _drawn(image: Pixels, boxes: tuple[Box, ...]) -> Pixels:
    small = np.array(shrink_to(image, SIDE))  # Pillow's pixels cannot be written to
    scale = small.shape[1] / image.shape[1], small.shape[0] / image.shape[0]
    for box in boxes:
        corners = (box.left, box.top), (box.left + box.width, box.top + box.height)
        first, last = ((round(x * scale[0]), round(y * scale[1])) for x, y in corners)
        cv2.rectangle(small, first, (last[0] - 1, last[1] - 1), COLOUR, 2)
    return small
