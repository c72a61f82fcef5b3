"""The functions behind METRICS (metrics.py): arrays in, one number out; scikit-learn's wherever it has them.

Each says which targets (task.py) it takes: one label, several labels, or numbers. Writes nothing.
"""

from __future__ import annotations  # numpy appears in the types and is imported only where a score is computed

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from podium.tasks.task import Targets, are_right

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Scores = NDArray[np.float64]

WEIGHTED_RATES = ((0.0, 0.4, 2), (0.4, 1.0, 1))  # of true positives: from, to, and how much weighted_auc counts them
LEAST_PROB = 1e-15  # in kl_divergence, as on Kaggle
LOWEST_RATE = 0.8  # the true positive rate above which partial_auc_80 measures

# --- the score of each image -------------------------------------------------------------------------


def accuracy_of_images(targets: Targets, probs: Array) -> Scores:
    """One label: whether the most probable class is right. Several labels: whether all of them are."""
    return are_right(targets, probs).astype("float64")


def log_loss_of_images(targets: Targets, probs: Array) -> Scores:
    """One label: of the true class, or of all by their shares. Several labels: the mean, each a yes or no.

    Several targets: the mean over the columns' true classes.
    """
    import numpy as np

    least = np.finfo(np.float64).eps
    if targets.votes is not None:
        scaled = probs.astype(np.float64) / probs.sum(1, keepdims=True)
        return np.asarray(-(targets.votes * np.log(scaled.clip(least))).sum(1))
    if targets.task.sums_to_one:
        return np.asarray(-np.log(_true_probs(targets, probs).clip(least)))
    is_true = targets.values > 0
    if targets.columns:
        return np.asarray(-np.log(probs[is_true].reshape(len(targets), -1).clip(least)).mean(1))
    clipped = probs.astype(np.float64).clip(least, 1 - least)
    return np.asarray(-np.where(is_true, np.log(clipped), np.log1p(-clipped)).mean(1))


def weighted_log_loss_of_images(label: int, weight: float, present: float) -> Callable[[Targets, Array], Scores]:
    """Several labels: the weighted mean. One label (its number, as in a list) weighs more, and so do those present."""

    def score(targets: Targets, probs: Array) -> Scores:
        import numpy as np

        is_true, least = targets.values > 0, np.finfo(np.float64).eps
        weights = np.where(is_true, present, 1.0)
        weights[:, label] *= weight
        right = np.where(is_true, probs, 1 - probs.astype(np.float64)).clip(least)
        return np.asarray(-(weights * np.log(right)).sum(1) / weights.sum(1))

    return score


def _true_probs(targets: Targets, probs: Array) -> Scores:
    """Returns the probability of each image's class, of probabilities that are scaled to a sum of 1."""
    import numpy as np

    return np.asarray(probs[np.arange(len(targets)), targets.values].astype(np.float64) / probs.sum(1))


def kl_of_images(targets: Targets, probs: Array) -> Scores:
    """One label: how far the probabilities are from the shares of the classes, sum p log(p / q), as Kaggle has it.

    Without shares, the true class has all: the log loss.
    """
    import numpy as np

    shares = targets.truth(probs.shape[1]).astype(np.float64)
    scaled = (probs.astype(np.float64) / probs.sum(1, keepdims=True)).clip(LEAST_PROB, 1 - LEAST_PROB)
    logs = np.log(np.where(shares > 0, shares, 1.0)) - np.log(scaled)
    return np.asarray((shares * logs).sum(1))


def brier_of_images(targets: Targets, probs: Array) -> Scores:
    """The squared error: for the second of two classes, summed over more classes, the mean over several labels."""
    import numpy as np

    if not targets.task.sums_to_one:
        return np.asarray(((probs.astype(np.float64) - targets.values) ** 2).mean(1))
    scaled = probs.astype(np.float64) / probs.sum(1, keepdims=True)
    errors = (scaled - targets.truth(probs.shape[1])) ** 2
    return np.asarray(errors[:, 1] if probs.shape[1] == 2 else errors.sum(1))


