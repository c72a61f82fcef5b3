"""The metrics a competition can be judged by: scikit-learn's, under one name each."""

from __future__ import annotations  # numpy is named here and imported only where a score is computed

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Metric(NamedTuple):
    wants: str  # "labels" or "probs": what its submissions usually hold
    better: int  # 1: higher is better, -1: lower
    of: Callable[[NDArray[np.int64], NDArray[np.float64]], float]  # (targets, probs) -> score


def _labels(metric: Callable[..., float], **options: object) -> Callable[..., float]:
    return lambda targets, probs: float(metric(targets, probs.argmax(1), **options))


def _accuracy() -> Metric:
    # accuracy_score says the same, and takes longer to look at what it is given than to count.
    return Metric("labels", 1, lambda targets, probs: float((probs.argmax(1) == targets).mean()))


def _macro_f1() -> Metric:
    from sklearn.metrics import f1_score

    return Metric("labels", 1, _labels(f1_score, average="macro", zero_division=0.0))


def _balanced_accuracy() -> Metric:
    import numpy as np
    from sklearn.metrics import recall_score

    # The mean recall of the classes that occur; balanced_accuracy_score says the same, with a warning
    # for every predicted class that does not occur.
    def of(targets: NDArray[np.int64], probs: NDArray[np.float64]) -> float:
        return float(
            recall_score(targets, probs.argmax(1), labels=np.unique(targets), average="macro", zero_division=0.0)
        )

    return Metric("labels", 1, of)


def _quadratic_kappa() -> Metric:
    import numpy as np
    from sklearn.metrics import cohen_kappa_score

    def of(targets: NDArray[np.int64], probs: NDArray[np.float64]) -> float:
        labels = np.arange(probs.shape[1])  # all classes, so that distances are those of the whole scale
        return float(cohen_kappa_score(targets, probs.argmax(1), labels=labels, weights="quadratic"))

    return Metric("labels", 1, of)


def _log_loss() -> Metric:
    import numpy as np
    from sklearn.metrics import log_loss

    def of(targets: NDArray[np.int64], probs: NDArray[np.float64]) -> float:
        return float(log_loss(targets, probs / probs.sum(1, keepdims=True), labels=np.arange(probs.shape[1])))

    return Metric("probs", -1, of)


def _roc_auc() -> Metric:
    import numpy as np
    from sklearn.metrics import roc_auc_score

    def of(targets: NDArray[np.int64], probs: NDArray[np.float64]) -> float:
        """The mean over the classes that occur of one against the rest; of two classes, the second's."""
        classes = [1] if probs.shape[1] == 2 else np.unique(targets)
        ranked = [roc_auc_score(targets == k, probs[:, k]) for k in classes if 0 < (targets == k).sum() < len(targets)]
        return float(np.mean(ranked)) if ranked else float("nan")

    return Metric("probs", 1, of)


METRICS: dict[str, Callable[[], Metric]] = {
    "accuracy": _accuracy,
    "log_loss": _log_loss,
    "macro_f1": _macro_f1,
    "balanced_accuracy": _balanced_accuracy,
    "roc_auc": _roc_auc,
    "quadratic_kappa": _quadratic_kappa,
}


def evaluate(metric: str, targets: NDArray[np.int64], probs: NDArray[np.floating[Any]]) -> float:
    """The score of probabilities (one row an image, one column a class) against class indices."""
    return METRICS[metric]().of(targets, probs.astype("float64", copy=False))


def score_per_image(
    metric: str, targets: NDArray[np.int64], probs: NDArray[np.floating[Any]]
) -> NDArray[np.float64] | None:
    """What each image adds to the score, where that is a mean over images; else None."""
    import numpy as np

    if metric == "accuracy":
        return np.asarray(probs.argmax(1) == targets, np.float64)
    if metric == "log_loss":
        scaled = probs.astype(np.float64) / probs.sum(1, keepdims=True)
        return np.asarray(-np.log(scaled[np.arange(len(targets)), targets].clip(np.finfo(np.float64).eps)))
    return None
