"""The metrics of competitions, computed with scikit-learn. METRICS lists them; extend.py adds others."""

from __future__ import annotations  # numpy appears in the types and is imported only where a score is computed

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from podium import PodiumError
from podium.task import answers_of, are_right, task_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Metric(NamedTuple):
    wants: str  # what submissions usually hold: "labels" or "probs"
    better: int  # 1: higher is better, -1: lower is better
    score: Callable[[NDArray[np.int64], NDArray[np.float64]], float]  # (targets, probs) -> score
    limit: float = 1.0  # the best possible score


def _of_labels(metric: Callable[..., float], **options: object) -> Callable[..., float]:
    """Scores the most probable class of every image, or the labels that are more probable than not."""
    return lambda targets, probs: float(metric(targets, answers_of(probs, task_of(targets)), **options))


def _accuracy() -> Metric:
    # The same as scikit-learn's accuracy_score, whose input checks take longer than the count.
    # Of several labels, all must be right.
    return Metric("labels", 1, lambda targets, probs: float(are_right(targets, probs).mean()))


def _macro_f1() -> Metric:
    from sklearn.metrics import f1_score

    return Metric("labels", 1, _of_labels(f1_score, average="macro", zero_division=0.0))


def _balanced_accuracy() -> Metric:
    import numpy as np
    from sklearn.metrics import recall_score

    # The mean recall of the classes that occur. The same as balanced_accuracy_score, which warns whenever a
    # predicted class does not occur.
    def score(targets: NDArray[np.int64], probs: NDArray[np.float64]) -> float:
        return float(
            recall_score(targets, probs.argmax(1), labels=np.unique(targets), average="macro", zero_division=0.0)
        )

    return Metric("labels", 1, score)


def _quadratic_kappa() -> Metric:
    import numpy as np
    from sklearn.metrics import cohen_kappa_score

    def score(targets: NDArray[np.int64], probs: NDArray[np.float64]) -> float:
        labels = np.arange(probs.shape[1])  # all classes: distances are those of the whole scale
        return float(cohen_kappa_score(targets, probs.argmax(1), labels=labels, weights="quadratic"))

    return Metric("labels", 1, score)


def _log_loss() -> Metric:
    import numpy as np
    from sklearn.metrics import log_loss

    def score(targets: NDArray[np.int64], probs: NDArray[np.float64]) -> float:
        if targets.ndim == 2:  # the mean over the columns of the loss of each
            return float(_binary_losses(targets, probs).mean())
        return float(log_loss(targets, probs / probs.sum(1, keepdims=True), labels=np.arange(probs.shape[1])))

    return Metric("probs", -1, score, limit=0.0)


def _roc_auc() -> Metric:
    import numpy as np
    from sklearn.metrics import roc_auc_score

    def score(targets: NDArray[np.int64], probs: NDArray[np.float64]) -> float:
        """One class against the rest, averaged over the classes that occur; of two classes, the second."""
        if targets.ndim == 2:
            columns = [k for k, column in enumerate(targets.T) if 0 < column.sum() < len(column)]
            areas = [roc_auc_score(targets[:, k], probs[:, k]) for k in columns]
            return float(np.mean(areas)) if areas else float("nan")
        classes = [1] if probs.shape[1] == 2 else np.unique(targets)
        areas = [roc_auc_score(targets == k, probs[:, k]) for k in classes if 0 < (targets == k).sum() < len(targets)]
        return float(np.mean(areas)) if areas else float("nan")

    return Metric("probs", 1, score)


def _binary_losses(targets: NDArray[Any], probs: NDArray[Any]) -> NDArray[Any]:
    """Returns the log loss of each cell, of several labels."""
    import numpy as np

    smallest = np.finfo(np.float64).eps
    truth = np.where(targets > 0, probs.astype(np.float64), 1 - probs.astype(np.float64))
    losses: NDArray[Any] = -np.log(truth.clip(smallest))
    return losses


METRICS: dict[str, Callable[[], Metric]] = {
    "accuracy": _accuracy,
    "log_loss": _log_loss,
    "macro_f1": _macro_f1,
    "balanced_accuracy": _balanced_accuracy,
    "roc_auc": _roc_auc,
    "quadratic_kappa": _quadratic_kappa,
}


def evaluate(metric: str, targets: NDArray[np.int64], probs: NDArray[np.floating[Any]]) -> float:
    """Scores probabilities (a row per image, a column per class) against targets (see task.py)."""
    if metric not in METRICS:
        raise PodiumError(f"no metric '{metric}'; there are {', '.join(METRICS)}")
    return METRICS[metric]().score(targets, probs.astype("float64", copy=False))


def is_better_than_chance(targets: NDArray[np.int64], probs: NDArray[np.floating[Any]]) -> bool:
    """Compares predictions with the same prediction for every image: the shares of the classes.

    Accuracy or log loss must be better by two standard errors. Both are means over images, whatever the competition's
    metric, so they can be compared image by image.
    """
    import numpy as np

    if targets.ndim == 2:
        shares = targets.mean(0)
        if (targets == targets[:1]).all():
            return True  # all images have the same labels: nothing can be compared
    else:
        shares = np.bincount(targets, minlength=probs.shape[1]) / len(targets)
        if shares.max() == 1:
            return True  # all images are of one class: nothing can be compared
    constant = np.broadcast_to(shares, probs.shape)
    for metric in ("accuracy", "log_loss"):
        scores, chance = (score_per_image(metric, targets, predicted) for predicted in (probs, constant))
        gains = METRICS[metric]().better * (np.asarray(scores) - np.asarray(chance))
        if gains.mean() > 2 * gains.std() / len(gains) ** 0.5:
            return True
    return False


def score_per_image(
    metric: str, targets: NDArray[np.int64], probs: NDArray[np.floating[Any]]
) -> NDArray[np.float64] | None:
    """Returns the score of each image if the metric is a mean over images, else None."""
    import numpy as np

    if metric == "accuracy":
        return np.asarray(are_right(targets, probs), np.float64)
    if metric == "log_loss" and targets.ndim == 2:
        return np.asarray(_binary_losses(targets, probs).mean(1))
    if metric == "log_loss":
        scaled = probs.astype(np.float64) / probs.sum(1, keepdims=True)
        return np.asarray(-np.log(scaled[np.arange(len(targets)), targets].clip(np.finfo(np.float64).eps)))
    return None