def _places(targets: Targets, probs: Array) -> Array:
    """Returns the place of the true class among all, from 0; the first of classes with equal probabilities comes first.

    That is the order of argmax and of a stable sort. scikit-learn's top_k_accuracy_score puts the last class first.
    """
    import numpy as np

    true_probs = probs[np.arange(len(targets)), targets.values][:, None]
    is_earlier = np.arange(probs.shape[1]) < targets.values[:, None]
    return np.asarray(((probs > true_probs) | ((probs == true_probs) & is_earlier)).sum(1))


def top_k_of_images(k: int) -> Callable[[Targets, Array], Scores]:
    """One label: whether the true class is among the k most probable ones."""
    return lambda targets, probs: (_places(targets, probs) < k).astype("float64")


def map_at_k_of_images(k: int) -> Callable[[Targets, Array], Scores]:
    """One label: 1 / place of the true class, 0 if it is not among the k most probable ones."""

    def score(targets: Targets, probs: Array) -> Scores:
        import numpy as np

        places = _places(targets, probs)
        return np.where(places < k, 1 / (places + 1.0), 0.0)

    return score


# --- labels ------------------------------------------------------------------------------------------


def accuracy(targets: Targets, probs: Array) -> float:
    """One label, as scikit-learn's accuracy_score, whose checks take longer than the count. Several: all right."""
    return float(are_right(targets, probs).mean())


def f_score(beta: int, average: str) -> Callable[[Targets, Array], float]:
    """One label or several; `average` is macro, micro, weighted or, for several labels only, samples.

    As scikit-learn's fbeta_score, whose checks take longer than the counts of a thousand resamples. With one label,
    only classes that are true or predicted somewhere count.
    """

    def score(targets: Targets, probs: Array) -> float:
        import numpy as np

        right, predicted, true = _counts(targets, probs, of_images=average == "samples")
        if average == "micro":
            right, predicted, true = (counts.sum(keepdims=True) for counts in (right, predicted, true))
        possible = beta**2 * true + predicted
        scores = (1 + beta**2) * right / np.maximum(possible, 1)
        if targets.task.sums_to_one:
            scores, true = scores[possible > 0], true[possible > 0]
        if average == "weighted":
            return float(np.average(scores, weights=true)) if true.any() else 0.0
        return float(scores.mean())

    return score


def _counts(targets: Targets, probs: Array, of_images: bool = False) -> tuple[Array, Array, Array]:
    """Returns for each class (or each image) how many of its predictions are right, how many it has, and how many true.

    One label or several.
    """
    import numpy as np

    truth, predicted = targets.values, targets.answers(probs)
    if not targets.task.sums_to_one:
        axis, truth, predicted = int(of_images), truth > 0, predicted > 0
        return (truth & predicted).sum(axis), predicted.sum(axis), truth.sum(axis)
    kinds = truth[truth == predicted], predicted, truth
    right, predicted, true = (np.bincount(classes, minlength=probs.shape[1]) for classes in kinds)
    return right, predicted, true


def balanced_accuracy(targets: Targets, probs: Array) -> float:
    """One label: the mean recall of the classes that occur."""
    right, _, true = _counts(targets, probs)
    return float((right[true > 0] / true[true > 0]).mean())


def mean_recall(weights: tuple[float, ...] = ()) -> Callable[[Targets, Array], float]:
    """Several targets: the mean over the columns of the mean recall of the classes that occur; `weights` weigh them."""

    def score(targets: Targets, probs: Array) -> float:
        import numpy as np

        recalls = []
        for part in targets.parts(probs.shape[1]):
            truth, predicted = targets.values[:, part].argmax(1), probs[:, part].argmax(1)
            counts, right = np.bincount(truth), np.bincount(truth[truth == predicted], minlength=truth.max() + 1)
            recalls.append((right[counts > 0] / counts[counts > 0]).mean())
        return float(np.average(recalls, weights=weights if len(weights) == len(recalls) else None))

    return score


def quadratic_kappa(targets: Targets, probs: Array) -> float:
    """One label; not a number if all images have one class, and all get it."""
    import numpy as np

    predicted, truth, count = probs.argmax(1), targets.values, probs.shape[1]
    if (predicted == truth).all() and (truth == truth[:1]).all():
        return float("nan")
    labels = np.arange(count)  # all classes: distances are those of the whole scale
    table = np.bincount(truth * count + predicted, minlength=count**2).reshape(count, count)
    expected = np.outer(table.sum(0), table.sum(1)) / len(truth)
    distances = (labels[:, None] - labels) ** 2
    return float(1 - (distances * table).sum() / (distances * expected).sum())


