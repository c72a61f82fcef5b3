"""Estimates what a blend will score on the test images, with a 95 % interval.

The score on held-out images estimates that on test images, with one difference: one fold model of a run predicts a
held-out image, and the mean of all its fold models predicts a test image. `add_fold_gain` adds what this mean gains.
`clip_to_reachable` keeps the interval among the scores that the predictions of the test images can have.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.blending.blend import Blend, Probs
from podium.blending.held_out import HeldOut
from podium.blending.own_decision import Undecided
from podium.blending.stack_inputs import TableRows
from podium.tasks.metrics import METRICS, evaluate, score_per_image
from podium.tasks.task import HALF, ONE_LABEL, Targets, are_right
from podium.tasks.temperature import MIN_PROB, apply_temperature, find_temperature

Scores = NDArray[np.float64]
Interval = tuple[float, float]

PERCENTILES = (2.5, 97.5)  # the bounds of an interval
MIN_OUTCOMES = 10  # wrong predictions, and correct ones: fewer do not show how much groups matter
# The slow metrics are not a mean over images.
RESAMPLES, SLOW_RESAMPLES = 1000, 200  # of the bootstrap
LABEL_DRAWS, SLOW_LABEL_DRAWS = 100, 10  # labels drawn for each test image, for the gain of the mean over folds
GAIN_SAMPLE = 5000  # test images that this gain is computed on


@dataclass(frozen=True)
class Estimate:
    score: float  # on held-out images that neither the models nor the weights have seen
    interval: Interval  # 95 %: where the score on the test images will be
    image_count: int  # held-out images
    loss: float  # the task's loss (task.py) on the same images, of the blended probabilities without a decision
    fold_gain: float = 0.0  # what the mean over folds adds to the score; the interval includes it, the score does not


def estimate_score(
    held_out: HeldOut, probs: Probs, metric: str, test_count: int, undecided: Probs | None = None
) -> Estimate:
    """Returns what to expect on `test_count` other images; `probs` are the blended ones of the held-out images.

    If a decision has changed them, `undecided` are those before it.
    """
    return Estimate(
        score=evaluate(metric, held_out.targets, probs),
        interval=_test_interval(held_out, probs, metric, test_count),
        image_count=len(held_out),
        loss=_mean_score(held_out.targets.task.loss, held_out.targets, probs if undecided is None else undecided),
    )


def _test_interval(held_out: HeldOut, probs: Probs, metric: str, test_count: int) -> Interval:
    """Returns where the test score will be: both the held-out images and the test images are random draws."""
    image_scores = score_per_image(metric, held_out.targets, probs)
    if image_scores is not None and metric.endswith("accuracy"):  # each image scores 0 or 1
        return _accuracy_interval(image_scores, held_out.groups, test_count)
    if len(np.unique(held_out.groups)) == 1:  # says nothing about other groups
        return float("nan"), float("nan")
    return percentile_interval(bootstrap_scores(held_out, probs, metric, test_count))


def _accuracy_interval(correct: Scores, groups: NDArray[np.int64], test_count: int) -> Interval:
    """Draws an accuracy from its posterior, then test images of this accuracy.

    Unlike the bootstrap, this also works if all predictions are correct: every resample would score 1.
    """
    rng, effect = np.random.default_rng(2), _design_effect(correct, groups)
    count, independent_tests = len(correct) / effect, max(1, round(test_count / effect))
    accuracy = rng.beta(correct.mean() * count + 0.5, (1 - correct.mean()) * count + 0.5, RESAMPLES * 10)
    return percentile_interval(rng.binomial(independent_tests, accuracy) / independent_tests)


def _design_effect(correct: Scores, groups: NDArray[np.int64]) -> float:
    """Returns how many images in groups tell as much as one independent image; 1 if groups do not matter."""
    sizes = np.bincount(groups)
    if min(correct.sum(), (1 - correct).sum()) < MIN_OUTCOMES:  # assumes that a group is all correct or all wrong
        return float((sizes**2).sum() / sizes.sum())
    deviations = correct - correct.mean()
    return max(1.0, float((np.bincount(groups, deviations) ** 2).sum() / (deviations**2).sum()))


class MembersOfGroups:
    """Which images each group has, to draw groups of them; the groups are numbered from 0."""

    def __init__(self, groups: NDArray[np.int64]) -> None:
        self.order, self.sizes = groups.argsort(kind="stable"), np.bincount(groups)
        self.starts = self.sizes.cumsum() - self.sizes

    def of(self, drawn: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns all images of the drawn groups, of one that is drawn twice twice."""
        sizes = self.sizes[drawn]
        ends = sizes.cumsum()
        # positions starts[group] to starts[group] + sizes[group] of `order`
        return np.asarray(self.order[np.arange(ends[-1]) + np.repeat(self.starts[drawn] + sizes - ends, sizes)])


