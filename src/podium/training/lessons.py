"""What a fold learns from: its training images with their targets, and the test images that join them (--pseudo).

Where some targets are probabilities, or where the card names further columns to learn, each image teaches a row of
numbers: those of the classes, then those of the further columns. Elsewhere the targets are those of the competition.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.training.augment import View
from podium.training.context import Context
from podium.training.loader import ImageDataset
from podium.training.pseudo_labels import pseudo_labels
from podium.training.soft_targets import SoftTargets

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lessons:
    positions: Ints  # of the images in the store
    rows: Ints  # of the training table, and beyond its end for others: the key of an image's random draws
    targets: Any  # what images teach, by their numbers: an array, or a SoftTargets
    confidence: NDArray[np.float64] | None = None  # of those that join

    def images(self, context: Context, view: View) -> ImageDataset:
        return ImageDataset(context.store.reader(self.positions), self.targets, view, self.rows)


def make_lessons(context: Context, fold: int) -> Lessons:
    rows = context.training_rows(fold)
    labels = context.target_of_image[rows]
    positions = context.store.positions(context.competition.train["image"].iloc[rows])
    cleaned = context.cleaned if context.cleaned and len(context.cleaned.rows) else None
    if not context.recipe.pseudo and cleaned is None and not context.further:
        return Lessons(positions, rows, labels.values)
    soft = np.zeros((0, len(context.competition.classes)), np.float32)
    place, confidence = np.full(len(rows), -1), None
    if cleaned:
        soft, place = cleaned.targets, cleaned.places_of(rows)
    if context.recipe.pseudo:
        added, taught = context.pseudo_images, pseudo_labels(context, fold)
        positions = np.append(positions, context.store.positions(context.competition.test["image"].iloc[added]))
        rows = np.append(rows, len(context.folds) + added)
        place = np.append(place, len(soft) + np.arange(len(added)))
        soft, confidence = np.concatenate([soft, taught.targets]), taught.confidence
    also = None
    if context.further:
        known = context.further.of(context.competition.train["id"].iloc[rows[: len(labels)]].tolist())
        unknown = np.full((len(rows) - len(labels), context.further.outputs), np.nan, np.float32)
        also = np.concatenate([known, unknown])
    return Lessons(positions, rows, SoftTargets(labels, soft, place, also), confidence)
