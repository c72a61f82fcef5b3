"""The numbers that a run's report shows, computed from its out-of-fold predictions.

Reads runs/<slug>/<run>/fold<k>/oof.npz.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.competition.load import Competition
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import evaluate
from podium.tasks.task import ONE_LABEL, Targets, joined
from podium.tasks.temperature import apply_temperature, fit_temperature, random_part

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BINS = 15  # of the reliability diagram, with equally many images each
MOST_FITTED, MIN_FITTED = 10_000_000, 1000  # probabilities, and images, that a temperature is fitted to
MIN_BIN = 20  # images; with fewer images in all, there are fewer bins


@dataclass(frozen=True, eq=False)
class HeldOutImages:
    """What each image's model, which has not seen the image, predicts for it."""

    ids: NDArray[np.str_]
    folds: Ints
    targets: Ints
    probs: Floats  # [images, classes]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def predicted(self) -> Ints:
        predicted: Ints = self.probs.argmax(1)
        return predicted

    @cached_property
    def confidence(self) -> Floats:
        """Returns the probability of the predicted class."""
        confidence: Floats = self.probs.max(1)
        return confidence

    @property
    def truth(self) -> Targets:
        """The targets as metrics take them."""
        return Targets(ONE_LABEL, self.targets)

    @cached_property
    def target_probs(self) -> Floats:
        target_probs: Floats = self.probs[np.arange(len(self)), self.targets]
        return target_probs

    @cached_property
    def is_wrong(self) -> NDArray[np.bool_]:
        is_wrong: NDArray[np.bool_] = self.predicted != self.targets
        return is_wrong


def read_held_out(run: Run, competition: Competition) -> HeldOutImages:
    """Returns the predictions of all finished folds, with the labels of today, as corrected.

    Images without a label today are left out. A run of other classes than the competition's keeps its own, and the
    labels that it was trained with.
    """
    labels = competition.label_of
    classes = run.out_of_fold(run.finished()[0], competition.classes).classes
    parts = {fold: run.out_of_fold(fold).in_order_of(classes).with_labels(labels) for fold in run.finished()}
    folds = np.concatenate([np.full(len(part.id), fold) for fold, part in parts.items()])
    ids, probs = (np.concatenate([getattr(part, name) for part in parts.values()]) for name in ("id", "probs"))
    targets = joined([part.target for part in parts.values()]).values
    return HeldOutImages(ids.astype(str), folds, targets, probs.astype(np.float64), classes)


# --- classes -----------------------------------------------------------------------------------------


def most_confused(images: HeldOutImages, most: int) -> Ints:
    """Returns the numbers of the classes that take part in the most mistakes, as labels or as predictions."""
    count, wrong = len(images.classes), images.is_wrong
    mistakes = sum(np.bincount(numbers[wrong], minlength=count) for numbers in (images.targets, images.predicted))
    return np.sort(np.argsort(-np.asarray(mistakes), kind="stable")[:most])


def confusion_matrix(images: HeldOutImages, shown: Ints | None = None) -> Ints:
    """Returns how many images of each class (row) are predicted to be of each class (column).

    `shown` are the classes of the table (default: all); a table of ten thousand classes would take a gigabyte.
    """
    shown = np.arange(len(images.classes)) if shown is None else shown
    place, count = np.full(len(images.classes), -1), len(shown)
    place[shown] = np.arange(count)
    rows, columns = place[images.targets], place[images.predicted]
    is_shown = (rows >= 0) & (columns >= 0)
    return np.bincount(rows[is_shown] * count + columns[is_shown], minlength=count**2).reshape(count, count)