def mcc(targets: Targets, probs: Array) -> float:
    """One label; 0 if all images have one class, or all get one."""
    import numpy as np

    right, predicted, true = (counts.astype(np.float64) for counts in _counts(targets, probs))
    count = len(targets)
    varied = (count**2 - predicted @ predicted) * (count**2 - true @ true)
    return float((right.sum() * count - true @ predicted) / np.sqrt(varied)) if varied else 0.0


def gap(targets: Targets, probs: Array) -> float:
    """One label: global average precision of the most probable classes of all images, the surest first.

    The mean over all images of the share of right answers among those that are at least as sure, 0 for a wrong answer.
    """
    import numpy as np

    order = (-probs.max(1)).argsort(kind="stable")
    is_right = are_right(targets, probs)[order]
    precision = is_right.cumsum() / np.arange(1, len(targets) + 1)
    return float((precision * is_right).sum() / len(targets))


# --- probabilities -----------------------------------------------------------------------------------


def log_loss(targets: Targets, probs: Array) -> float:
    """One label: as scikit-learn's log_loss, which makes six tables of images and classes. Several: their mean."""
    import numpy as np

    if not targets.task.sums_to_one or targets.votes is not None:
        return float(log_loss_of_images(targets, probs).mean())
    true_probs, least = _true_probs(targets, probs), np.finfo(np.float64).eps
    if not np.isfinite(true_probs).all():
        raise ValueError("probabilities must be finite")
    return float(-np.log(true_probs.clip(least, 1 - least)).mean())


def balanced_log_loss(targets: Targets, probs: Array) -> float:
    """One label: the mean over the classes that occur of their images' mean log loss."""
    import numpy as np

    losses, truth = log_loss_of_images(targets, probs), targets.values
    return _mean([float(losses[truth == number].mean()) for number in np.unique(truth)])


def probabilistic_f1(targets: Targets, probs: Array) -> float:
    """One label: F1 of probabilities in place of predictions, for the second of two classes, else the classes' mean."""
    scaled = probs / probs.sum(1, keepdims=True)
    scores = [
        float(2 * positive[is_positive].sum() / (positive.sum() + is_positive.sum()))
        for is_positive, positive in _columns(targets, scaled)
    ]
    return _mean(scores) if scores else 0.0


def roc_auc(targets: Targets, probs: Array) -> float:
    """One label or several: the mean over the columns that have both values.

    It counts pairs, because scikit-learn takes minutes for resamples of hundreds of labels.
    """
    import numpy as np

    if not np.isfinite(probs).all():
        raise ValueError("probabilities must be finite")
    return _mean([share_in_order(*column) for column in _columns(targets, probs) if not column[0].all()])


def share_in_order(is_positive: Array, scores: Array) -> float:
    """Returns how many of all pairs of a positive and a negative are in order; a tie counts half."""
    import numpy as np

    positive, negative = scores[is_positive], np.sort(scores[~is_positive])
    below = sum(int(negative.searchsorted(positive, side).sum()) for side in ("left", "right"))
    return below / (2 * len(positive) * len(negative))


def average_precision(targets: Targets, probs: Array) -> float:
    """One label or several: the mean over the columns that occur."""
    from sklearn.metrics import average_precision_score

    return _mean([average_precision_score(*column) for column in _columns(targets, probs)])


def partial_auc_80(targets: Targets, probs: Array) -> float:
    """One label or several: the area under the ROC curve and above the lowest rate, from 0 to 0.2; the columns' mean.

    scikit-learn measures left of a false positive rate. So positive and negative change places, as for ISIC 2024.
    """
    from sklearn.metrics import roc_auc_score

    width = 1 - LOWEST_RATE
    least = width**2 / 2  # what chance has there; scikit-learn calls it 0.5, and the full width 1
    scaled = [
        roc_auc_score(~is_positive, -scores, max_fpr=width)
        for is_positive, scores in _columns(targets, probs)
        if not is_positive.all()
    ]
    return _mean([least + (width - least) * (2 * share - 1) for share in scaled])


