"""Predicts images of one's own with the fold models of a run, or with the blend of a submission.

    podium predict RUN-or-FILE.csv IMAGES-or-FOLDERS

Reads runs/<slug>/<run>/fold*/model.safetensors and, for a submission, the JSON beside its CSV. Writes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.machine import Machine
from podium.basics.terminal import first_few, plural, progress_bar, say, table
from podium.blending.blend import Blend, Probs, equal_blend
from podium.blending.own_stack import OwnStack
from podium.blending.strategy_names import RANK
from podium.competition.card import read_card
from podium.models.hardware_errors import explain_hardware_errors
from podium.models.predict import models_by_class
from podium.options.moves.joined_columns import joins_columns
from podium.saved_runs.regions_of_run import has_boxes
from podium.saved_runs.run_folder import Run, find_run
from podium.submissions.lineage import read_lineage
from podium.submissions.rebuild_submission import find_recorded_folds
from podium.tasks.task import class_columns
from podium.training.fold_model import FoldModel
from podium.training.own_images import list_images, read_blocks

Folds = Mapping[Run, Sequence[int]]
Features = dict[str, NDArray[np.float32]]  # of a block of images, by the backbone that they come from


@dataclass(frozen=True)
class ImagePredictions:
    images: list[Any]  # paths or arrays, as they were listed
    classes: tuple[str, ...]
    probs: Probs  # a row per image; not a number where the image cannot be read
    unreadable: dict[int, str]  # number of an image: why it cannot be read
    are_numbers: bool = False  # the models predict numbers, not probabilities

    def frame(self) -> pd.DataFrame:
        """Returns a row per image: its path or number, the predicted class, and the probability of every class.

        If the models predict numbers, these stand there instead. A class that is called like another column has
        `class` before its name.
        """
        names = [str(image) if isinstance(image, Path) else number for number, image in enumerate(self.images)]
        answers = pd.DataFrame({"image": names})
        if not self.are_numbers:
            best = self.probs.argmax(1)
            answers["prediction"] = [None if row in self.unreadable else self.classes[k] for row, k in enumerate(best)]
        columns = class_columns(self.classes, list(answers))
        return pd.concat([answers, pd.DataFrame(self.probs, columns=columns)], axis=1)

    def table(self, top: int) -> str:
        """Returns the most probable classes of every image, or its numbers, as text."""
        if self.are_numbers:
            numbers = [["?" if np.isnan(x) else f"{x:.5g}" for x in row] for row in self.probs]
            pairs = zip(self.images, numbers, strict=True)
            return table(["image", *self.classes], [[image, *row] for image, row in pairs], text_columns=1)
        rows = []
        for number, image in enumerate(self.images):
            best = np.argsort(-self.probs[number], kind="stable")[:top]
            answers = [f"{self.classes[k]} {self.probs[number, k]:z.3f}" for k in best]
            rows.append([image, *(["?"] * len(best) if number in self.unreadable else answers)])
        places = min(top, len(self.classes))
        header = ["most probable", *(f"no. {place}" for place in range(2, places + 1))]
        return table(["image", *header], rows, text_columns=places + 1)


def find_models(source: str, slug: str, root: Path) -> tuple[Folds, Blend]:
    """Returns the fold models that a name means: a run, the folder of a run, or the CSV (or JSON) of a submission.

    Reads the competition's card, which loads the extensions that the models may need.
    """
    path = Path(source)
    if path.suffix in (".csv", ".json"):
        lineage = read_lineage(path)
        read_card(lineage.competition, root)
        folds, blend = find_recorded_folds(root, lineage), lineage.blend
        if blend.strategy == RANK:
            raise PodiumError(f"{path}: its blend is a mean of ranks among the test images; name one of its runs")
        if isinstance(blend.stack, OwnStack):
            raise PodiumError(
                f"{path}: its stack {blend.stack.describe()} is fitted for a submission only; name one of its runs"
            )
        if "features" in lineage.content:
            raise PodiumError(
                f"{path}: its blend uses features that are in the test table; name one of its runs, or submit with"
                " --blend convex"
            )
        say(f"podium: the blend of {lineage.csv.name}: {', '.join(run.name for run in folds)}")
        return folds, blend
    is_folder = (path / "recipe.json").is_file()
    read_card(path.resolve().parent.name if is_folder else slug, root)
    run, _ = find_run(source, slug, root)
    say(f"podium: {run.name}, {plural(len(run.models()), 'model')}")
    return {run: run.models()}, equal_blend(1)


def predict_images(
    folds: Folds, blend: Blend, images: Any, machine: Machine | None = None, are_cropped: bool = False
) -> ImagePredictions:
    """Predicts files, folders of images, or arrays; a run's prediction is the mean of its fold models.

    What has learned from boxes needs images that are cropped to them.
    """
    learned = [run.name for run in folds if has_boxes(run)]
    if learned and not are_cropped:
        raise PodiumError(
            f"{first_few(learned)} learned from boxes (--region), and whole images would be answered wrongly; give"
            " their boxes with --boxes FILE.csv, or crop each image to its box, with the margin that training had, and"
            " say so with --cropped (in Python, cropped=True)"
        )
    return predict_listed(folds, blend, list_images(images), machine or Machine())


def predict_listed(folds: Folds, blend: Blend, listed: list[Any], machine: Machine) -> ImagePredictions:
    """Predicts images, or places of parts of them, as models see them."""
    device = machine.device
    with explain_hardware_errors():
        models = {
            number: [FoldModel.load(run, fold, device) for fold in run_folds]
            for number, (run, run_folds) in enumerate(folds.items())
            if blend.weights[number]
        }
        classes = next(iter(models.values()))[0].spec.classes
        if told := [run.name for number, run in enumerate(folds) if number in models and joins_columns(run.recipe)]:
            say(f"podium: note: {first_few(told)} answer without the columns of the tables, which new images lack")
        probs = np.full((len(listed), len(classes)), np.nan)
        unreadable: dict[int, str] = {}
        specs = list(dict.fromkeys(model.spec for group in models.values() for model in group))
        with progress_bar(total=len(listed), desc="predicting", unit="image") as progress:
            for block in read_blocks(listed, specs):
                unreadable |= block.unreadable
                if len(block.readable):
                    zeros, features = np.zeros((len(block.readable), len(classes))), Features()
                    means = [
                        _mean_of_folds(models[n], partial(blend.calibrate, n), block.prepared, features, classes)
                        if n in models
                        else zeros
                        for n in range(len(folds))
                    ]
                    probs[block.readable] = blend.average(means)
                progress.update(len(block.readable) + len(block.unreadable))
    if len(unreadable) == len(listed):
        number, reason = next(iter(unreadable.items()))
        raise PodiumError(f"none of the images can be read; the first is {listed[number]} ({reason})")
    if unreadable:
        number, reason = next(iter(unreadable.items()))
        count = plural(len(unreadable), "image")
        say(f"podium: warning: {count} cannot be read, {listed[number]} first ({reason})")
    return ImagePredictions(listed, classes, probs, unreadable, bool(specs[0].scales))


def _mean_of_folds(
    models: Sequence[FoldModel],
    calibrate: Callable[[Probs], Probs],
    prepared: Mapping[Any, Any],
    features: Features,
    classes: tuple[str, ...],
) -> Probs:
    """Returns the mean of a run's fold models, calibrated as for a submission, with the classes in this order."""
    total: Probs = np.zeros((1, 1))
    counts = models_by_class([model.spec for model in models], classes)
    for model, does_count in zip(models, counts, strict=True):
        probs = model.predict_prepared(prepared[model.spec], features).astype(np.float64)
        own = calibrate(probs[:, [model.spec.classes.index(name) for name in classes]])
        total = total + own * does_count
    return np.asarray(total / counts.sum(0))