def order_by_confusion(matrix: Ints) -> list[int]:
    """Returns the classes in an order in which those that are often confused are neighbours.

    Classes are clustered by the share of their images that is mistaken for the other class, in either direction.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(matrix) < 3:
        return list(range(len(matrix)))
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    distance = 1 - np.minimum((shares + shares.T) / 2, 1)
    np.fill_diagonal(distance, 0)
    return [int(place) for place in leaves_list(linkage(squareform(distance), "average", optimal_ordering=True))]


def class_table(images: HeldOutImages, shown: Ints) -> list[dict[str, Any]]:
    """Returns precision, recall, F1 and support of the shown classes; None where they are undefined."""
    count, is_right = len(images.classes), ~images.is_wrong
    counted = (images.targets[is_right], images.targets, images.predicted)
    rights, supports, predictions = (np.bincount(numbers, minlength=count).tolist() for numbers in counted)
    mistaken_for = _most_often_mistaken_for(images)
    rows = []
    for number in shown.tolist():
        right, support, predicted = rights[number], supports[number], predictions[number]
        rows.append(
            {
                "name": images.classes[number],
                "support": support,
                "precision": right / predicted if predicted else None,
                "recall": right / support if support else None,
                "f1": 2 * right / (support + predicted) if support + predicted else None,
                "mistaken_for": mistaken_for.get(number, ""),
            }
        )
    return rows


def _most_often_mistaken_for(images: HeldOutImages) -> dict[int, str]:
    """Returns for each class with a mistake the class that most of its mistakes name; if two are equal, the first."""
    cells = images.targets[images.is_wrong] * len(images.classes) + images.predicted[images.is_wrong]
    cells, counts = np.unique(cells, return_counts=True)
    targets, predicted = np.divmod(cells, len(images.classes))
    rarest_first = np.lexsort((-predicted, counts))
    pairs = zip(targets[rarest_first].tolist(), predicted[rarest_first].tolist(), strict=True)
    return {target: images.classes[other] for target, other in pairs}


# --- calibration -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reliability:
    """How often predictions of a confidence are correct."""

    confidence: list[float]  # mean of each bin
    accuracy: list[float]
    count: list[int]
    error: float  # expected calibration error: mean distance of confidence and accuracy
    log_loss: float
    temperature: float = 1.0  # mean over the folds


def reliability(probs: Floats, targets: Ints) -> Reliability:
    """Sorts the images by confidence into bins of equally many images."""
    confidence, is_right = probs.max(1), probs.argmax(1) == targets
    order = confidence.argsort(kind="stable")
    bins = np.array_split(order, max(1, min(BINS, len(order) // MIN_BIN)))
    means = [float(confidence[part].mean()) for part in bins]
    accuracies = [float(is_right[part].mean()) for part in bins]
    counts = [len(part) for part in bins]
    error = sum(n * abs(mean - accuracy) for n, mean, accuracy in zip(counts, means, accuracies, strict=True))
    return Reliability(
        means, accuracies, counts, error / len(order), evaluate("log_loss", Targets(ONE_LABEL, targets), probs)
    )


def calibrated_probs(images: HeldOutImages) -> tuple[Floats, float]:
    """Returns the probabilities after temperature scaling, and the mean temperature.

    The temperature of a fold is fitted to the other folds, so that the diagram shows what to expect of new images. With
    one fold, two halves take the place of the folds. A random part of the images is enough if they have many classes.
    """
    most = max(MIN_FITTED, MOST_FITTED // len(images.classes))
    parts = images.folds if len(set(images.folds.tolist())) > 1 else np.arange(len(images)) % 2
    probs, temperatures = images.probs.copy(), []
    for part in sorted(set(parts.tolist())):
        others, own = parts != part, parts == part
        if not others.any():
            continue
        fitted = random_part(np.flatnonzero(others), most)
        temperature = fit_temperature(images.probs[fitted], images.targets[fitted])
        probs[own] = apply_temperature(images.probs[own], temperature)
        temperatures.append(temperature)
    return probs, float(np.mean(temperatures)) if temperatures else 1.0


# --- scores ------------------------------------------------------------------------------------------


def fold_scores(images: HeldOutImages, metric: str) -> dict[int, float]:
    """Returns the score of each fold."""
    folds = sorted(set(images.folds.tolist()))
    return {
        fold: evaluate(metric, images.truth[images.folds == fold], images.probs[images.folds == fold]) for fold in folds
    }
