"""Fits the numbers of a decision to held-out images; choose_decision.py scores it on others.

Every fit takes the probabilities [images, classes] and the targets. Writes nothing.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.blending.blend import Probs
from podium.blending.decision import (
    Numbers,
    clip_one_label,
    clip_several_labels,
    expected_grades,
    raise_odds,
    replace_unknown,
)
from podium.blending.shares_of_test import SHARES_KIND, fit_test_shares
from podium.tasks.metrics import METRICS, evaluate
from podium.tasks.task import HALF, Targets

SHRINKAGE = 20.0  # with so many images of its own, a class gets half of the change that was fitted
WEIGHT_STEPS = (1.0, 0.5, 0.25)  # of the logarithm of a weight
CUT_STEPS = (0.2, 0.1, 0.05, 0.02)  # of a grade
ROUNDS = 3  # over all classes or cut points, with the same step
MIN_POSITIVES = 5  # a label with fewer keeps its threshold
GRID = np.linspace(0.02, 0.98, 49)  # thresholds
ODDS_FACTORS = (1.0, 1.25, 1.5, 1.75, 2.0)  # 2: where a label that is there counts twice, and the others little
EPSILONS = (1e-7, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.02, 0.05)
LEAST_GAIN = 1e-9  # rounding is no gain
OF_COUNTS = ("accuracy", "micro_f1", "macro_f1", "weighted_f1", "balanced_accuracy", "mcc")

Confusion = NDArray[np.float64]  # [true class, predicted class]: images


def score_confusion(metric: str, confusion: Confusion) -> float:
    """Returns the same as `evaluate`, faster, for one label."""
    right, true, predicted = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    count = confusion.sum()
    if metric in OF_COUNTS:
        return score_counts(metric, right, true, predicted)
    distances = (np.arange(len(true))[:, None] - np.arange(len(true))) ** 2  # quadratic_kappa
    by_chance = (distances * np.outer(true, predicted)).sum() / count
    return float(1 - (distances * confusion).sum() / by_chance) if by_chance > 0 else 0.0


def score_counts(metric: str, right: Numbers, true: Numbers, predicted: Numbers) -> float:
    """Returns the score of one label by what each class counts: right answers, true ones and all that were given."""
    count = true.sum()
    if metric in ("macro_f1", "weighted_f1"):
        sizes = true + predicted
        scores = 2 * right[sizes > 0] / sizes[sizes > 0]
        return float(scores.mean() if metric == "macro_f1" else np.average(scores, weights=true[sizes > 0]))
    if metric == "balanced_accuracy":
        return float((right[true > 0] / true[true > 0]).mean())
    if metric == "mcc":
        spread = (count**2 - (true**2).sum()) * (count**2 - (predicted**2).sum())
        return float((right.sum() * count - true @ predicted) / np.sqrt(spread)) if spread > 0 else 0.0
    return float(right.sum() / count)  # accuracy, which is micro_f1 of one label


def _confusion(targets: Targets, predicted: NDArray[np.int64], classes: int) -> Confusion:
    return (
        np.bincount(targets.values * classes + predicted, minlength=classes**2).reshape(classes, classes).astype(float)
    )


def fit_class_weights(probs: Probs, targets: Targets, metric: str) -> Numbers:
    """Returns a weight for each class: a coordinate search on their logarithms, shrunk towards 0 for small classes.

    The search for balanced accuracy begins with 1 / share, which is best if the probabilities are calibrated.
    """
    classes = probs.shape[1]
    counts = targets.counts(classes)
    log_probs, log_weights = np.log(probs.clip(1e-12)), np.zeros(classes)
    if metric == "balanced_accuracy":
        log_weights = -np.log(counts.clip(1) / len(targets))
    for step in WEIGHT_STEPS:
        for _ in range(ROUNDS):
            before = log_weights.copy()
            for number in np.flatnonzero(counts):
                log_weights[number] = _best_weight(log_probs, log_weights, int(number), step, (targets, metric))
            if (before == log_weights).all():
                break
    occurs = counts > 0
    log_weights[occurs] -= log_weights[occurs].mean()  # only proportions matter
    log_weights[~occurs] = 0.0
    return np.exp(log_weights * counts / (counts + SHRINKAGE))


def _best_weight(log_probs: Probs, log_weights: Numbers, number: int, step: float, judge: tuple[Targets, str]) -> float:
    """Returns the best of three logarithms for this class: as it is, a step less, a step more."""
    targets, metric = judge
    others = log_probs + log_weights
    others[:, number] = -np.inf
    next_best, highest = others.argmax(1), others.max(1)

    def score(log_weight: float) -> float:
        own = log_probs[:, number] + log_weight
        predicted = np.where((own > highest) | ((own == highest) & (number < next_best)), number, next_best)
        return score_confusion(metric, _confusion(targets, predicted, len(log_weights)))

    return _best_of(score, float(log_weights[number]), step)


def _best_of(score: Callable[[float], float], current: float, step: float) -> float:
    best, best_score = current, score(current) + LEAST_GAIN
    for candidate in (current - step, current + step):
        if score(candidate) > best_score:
            best, best_score = candidate, score(candidate)
    return best


def fit_cut_points(probs: Probs, targets: Targets, metric: str) -> Numbers:
    """Returns the cut points between neighbouring grades, the better of two searches.

    One begins halfway between the grades, the other where each grade gets its share of the images.
    """
    grades, classes = expected_grades(probs), probs.shape[1]
    shares = targets.counts(classes).cumsum()[:-1] / len(targets)

    def score(cuts: Numbers) -> float:
        predicted = np.searchsorted(cuts, grades, side="right")
        return score_confusion(metric, _confusion(targets, predicted, classes))

    results = [_search_cuts(start, score) for start in (np.arange(classes - 1) + 0.5, np.quantile(grades, shares))]
    return max(results, key=score)


def _search_cuts(start: Numbers, score: Callable[[Numbers], float]) -> Numbers:
    cuts = start.astype(np.float64)

    def score_cut(number: int, cut: float) -> float:
        moved = cuts.copy()
        moved[number] = cut
        return score(moved) if (np.diff(moved) >= 0).all() else -np.inf  # cut points stay in order

    for step in CUT_STEPS:
        for _ in range(ROUNDS):
            for number in range(len(cuts)):
                cuts[number] = _best_of(partial(score_cut, number), float(cuts[number]), step)
    return cuts


def fit_thresholds(probs: Probs, targets: Targets, metric: str) -> Numbers:
    """Returns a threshold for each label. The F-scores of labels are independent for macro and weighted averages."""
    average, beta = metric.split("_f")[0], int(metric[-1])
    if average in ("macro", "weighted"):
        return np.array([best_threshold(*column, beta) for column in zip(probs.T, targets.values.T, strict=True)])
    return _fit_joint_thresholds(probs, targets.values > 0, average == "micro", beta)


def best_threshold(probs: Numbers, targets: NDArray[Any], beta: int) -> float:
    """Returns the threshold with the best F-score of one label, halfway between two probabilities."""
    positives = int((targets > 0).sum())
    if positives < MIN_POSITIVES:
        return HALF
    order = np.argsort(-probs, kind="stable")
    ordered, found = probs[order], (targets[order] > 0).cumsum()
    scores = (1 + beta**2) * found / (beta**2 * positives + np.arange(1, len(probs) + 1))
    scores[:-1][ordered[:-1] == ordered[1:]] = -1  # no threshold lies between equal probabilities
    last = int(scores.argmax())
    below = ordered[last + 1] if last + 1 < len(ordered) else 0.0
    return float(((ordered[last] + below) / 2).clip(1e-6, 1 - 1e-6))


def _fit_joint_thresholds(probs: Probs, is_true: NDArray[np.bool_], is_micro: bool, beta: int) -> Numbers:
    """Returns thresholds near the best shared one, found label by label; few positives keep a label near it."""
    true = is_true.sum(1)

    def score(found: NDArray[Any], predicted: NDArray[Any]) -> float:
        numbers = (found.sum(), predicted.sum(), true.sum()) if is_micro else (found, predicted, true)
        total = np.maximum(beta**2 * numbers[2] + numbers[1], 1)  # no label at all scores 0
        return float(np.mean((1 + beta**2) * numbers[0] / total))

    def score_shared(threshold: float) -> float:
        chosen = probs >= threshold
        return score((chosen & is_true).sum(1), chosen.sum(1))

    shared = max([HALF, *GRID.tolist()], key=score_shared)
    thresholds = np.full(probs.shape[1], shared)
    for number in np.flatnonzero(is_true.sum(0) >= MIN_POSITIVES):
        chosen = probs >= thresholds
        chosen[:, number] = False
        found, predicted = (chosen & is_true).sum(1), chosen.sum(1)
        own_probs, own_truth = probs[:, number], is_true[:, number]
        scores = [
            score(found + ((own_probs >= threshold) & own_truth), predicted + (own_probs >= threshold))
            for threshold in (shared, *GRID)
        ]
        fitted, positives = (shared, *GRID)[int(np.argmax(scores))], own_truth.sum()
        thresholds[number] += (fitted - shared) * positives / (positives + SHRINKAGE)
    return thresholds


def fit_unknown_threshold(
    probs: Probs, targets: Targets, metric: str, unknown: int, importance: Numbers | None = None
) -> Numbers:
    """Returns the probability of the class for unknown ones at which the score is best.

    `importance` weighs the images, where the metric has a sum over images or classes that it can weigh.
    """
    known = np.delete(probs, unknown, axis=1)
    if metric.startswith("map_at_"):
        score = _mean_of_places(probs, targets, known, unknown, METRICS[metric]().places, importance)
    else:
        score = _score_with_threshold(probs, targets, metric, unknown, importance)
    # Below a rounding error of the quantiles, so that no threshold equals a probability.
    candidates = np.unique(np.quantile(known.max(1), np.linspace(0, 1, 101))) * (1 - 1e-9)
    return np.array([max(candidates.tolist(), key=score)])


def importance_of_unknown(targets: Targets, unknown: int, share: float) -> Numbers | None:
    """Returns weights of the images with which those of the unknown class have this share; None if no weights do."""
    is_unknown = targets.values == unknown
    held_out = is_unknown.mean()
    return np.where(is_unknown, share / held_out, (1 - share) / (1 - held_out)) if 0 < held_out < 1 else None


def _mean_of_places(
    probs: Probs, targets: Targets, known: Probs, unknown: int, places: int, importance: Numbers | None
) -> Callable[[float], float]:
    """Returns the function from a threshold to the mean of 1 / place."""
    truth = targets.values
    is_unknown, true_probs = truth == unknown, probs[np.arange(len(truth)), truth]
    top = -np.sort(-known, axis=1)[:, :places]
    places_of_known = (known > true_probs[:, None]).sum(1)

    def score(threshold: float) -> float:
        place = np.where(is_unknown, (top > threshold).sum(1), places_of_known + (threshold > true_probs))
        return float(np.average(np.where(place < places, 1 / (place + 1.0), 0.0), weights=importance))

    return score


def _score_with_threshold(
    probs: Probs, targets: Targets, metric: str, unknown: int, importance: Numbers | None
) -> Callable[[float], float]:
    """Returns the function from a threshold to the score, higher if it is better."""
    if metric not in OF_COUNTS:  # nothing is known of it, so its images cannot be weighed
        better = METRICS[metric]().better
        return lambda threshold: better * evaluate(metric, targets, replace_unknown(probs, unknown, threshold))
    classes, truth, others = probs.shape[1], targets.values, probs.copy()
    others[:, unknown] = -np.inf
    best, highest = others.argmax(1), others.max(1)

    def count(numbers: NDArray[np.int64], weights: Numbers | None) -> Numbers:
        return np.bincount(numbers, weights, minlength=classes).astype(float)

    def score(threshold: float) -> float:
        predicted = np.where(highest > threshold, best, unknown)
        is_right = predicted == truth
        right = count(truth[is_right], None if importance is None else importance[is_right])
        return score_counts(metric, right, count(truth, importance), count(predicted, importance))

    return score


def fit_clip(probs: Probs, targets: Targets, metric: str) -> Numbers:
    """Returns the least probability that is written: the one with the best log loss."""
    clip = clip_one_label if targets.task.sums_to_one else clip_several_labels
    losses = [evaluate(metric, targets, clip(probs, np.array([epsilon]))) for epsilon in EPSILONS]
    return np.array([EPSILONS[int(np.argmin(losses))]])


def fit_raised_odds(probs: Probs, targets: Targets, metric: str) -> Numbers:
    """Returns the least probability that is written, and the factor of each label's odds: those with the best score."""
    numbers = np.concatenate([fit_clip(probs, targets, metric), np.ones(probs.shape[1])])

    def loss(label: int, factor: float) -> float:
        tried = numbers.copy()
        tried[1 + label] = factor
        return evaluate(metric, targets, raise_odds(probs, tried))

    for label in range(probs.shape[1]):
        numbers[1 + label] = min(ODDS_FACTORS, key=lambda factor: loss(label, factor))
    return numbers


