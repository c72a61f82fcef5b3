"""The metrics of competitions. METRICS lists them; extend.py adds others; metric_functions.py computes them."""

from __future__ import annotations  # numpy appears in the types and is imported only where a score is computed

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from podium import PodiumError
from podium import metric_functions as functions
from podium.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, TASKS, task_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OF_LABELS = frozenset({ONE_LABEL.name, SEVERAL_LABELS.name})
OF_CLASSES = OF_LABELS | {SEVERAL_TARGETS.name}
WANTS = ("labels", "probs", "ranking", "numbers")

Score = Callable[["NDArray[Any]", "NDArray[Any]"], float]  # (targets, probs or numbers) -> score
ScoreImages = Callable[["NDArray[Any]", "NDArray[Any]"], "NDArray[np.float64]"]


class Metric(NamedTuple):
    wants: str  # what submissions usually hold: one of WANTS
    better: int  # 1: higher is better, -1: lower is better
    score: Score
    limit: float = 1.0  # the best possible score
    tasks: frozenset[str] = frozenset({ONE_LABEL.name})  # for which it is defined, of TASKS
    places: int = 1  # how many labels a ranking holds, the most probable one first


def _f_score(beta: int, average: str) -> Callable[[], Metric]:
    tasks = OF_LABELS if average != "samples" else frozenset({SEVERAL_LABELS.name})
    return lambda: Metric("labels", 1, functions.f_score(beta, average), tasks=tasks)


def _of_ranking(score_images: ScoreImages, k: int) -> Callable[[], Metric]:
    return lambda: Metric("ranking", 1, lambda targets, probs: float(score_images(targets, probs).mean()), places=k)


def _of_columns(score: Score) -> Callable[[], Metric]:
    return lambda: Metric("labels", 1, score, tasks=frozenset({SEVERAL_TARGETS.name}))


def _brier(targets: NDArray[Any], probs: NDArray[Any]) -> float:
    return float(functions.brier_of_images(targets, probs).mean())


def _of_numbers(better: int, score: Score, limit: float) -> Callable[[], Metric]:
    return lambda: Metric("numbers", better, score, limit, frozenset({NUMBERS.name}))


# The metrics that are a mean over images: their scores of each image.
_OF_IMAGES: dict[str, ScoreImages] = {
    "accuracy": functions.accuracy_of_images,
    "log_loss": functions.log_loss_of_images,
    "brier": functions.brier_of_images,
    **{f"top_{k}_accuracy": functions.top_k_of_images(k) for k in (3, 5)},
    **{f"map_at_{k}": functions.map_at_k_of_images(k) for k in (3, 5, 10, 12, 20)},
}

METRICS: dict[str, Callable[[], Metric]] = {
    "accuracy": lambda: Metric("labels", 1, functions.accuracy, tasks=OF_CLASSES),
    "log_loss": lambda: Metric("probs", -1, functions.log_loss, 0.0, OF_CLASSES),
    "macro_f1": _f_score(1, "macro"),
    "balanced_accuracy": lambda: Metric("labels", 1, functions.balanced_accuracy),
    "roc_auc": lambda: Metric("probs", 1, functions.roc_auc, tasks=OF_LABELS),
    "quadratic_kappa": lambda: Metric("labels", 1, functions.quadratic_kappa),
    **{f"top_{k}_accuracy": _of_ranking(_OF_IMAGES[f"top_{k}_accuracy"], k) for k in (3, 5)},
    **{f"map_at_{k}": _of_ranking(_OF_IMAGES[f"map_at_{k}"], k) for k in (3, 5, 10, 12, 20)},
    "brier": lambda: Metric("probs", -1, _brier, 0.0, OF_LABELS),
    "micro_f1": _f_score(1, "micro"),
    "weighted_f1": _f_score(1, "weighted"),
    "samples_f1": _f_score(1, "samples"),
    "macro_f2": _f_score(2, "macro"),
    "micro_f2": _f_score(2, "micro"),
    "samples_f2": _f_score(2, "samples"),
    "mcc": lambda: Metric("labels", 1, functions.mcc),
    "gap": lambda: Metric("labels", 1, functions.gap),
    "balanced_log_loss": lambda: Metric("probs", -1, functions.balanced_log_loss, 0.0),
    "probabilistic_f1": lambda: Metric("probs", 1, functions.probabilistic_f1),
    "average_precision": lambda: Metric("probs", 1, functions.average_precision, tasks=OF_LABELS),
    "partial_auc_80": lambda: Metric("probs", 1, functions.partial_auc_80, 1 - functions.LOWEST_RATE, OF_LABELS),
    "mean_recall": _of_columns(functions.mean_recall()),
    "mean_recall_211": _of_columns(functions.mean_recall((2, 1, 1))),  # the first of three columns counts twice
    "rmse": _of_numbers(-1, functions.rmse, 0.0),
    "mcrmse": _of_numbers(-1, functions.mcrmse, 0.0),
    "mae": _of_numbers(-1, functions.mae, 0.0),
    "r2": _of_numbers(1, functions.r2, 1.0),
    "spearman": _of_numbers(1, functions.spearman, 1.0),
}


def metrics_of(task: str) -> list[str]:
    """Returns the metrics that are defined for this task."""
    return [name for name, make in METRICS.items() if task in make().tasks]


def evaluate(metric: str, targets: NDArray[Any], probs: NDArray[np.floating[Any]]) -> float:
    """Scores probabilities (a row per image, a column per class), or numbers, against the targets (see task.py)."""
    if metric not in METRICS:
        raise PodiumError(f"no metric '{metric}'; there are {', '.join(METRICS)}")
    built = METRICS[metric]()
    task = task_of(targets).name
    if task not in built.tasks:
        raise PodiumError(
            f"{metric} is not defined for {TASKS[task].words}; choose one of {', '.join(metrics_of(task))}"
        )
    return built.score(targets, probs.astype("float64", copy=False))


def is_better_than_chance(targets: NDArray[np.int64], probs: NDArray[np.floating[Any]]) -> bool:
    """Compares predictions with the same prediction for every image: the shares of the classes.

    Accuracy or log loss must be better by two standard errors. Both are means over images, whatever the competition's
    metric, so they can be compared image by image.
    """
    import numpy as np

    if task_of(targets) is NUMBERS:
        return _are_closer_than_mean(targets, probs)
    if targets.ndim == 2:
        shares = (targets > 0).mean(0)
        if np.isin(targets, targets[:1]).all() and (targets == targets[:1]).all():
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


def _are_closer_than_mean(targets: NDArray[Any], numbers: NDArray[np.floating[Any]]) -> bool:
    """Compares the squared errors with those of the mean, in units of each column's deviation."""
    import numpy as np

    deviations = np.nanstd(targets, 0)
    if not (deviations > 0).any():
        return True  # all images have the same numbers: nothing can be compared
    columns = deviations > 0
    errors, by_chance = (
        (targets - predicted)[:, columns] / deviations[columns] for predicted in (numbers, np.nanmean(targets, 0))
    )
    gains = np.nanmean(by_chance**2 - errors**2, axis=1)
    return bool(np.nanmean(gains) > 2 * np.nanstd(gains) / len(gains) ** 0.5)


def score_per_image(metric: str, targets: NDArray[Any], probs: NDArray[np.floating[Any]]) -> NDArray[np.float64] | None:
    """Returns the score of each image if the metric is a mean over images, else None."""
    return _OF_IMAGES[metric](targets, probs) if metric in _OF_IMAGES else None