def bootstrap_scores(held_out: HeldOut, probs: Probs, metric: str, test_count: int = 0) -> Scores:
    """Returns the scores of resampled groups of images; with `test_count`, of test sets drawn from these.

    Every call draws the same resamples, so the scores of two predictions can be compared one by one. If no held-out
    image is wrong, or the score is the best possible, resampling cannot show a mistake, so some images of the test sets
    are made wrong.
    """
    targets, rng = held_out.targets, np.random.default_rng(1)
    image_scores = score_per_image(metric, targets, probs)
    wrong_rng, wrong = np.random.default_rng(4), _just_wrong(targets, probs, metric) if test_count else None
    wrong_scores = None if wrong is None else score_per_image(metric, wrong, probs)
    members = MembersOfGroups(held_out.groups)
    sizes, scores = members.sizes, []
    for _ in range(SLOW_RESAMPLES if image_scores is None else RESAMPLES):
        groups = rng.integers(len(sizes), size=len(sizes))
        if test_count:
            groups = rng.choice(groups, max(1, round(test_count * len(sizes) / len(held_out))))
        sample = members.of(groups)
        right = np.ones(len(sample), bool) if wrong is None else ~_draw_wrong(wrong_rng, sizes, groups)
        scores.append(
            evaluate(metric, _choose_targets(right, targets, wrong, sample), probs[sample])
            if image_scores is None
            else _choose(right, image_scores, wrong_scores, sample).mean()
        )
    return np.array(scores)


def _just_wrong(targets: Targets, probs: Probs, metric: str) -> Targets | None:
    """Returns targets for which each prediction is wrong, but as nearly right as can be; None if mistakes show already.

    With one label, the most probable other class is true. With several, the least sure one is the other way.
    """
    if targets.task.has_columns or probs.shape[1] < 2 or targets.votes is not None:
        return None
    if not are_right(targets, probs).all() and evaluate(metric, targets, probs) != METRICS[metric]().best:
        return None
    if targets.task.sums_to_one:
        others = np.where(targets.are_true(probs.shape[1]), -np.inf, probs)
        return replace(targets, values=others.argmax(1))
    wrong, images = targets.values.copy(), np.arange(len(targets))
    least_sure = np.abs(probs - HALF).argmin(1)
    wrong[images, least_sure] = 1 - wrong[images, least_sure]
    return replace(targets, values=wrong)