def shares_of(probs: Probs, targets: Targets, metric: str) -> Numbers:
    """Returns the shares of the classes among these images, which stand for the card's where a quota is judged."""
    return np.asarray(targets.counts(probs.shape[1]) / len(targets))


def fit_range(numbers: Probs, targets: Targets, metric: str) -> Numbers:
    """Returns the lowest and the highest known number of each column."""
    return np.concatenate([np.nanmin(targets.values, 0), np.nanmax(targets.values, 0)]).astype(np.float64)


def fit_errors(numbers: Probs, targets: Targets, metric: str) -> Numbers:
    """Returns the range of each column, and the variance of its errors: none is 0."""
    variances = np.nanmean((numbers - targets.values) ** 2, 0)
    return np.concatenate([fit_range(numbers, targets, metric), variances.clip(max(variances.max() * 1e-9, 1e-18))])


FIT_NUMBERS: dict[str, Callable[[Probs, Targets, str], Numbers]] = {
    "class_weights": fit_class_weights,
    "thresholds": fit_thresholds,
    "cut_points": fit_cut_points,
    "clip_one_label": fit_clip,
    "clip_several_labels": fit_clip,
    "raised_odds": fit_raised_odds,
    "quotas": shares_of,
    "clip_numbers": fit_range,
    "sums": fit_errors,
    SHARES_KIND: fit_test_shares,
}
