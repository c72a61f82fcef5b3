"""The metrics of competitions. METRICS lists them; extend.py adds others; metric_functions.py computes them."""

from __future__ import annotations  # numpy appears in the types and is imported only where a score is computed

from collections.abc import Callable
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from podium.basics.errors import PodiumError
from podium.tasks import metric_functions as functions
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, Targets, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LABEL_TASKS = frozenset({ONE_LABEL.name, SEVERAL_LABELS.name})
CLASS_TASKS = LABEL_TASKS | {SEVERAL_TARGETS.name}
WANTS = ("labels", "probs", "ranking", "numbers")

Score = Callable[[Targets, "NDArray[Any]"], float]  # (targets, probs or numbers) -> score
ScoreImages = Callable[[Targets, "NDArray[Any]"], "NDArray[np.float64]"]


class Metric(NamedTuple):
    wants: str  # what submissions usually hold: one of WANTS
    better: int  # 1: higher is better, -1: lower is better
    score: Score
    lowest: float = 0.0  # possible score
    highest: float = 1.0
    tasks: frozenset[str] = frozenset({ONE_LABEL.name})  # for which it is defined, of TASKS
    places: int = 1  # how many labels a ranking holds, the most probable one first

    @property
    def best(self) -> float:
        return self.highest if self.better > 0 else self.lowest

    def cut(self, score: float) -> float:
        """Returns the possible score that is nearest to an estimated one."""
        return min(max(score, self.lowest), self.highest)


def _f_score(beta: int, average: str) -> Callable[[], Metric]:
    tasks = LABEL_TASKS if average != "samples" else frozenset({SEVERAL_LABELS.name})
    return lambda: Metric("labels", 1, functions.f_score(beta, average), tasks=tasks)


def _of_ranking(score_images: ScoreImages, k: int) -> Callable[[], Metric]:
    return lambda: Metric("ranking", 1, lambda targets, probs: float(score_images(targets, probs).mean()), places=k)


def _of_weighted_labels(score_images: ScoreImages) -> Callable[[], Metric]:
    def score(targets: Targets, probs: NDArray[Any]) -> float:
        return float(score_images(targets, probs).mean())

    return lambda: Metric("probs", -1, score, 0.0, inf, frozenset({SEVERAL_LABELS.name}))


def _of_columns(score: Score) -> Callable[[], Metric]:
    return lambda: Metric("labels", 1, score, tasks=frozenset({SEVERAL_TARGETS.name}))


def _brier(targets: Targets, probs: NDArray[Any]) -> float:
    return float(functions.brier_of_images(targets, probs).mean())


def _kl_divergence(targets: Targets, probs: NDArray[Any]) -> float:
    return float(functions.kl_of_images(targets, probs).mean())


def _of_numbers(better: int, score: Score, lowest: float, highest: float) -> Callable[[], Metric]:
    return lambda: Metric("numbers", better, score, lowest, highest, frozenset({NUMBERS.name}))


# The metrics that are a mean over images: their scores of each image.
_OF_IMAGES: dict[str, ScoreImages] = {
    "accuracy": functions.accuracy_of_images,
    "log_loss": functions.log_loss_of_images,
    "brier": functions.brier_of_images,
    "kl_divergence": functions.kl_of_images,
    "fracture_log_loss": functions.weighted_log_loss_of_images(-1, 7.0, 2.0),
    "hemorrhage_log_loss": functions.weighted_log_loss_of_images(0, 2.0, 1.0),
    **{f"top_{k}_accuracy": functions.top_k_of_images(k) for k in (3, 5)},
    **{f"map_at_{k}": functions.map_at_k_of_images(k) for k in (3, 5, 10, 12, 20)},
}

