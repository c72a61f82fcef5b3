"""What a fold learns from: its training images with their targets, and the images without and with labels that join.

Where some targets are probabilities, or where the card names further columns to learn, each image teaches a row of
numbers: those of the classes, then those of the further columns. With --columns, what the tables say of the image
follows, which the model gets beside it. Elsewhere the targets are those of the competition.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.training.augment import View
from podium.training.context import Context
from podium.training.loader import ImageDataset
from podium.training.pseudo_labels import pseudo_labels
from podium.training.soft_targets import SoftTargets, rows_of
from podium.training.training_images import TrainingImages

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Lessons:
    table: pd.DataFrame  # id and image of each
    rows: Ints  # of the training table, and beyond its end for others: the key of an image's random draws
    targets: Any  # what images teach, by their numbers: an array, or a SoftTargets
    confidence: NDArray[np.float64] | None = None  # of those that join

    def images(self, images: TrainingImages, view: View) -> ImageDataset:
        return images.drawn(self.table, self.rows, self.targets, view)


def make_lessons(context: Context, fold: int) -> Lessons:
    rows = context.images.training_rows(fold)
    labels = context.images.targets[rows]
    table = context.competition.train[["id", "image"]].iloc[rows]
    cleaned = context.images.cleaned if context.images.cleaned and len(context.images.cleaned.rows) else None
    is_more = context.further or context.recipe.joins_columns or len(context.images.extra)
    if not (context.recipe.joins_test_images or cleaned or is_more):
        return Lessons(table, rows, labels.taught)
    soft = np.zeros((0, len(context.competition.classes)), np.float32)
    place, confidence = np.full(len(rows), -1), None
    if cleaned:
        soft, place = cleaned.targets, cleaned.places_of(rows)
    for added in _added(context, fold):
        table = pd.concat([table, added.table])
        rows = np.append(rows, added.rows)
        place = np.append(place, len(soft) + np.arange(len(added.rows)))
        soft = np.concatenate([soft, added.targets])
        confidence = added.confidence if confidence is None else confidence
    beside = [part for part in (_further(context, rows, len(labels)), context.images.columns(rows)) if part is not None]
    targets = SoftTargets(labels, soft, place, np.hstack(beside) if beside else None)
    return Lessons(table, rows, targets, confidence)


class Added(NamedTuple):
    """Images that join the training images."""

    table: pd.DataFrame  # id and image
    rows: Ints
    targets: NDArray[np.float32]
    confidence: NDArray[np.float64] | None = None


def _added(context: Context, fold: int) -> Iterator[Added]:
    """Yields the images with answers of earlier runs and the extra images, if this run learns from them."""
    competition = context.competition
    if context.recipe.joins_test_images:
        taught, images = pseudo_labels(context, fold), context.images.pseudo
        yield Added(images[["id", "image"]], images["row"].to_numpy(), taught.targets, taught.confidence)
    if len(context.images.extra):
        targets = context.images.targets[context.images.extra_rows]
        rows = len(competition.test) + context.images.extra_rows
        yield Added(context.images.extra[["id", "image"]], rows, rows_of(targets, len(competition.classes)))


def _further(context: Context, rows: Ints, own: int) -> NDArray[np.float32] | None:
    """Returns what the images teach beside the answers: of those that join, nothing is known."""
    if not context.further:
        return None
    known = context.further.of(context.competition.train["id"].iloc[rows[:own]].tolist())
    unknown = np.full((len(rows) - own, context.further.outputs), np.nan, np.float32)
    return np.concatenate([known, unknown])