def weighted_auc(targets: Targets, probs: Array) -> float:
    """One label or several: the area under the ROC curve, of which the part up to a rate of 0.4 counts twice.

    As for ALASKA2: each part is measured from its lower rate to its upper one, and all is divided by the most possible.
    """
    from sklearn.metrics import roc_curve

    scores = []
    for is_positive, probability in _columns(targets, probs):
        if is_positive.all():
            continue
        false_rate, rate, _ = roc_curve(is_positive, probability, drop_intermediate=False)
        areas = [weight * _area_between(false_rate, rate, low, high) for low, high, weight in WEIGHTED_RATES]
        scores.append(sum(areas) / sum(weight * (high - low) for low, high, weight in WEIGHTED_RATES))
    return _mean(scores)


def _area_between(x: Array, y: Array, low: float, high: float) -> float:
    """Returns the area under a line, as far as it lies between two heights."""
    import numpy as np

    xs, ys = [x], [y]
    for height in (low, high):
        crosses = np.flatnonzero((y[:-1] < height) & (y[1:] > height))
        share = (height - y[crosses]) / (y[crosses + 1] - y[crosses])
        xs.append(x[crosses] + share * (x[crosses + 1] - x[crosses]))
        ys.append(np.full(len(crosses), height))
    points = np.concatenate(xs), np.concatenate(ys)
    order = np.lexsort(points[::-1])  # the line rises, so its points are in the order of both
    return float(np.trapezoid(points[1][order].clip(low, high) - low, points[0][order]))


def _columns(targets: Targets, probs: Array) -> Iterator[tuple[Array, Array]]:
    """Yields who is positive and the probabilities, for each column that has a positive.

    With one label, each class stands against the rest; if there are two, only the second.
    """
    import numpy as np

    truth = targets.values
    if not targets.task.sums_to_one:
        columns = [(truth[:, k] > 0, probs[:, k]) for k in range(probs.shape[1])]
    else:
        classes = [1] if probs.shape[1] == 2 else np.unique(truth)
        columns = [(truth == k, probs[:, k]) for k in classes]
    return (column for column in columns if column[0].any())


def _mean(scores: list[float]) -> float:
    import numpy as np

    return float(np.mean(scores)) if scores else float("nan")


# --- numbers -----------------------------------------------------------------------------------------


def _known(targets: Targets, numbers: Array) -> Iterator[tuple[Array, Array]]:
    """Yields the targets of each column and what was predicted for them, without unknown targets."""
    import numpy as np

    for truth, predicted in zip(targets.values.T, numbers.T, strict=True):
        is_known = ~np.isnan(truth)
        if is_known.any():
            yield truth[is_known], predicted[is_known]


def rmse(targets: Targets, numbers: Array) -> float:
    """Numbers: the root of the mean over all cells."""
    import numpy as np

    return float(np.sqrt(np.nanmean((targets.values - numbers) ** 2)))


def mcrmse(targets: Targets, numbers: Array) -> float:
    """Numbers: the mean of the columns' root mean squared errors."""
    from sklearn.metrics import root_mean_squared_error

    return _mean([float(root_mean_squared_error(*column)) for column in _known(targets, numbers)])


def mae(targets: Targets, numbers: Array) -> float:
    """Numbers: the mean over all cells."""
    import numpy as np

    return float(np.nanmean(np.abs(targets.values - numbers)))


def r2(targets: Targets, numbers: Array) -> float:
    """Numbers: the mean over the columns; not a number for a single image."""
    from sklearn.metrics import r2_score

    return _mean([float(r2_score(*column)) for column in _known(targets, numbers) if len(column[0]) > 1])


def spearman(targets: Targets, numbers: Array) -> float:
    """Numbers: the mean over the columns whose targets differ; 0 where all predictions are the same."""
    from scipy.stats import spearmanr

    return _mean(
        [
            float(spearmanr(truth, predicted).statistic) if predicted.min() < predicted.max() else 0.0
            for truth, predicted in _known(targets, numbers)
            if truth.min() < truth.max()
        ]
    )
