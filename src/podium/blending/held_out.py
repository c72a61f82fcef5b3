"""Collects what several runs predict for the images that all of them held out.

Reads runs/<slug>/*/fold<k>/oof.npz. Weights are fitted to these predictions, and the score is estimated from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.blending.blend import Probs
from podium.blending.stack_inputs import TableRows
from podium.saved_runs.run_folder import Run
from podium.tasks.task import ONE_LABEL, Targets

RANDOM_PARTS = 5  # if all images are of one fold
MIN_GROUPS = 20  # nothing is fitted to fewer; an image without a group counts as one


@dataclass(frozen=True)
class HeldOut:
    """What several runs predict for the same images. No model has seen the images that it predicts here."""

    probs: Probs  # [runs, images, classes]
    targets: Targets
    parts: NDArray[np.int64]  # of each image; cross-validation scores a part with weights fitted to the other parts
    groups: NDArray[np.int64]  # of each image; images of a group are alike, so the bootstrap draws all of them or none
    ids: Sequence[str] = field(default=(), kw_only=True)  # of the images
    features: TableRows | None = field(default=None, kw_only=True)  # of each image, for a stack

    def __len__(self) -> int:
        return len(self.targets)

    def of(self, mask: NDArray[np.bool_]) -> "HeldOut":
        """Returns some of the images, without their ids."""
        features = None if self.features is None else self.features[mask]
        return HeldOut(self.probs[:, mask], self.targets[mask], self.parts[mask], self.groups[mask], features=features)

    def can_be_fitted_to(self) -> bool:
        """Returns whether weights can be fitted to some parts and scored on the others."""
        return len(np.unique(self.groups)) >= MIN_GROUPS and len(np.unique(self.parts)) > 1


class OutOfFold(NamedTuple):
    """One run's prediction for one image."""

    probs: NDArray[np.float32]
    targets: Targets  # of all images of the fold
    row: int  # of this image in them
    fold: int


def collect_held_out(
    runs: Sequence[Run],
    classes: tuple[str, ...],
    groups: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    folds: Sequence[int] = (),
) -> HeldOut:
    """Returns the images that all runs held out, in these folds or in all; their parts are the folds of the first run.

    `groups` maps image ids to names of groups. An image without one is a group of its own. `labels` are the labels of
    today by image id: all runs are scored with them, also those that were trained before a label was corrected, and an
    image without one (it was dropped) does not count. Without `labels`, the first run's own labels count.
    """
    predictions = [_read_out_of_fold(run, classes, labels, folds) for run in runs]
    first = predictions[0]
    ids = [image_id for image_id in first if all(image_id in by_id for by_id in predictions)]
    group_numbers = number_groups(ids, groups or {})
    parts = np.array([first[image_id].fold for image_id in ids], np.int64)
    if len(set(parts.tolist())) == 1:
        parts = np.random.default_rng(0).permutation(group_numbers.max() + 1)[group_numbers] % RANDOM_PARTS
    probs = np.empty((len(runs), len(ids), *np.shape(next(iter(first.values())).probs)) if ids else (len(runs), 0))
    for by_id, table in zip(predictions, probs, strict=True):
        for place, image_id in enumerate(ids):  # numpy would look at every number of a list of rows
            table[place] = by_id[image_id].probs
    targets = Targets(ONE_LABEL, np.empty(0, np.int64))
    if ids:
        rows = [(first[image_id].targets, first[image_id].row) for image_id in ids]
        votes = None if rows[0][0].votes is None else np.array([own.taught[row] for own, row in rows])
        targets = replace(rows[0][0], values=np.array([own.values[row] for own, row in rows]), votes=votes)
    return HeldOut(
        probs=probs,
        targets=targets,
        parts=parts,
        groups=group_numbers,
        ids=ids,
    )


def _read_out_of_fold(
    run: Run, classes: tuple[str, ...], labels: Mapping[str, str] | None, folds: Sequence[int]
) -> dict[str, OutOfFold]:
    by_id = {}
    for fold in run.finished():
        if folds and fold not in folds:
            continue
        oof = run.out_of_fold(fold).in_order_of(classes).with_labels(labels)
        for row, (image_id, probs) in enumerate(zip(oof.id, oof.probs, strict=True)):
            by_id[str(image_id)] = OutOfFold(probs, oof.target, row, fold)
    return by_id


def number_groups(ids: Sequence[str], groups: Mapping[str, str]) -> NDArray[np.int64]:
    """Returns the number of each image's group; an image without one is a group of its own."""
    names = {image_id: f"group {group}" for image_id, group in groups.items()}
    # The prefixes keep an image from joining a group whose name is the image's id.
    numbers: NDArray[np.int64] = np.unique(
        [names.get(image_id, f"image {image_id}") for image_id in ids], return_inverse=True
    )[1]
    return numbers