METRICS: dict[str, Callable[[], Metric]] = {
    "accuracy": lambda: Metric("labels", 1, functions.accuracy, tasks=CLASS_TASKS),
    "log_loss": lambda: Metric("probs", -1, functions.log_loss, 0.0, inf, CLASS_TASKS),
    "macro_f1": _f_score(1, "macro"),
    "balanced_accuracy": lambda: Metric("labels", 1, functions.balanced_accuracy),
    "roc_auc": lambda: Metric("probs", 1, functions.roc_auc, tasks=LABEL_TASKS),
    "quadratic_kappa": lambda: Metric("labels", 1, functions.quadratic_kappa, -1.0),
    **{f"top_{k}_accuracy": _of_ranking(_OF_IMAGES[f"top_{k}_accuracy"], k) for k in (3, 5)},
    **{f"map_at_{k}": _of_ranking(_OF_IMAGES[f"map_at_{k}"], k) for k in (3, 5, 10, 12, 20)},
    "brier": lambda: Metric("probs", -1, _brier, 0.0, 2.0, LABEL_TASKS),
    "kl_divergence": lambda: Metric("probs", -1, _kl_divergence, 0.0, inf),
    "micro_f1": _f_score(1, "micro"),
    "weighted_f1": _f_score(1, "weighted"),
    "samples_f1": _f_score(1, "samples"),
    "macro_f2": _f_score(2, "macro"),
    "micro_f2": _f_score(2, "micro"),
    "samples_f2": _f_score(2, "samples"),
    "mcc": lambda: Metric("labels", 1, functions.mcc, -1.0),
    "gap": lambda: Metric("labels", 1, functions.gap),
    "balanced_log_loss": lambda: Metric("probs", -1, functions.balanced_log_loss, 0.0, inf),
    # of RSNA: the last label, patient_overall, weighs 7, and labels that are there 2; the first label, any, weighs 2
    **{name: _of_weighted_labels(_OF_IMAGES[name]) for name in ("fracture_log_loss", "hemorrhage_log_loss")},
    "probabilistic_f1": lambda: Metric("probs", 1, functions.probabilistic_f1),
    "average_precision": lambda: Metric("probs", 1, functions.average_precision, tasks=LABEL_TASKS),
    "partial_auc_80": lambda: Metric("probs", 1, functions.partial_auc_80, 0.0, 1 - functions.LOWEST_RATE, LABEL_TASKS),
    "weighted_auc": lambda: Metric("probs", 1, functions.weighted_auc, tasks=LABEL_TASKS),
    "mean_recall": _of_columns(functions.mean_recall()),
    "mean_recall_211": _of_columns(functions.mean_recall((2, 1, 1))),  # the first of three columns counts twice
    "rmse": _of_numbers(-1, functions.rmse, 0.0, inf),
    "mcrmse": _of_numbers(-1, functions.mcrmse, 0.0, inf),
    "mae": _of_numbers(-1, functions.mae, 0.0, inf),
    "r2": _of_numbers(1, functions.r2, -inf, 1.0),
    "spearman": _of_numbers(1, functions.spearman, -1.0, 1.0),
}
OF_LOGARITHMS = ("log_loss", "kl_divergence")  # training minimises them, and a sure mistake costs without end
BUILT_IN = frozenset(METRICS)  # the others are the user's


def metrics_of(task: str) -> list[str]:
    """Returns the metrics that are defined for this task."""
    return [name for name, make in METRICS.items() if task in make().tasks]


def evaluate(metric: str, targets: Targets, probs: NDArray[np.floating[Any]]) -> float:
    """Scores probabilities (a row per image, a column per class), or numbers, against the targets."""
    if metric not in METRICS:
        raise PodiumError(f"no metric '{metric}'; there are {', '.join(METRICS)}")
    built = METRICS[metric]()
    task = targets.task
    if task.name not in built.tasks:
        raise PodiumError(f"{metric} is not defined for {task.words}; choose one of {', '.join(metrics_of(task.name))}")
    return built.score(targets, probs.astype("float64", copy=False))


def score_per_image(metric: str, targets: Targets, probs: NDArray[np.floating[Any]]) -> NDArray[np.float64] | None:
    """Returns the score of each image if the metric is a mean over images, else None."""
    return _OF_IMAGES[metric](targets, probs) if metric in _OF_IMAGES else None


def calibrates(metric: str, task: Task) -> bool:
    """Returns whether blends and `compete` calibrate what this metric scores; it is scored as predicted elsewhere."""
    return task.sums_to_one and METRICS[metric]().wants == "probs"


def name_in_compete(metric: str, task: Task) -> str:
    """Returns how tables of members call the metric."""
    return f"{metric}, calibrated" if calibrates(metric, task) else metric


def score_of(metric: str, error: float) -> float:
    """Returns the score that is so far from the best possible one."""
    known = METRICS[metric]()
    return (known.best if isfinite(known.best) else 0.0) - known.better * error


def error_of(metric: str, score: float) -> float:
    """Returns how far a score is from the best possible one; lower is better for every metric."""
    known = METRICS[metric]()
    best = known.best if isfinite(known.best) else 0.0
    return max(0.0, known.better * (best - score))