def _draw_wrong(rng: np.random.Generator, sizes: NDArray[np.int64], groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Draws which images of these groups are wrong, from the posterior of `_accuracy_interval` without a mistake."""
    is_wrong = rng.random(len(groups)) < rng.beta(0.5, len(sizes) + 0.5)
    return np.repeat(is_wrong, sizes[groups])


def _choose(right: NDArray[np.bool_], values: Any, wrong_values: Any, sample: NDArray[np.int64]) -> Any:
    """Returns the values of the sample's images, and for images that are not right those for a wrong prediction."""
    if wrong_values is None:
        return values[sample]
    return np.where(right if values.ndim == 1 else right[:, None], values[sample], wrong_values[sample])


def _choose_targets(
    right: NDArray[np.bool_], targets: Targets, wrong: Targets | None, sample: NDArray[np.int64]
) -> Targets:
    if wrong is None:
        return targets[sample]
    return replace(targets, values=_choose(right, targets.values, wrong.values, sample))


def percentile_interval(scores: Scores) -> Interval:
    finite = scores[np.isfinite(scores)]  # a resample may lack a class that the metric needs
    if not len(finite):
        return float("nan"), float("nan")
    low, high = np.percentile(finite, PERCENTILES)
    return float(low), float(high)


def add_fold_gain(
    estimate: Estimate,
    blend: Blend,
    metric: str,
    fold_probs: Sequence[Sequence[NDArray[np.floating[Any]]]],
    features: TableRows | None = None,
    undecided: Undecided | None = None,
) -> Estimate:
    """Returns the estimate for the mean of each run's fold models.

    `fold_probs` holds, for each run, what each of its fold models predicts for the same test images, whose `features`
    a stack uses, and which a decision of the project's own knows as `undecided`.
    """
    models = FoldModels(blend, fold_probs, features, undecided)
    mean = models.decide(models.mean())
    best = best_score(metric, mean, Targets(ONE_LABEL, ONE_LABEL.answers(mean)))
    better = METRICS[metric]().better
    # The labels that the gain is computed on are drawn, and may be harder than the held-out images.
    most = max(0.0, better * (best - estimate.score))
    gain = better * min(better * _fold_gain(models, metric, estimate.loss), most) + 0.0
    low, high = (bound + gain for bound in estimate.interval)
    return clip_to_reachable(replace(estimate, fold_gain=gain, interval=(low, high)), metric, best)


def best_score(metric: str, probs: Probs, answers: Targets) -> float:
    """Returns the best score that predictions can have: that of images whose most probable answers are all true.

    The votes of experts may be divided just as the probabilities are.
    """
    image_scores = None if metric == "kl_divergence" else score_per_image(metric, answers, probs)
    return METRICS[metric]().best if image_scores is None else float(image_scores.mean())


def clip_to_reachable(estimate: Estimate, metric: str, best: float) -> Estimate:
    """Returns the estimate with an interval of possible scores: none is better than `best`, nor beyond the metric's."""
    known, (low, high) = METRICS[metric](), estimate.interval
    least, most = (low, high) if known.better > 0 else (high, low)
    if known.better * least > known.better * best:  # the whole interval lies beyond: the test images are less sure
        low, high = low + best - most, high + best - most
    elif known.better > 0:
        low, high = min(low, best), min(high, best)
    else:
        low, high = max(low, best), max(high, best)
    return replace(estimate, interval=(known.cut(low), known.cut(high)))


@dataclass(frozen=True)
class FoldModels:
    """What the fold models of each run predict for the same images: one table at a time is in memory as it is used."""

    blend: Blend
    fold_probs: Sequence[Sequence[NDArray[np.floating[Any]]]]  # [run][fold model], not calibrated
    features: TableRows | None
    undecided: Undecided | None

    def decide(self, probs: Probs) -> Probs:
        return self.blend.decide(probs, self.undecided)

    def mean(self) -> Probs:
        """Returns the blend of the means of each run's fold models."""
        runs = range(len(self.fold_probs))
        means = [mean_of([partial(self._calibrated, run, k) for k in range(len(self.fold_probs[run]))]) for run in runs]
        return self.blend.average(means, self.features)

    def singles(self) -> list[Callable[[], Probs]]:
        """Returns what computes the k-th single: the k-th fold model of each run. One with fewer models starts over."""
        return [partial(self._single, k) for k in range(max(map(len, self.fold_probs)))]

    def _single(self, k: int) -> Probs:
        runs = range(len(self.fold_probs))
        return self.blend.average([self._calibrated(run, k) for run in runs], self.features)

    def _calibrated(self, run: int, k: int) -> Probs:
        folds = self.fold_probs[run]
        return self.blend.calibrate(run, folds[k % len(folds)].astype(np.float64))


def mean_of(tables: Sequence[Callable[[], Probs]]) -> Probs:
    """Returns the mean of tables that are computed one after another, to the same bits as np.mean."""
    total = tables[0]().copy()
    for table in tables[1:]:
        total += table()
    total /= len(tables)
    return total


def _fold_gain(models: FoldModels, metric: str, log_loss: float) -> float:
    """Returns how much the score rises from single fold models to their mean.

    The test labels are unknown, so they are drawn from the mean's own probabilities.
    """
    singles = models.singles()
    if len(singles) == 1:
        return 0.0
    mean = models.mean()
    is_slow = score_per_image(metric, Targets(ONE_LABEL, np.zeros(1, np.int64)), mean[:1]) is None
    draws = _draw_labels(_label_probs(mean, singles, log_loss), SLOW_LABEL_DRAWS if is_slow else LABEL_DRAWS)

    def scores(probs: Probs) -> list[float]:
        decided = models.decide(probs)
        return [_mean_score(metric, labels, decided) for labels in draws]

    of_singles = zip(*(scores(single()) for single in singles), strict=True)  # a row for each draw
    gains = [score - np.mean(others) for score, others in zip(scores(mean), of_singles, strict=True)]
    return float(np.nanmean(gains)) if np.isfinite(gains).any() else 0.0


def _draw_labels(probs: Probs, count: int) -> list[Targets]:
    cumulative, rng = probs.cumsum(1), np.random.default_rng(3)
    drawn = ((cumulative > rng.random((len(probs), 1)) * cumulative[:, -1:]).argmax(1) for _ in range(count))
    return [Targets(ONE_LABEL, labels) for labels in drawn]


def _label_probs(mean: Probs, singles: Sequence[Callable[[], Probs]], log_loss: float) -> Probs:
    """Returns the probabilities that labels are drawn from: those of the mean, at a fitted temperature.

    At this temperature, single models have the same log loss on the drawn labels as on held-out images.
    """

    def log_probs(single: Callable[[], Probs]) -> Probs:
        probs = single().clip(MIN_PROB)
        return np.asarray(np.log(probs, out=probs))

    losses = mean_of([partial(log_probs, single) for single in singles])
    np.negative(losses, out=losses)

    def mismatch(temperature: float) -> float:
        expected_loss = float((apply_temperature(mean, temperature) * losses).sum(1).mean())
        return (expected_loss - log_loss) ** 2

    return apply_temperature(mean, find_temperature(mismatch))


def _mean_score(metric: str, targets: Targets, probs: Probs) -> float:
    """Returns the same as `evaluate`, faster for a metric that is a mean over images."""
    image_scores = score_per_image(metric, targets, probs)
    return evaluate(metric, targets, probs) if image_scores is None else float(image_scores.mean())
