"""Which way to blend serves best, and what to expect of it on the test images, as far as held-out images can tell.

Reads what blend.py has gathered; submission.py says and writes what comes of it.

Every way is judged by nested cross-validation: fitted on all folds but one, scored on that one. A way that is better
than a simpler one by less than chance is not better, so the simplest within noise of the best is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from podium import PodiumError
from podium.metrics import METRICS, evaluate, score_per_image
from podium.submit.blend import SMALLEST, WAYS, Blend, HeldOut, Probs, Targets, fit, search, tempered, ways
from podium.terminal import progress_bar, table

FEWEST = 20  # held-out images, or groups of them, that weights are fitted to
FEW_ERRORS = 10  # and fewer tell nothing of how much groups matter
RESAMPLES, RESAMPLES_OF_SLOW = 1000, 200  # of the bootstrap; the second for metrics that are no mean over images
INTERVAL = (2.5, 97.5)  # percentiles
LABELS, LABELS_FOR_SLOW = 100, 10  # drawn for each test image, to reckon what a mean over folds adds
FEW = 5000  # test images that it is reckoned on


@dataclass(frozen=True)
class Judged:
    way: str
    score: float  # nested: of images that neither a model nor the weights have seen
    gain: float  # over equal weights; positive is better, whatever the metric
    between: tuple[float, float]  # where the gain lies, but for 5 % of chance


@dataclass(frozen=True)
class Verdict:
    blend: Blend  # fitted to all held-out images
    judged: tuple[Judged, ...]
    between: tuple[float, float]  # where a test set of so many images will score, but for 5 % of chance
    images: int
    log_loss: float  # nested
    folds_add: float = 0.0  # to the score: what the mean over folds is reckoned to, which no held-out image could tell

    @property
    def score(self) -> float:
        return next(each.score for each in self.judged if each.way == self.blend.way)

    def of_folds(self, metric: str, alone: Sequence[Sequence[Probs]]) -> "Verdict":
        """The same where test images are answered by the mean of each run's fold models, and held-out ones were by a
        single one. `alone` is what each model of each run says of some of the test images."""
        added = _added(self.blend, metric, alone, self.log_loss)
        low, high = (
            min(bound + added, 1.0) if METRICS[metric]().better > 0 else max(bound + added, 0.0)
            for bound in self.between
        )
        return replace(self, folds_add=added, between=(low, high))

    def table(self, metric: str) -> str:
        rows = [
            [each.way, f"{each.score:.5f}", f"{each.gain:+.5f}", f"{each.between[0]:+.5f} to {each.between[1]:+.5f}"]
            for each in self.judged
        ]
        return table(["way", metric, "gain", "95 % interval"], rows)


def choose_blend(seen: HeldOut, metric: str, tests: int, way: str | None = None) -> Verdict:
    """The way that is given, or else the simplest that is not worse than the best by more than chance; and what to
    expect of it on so many test images."""
    better, strangers = METRICS[metric]().better, len(np.unique(seen.groups))
    enough = strangers >= FEWEST and len(np.unique(seen.parts)) > 1
    if way and way != "equal" and not enough:
        what = f"{len(seen)} images, of {strangers} groups," if strangers < len(seen) else f"{len(seen)} images"
        raise PodiumError(f"weights cannot be fitted to {what} that all runs held out; use --blend equal")
    tried = ways(len(seen.probs), metric) if enough else WAYS[:1]
    if way:
        tried = tuple(each for each in WAYS if each in ("equal", way))
    with progress_bar(total=len(tried), desc="judging blends", unit="way") as progress:
        nested = {}
        for each in tried:
            nested[each] = _nested(each, seen, metric)
            progress.update()
    scores = {each: evaluate(metric, seen.targets, probs) for each, probs in nested.items()}
    best = max(tried, key=lambda each: better * scores[each])
    drawn = {each: better * _resampled(seen, probs, metric) for each, probs in nested.items()}
    chosen = way or next(each for each in tried if not _percentiles(drawn[best] - drawn[each])[0] > 0)
    gains = {each: better * (scores[each] - scores["equal"]) + 0.0 for each in tried}  # no -0.0
    between = {each: _percentiles(drawn[each] - drawn["equal"]) for each in tried}
    return Verdict(
        blend=fit(chosen, seen.probs, seen.targets, metric),
        judged=tuple(Judged(each, scores[each], gains[each], between[each]) for each in tried),
        between=_expected(seen, nested[chosen], metric, tests),
        images=len(seen),
        log_loss=_score("log_loss", seen.targets, nested[chosen]),
    )


def _nested(way: str, seen: HeldOut, metric: str) -> Probs:
    """What the way says of each part when it is fitted to the others."""
    answers = np.empty(seen.probs.shape[1:])
    for part in np.unique(seen.parts):
        scored = seen.parts == part
        blend = fit(way, seen.probs[:, ~scored], seen.targets[~scored], metric)
        answers[scored] = blend(seen.probs[:, scored])
    return answers


def _expected(seen: HeldOut, probs: Probs, metric: str, tests: int) -> tuple[float, float]:
    """Where the score of so many other images will be: those held out might have been others, and the test's are."""
    values, draws = score_per_image(metric, seen.targets, probs), np.random.default_rng(2)
    if metric == "accuracy" and values is not None:  # also where no answer is wrong, of which no resample would be
        alike = _alike(values, seen.groups)
        count, others = len(values) / alike, max(1, round(tests / alike))
        right = draws.beta(values.mean() * count + 0.5, (1 - values.mean()) * count + 0.5, RESAMPLES * 10)
        return _percentiles(draws.binomial(others, right) / others)
    if len(np.unique(seen.groups)) == 1:  # which tells nothing of another group
        return float("nan"), float("nan")
    return _percentiles(_resampled(seen, probs, metric, tests))


def _alike(values: NDArray[np.float64], groups: NDArray[np.int64]) -> float:
    """How many images of groups tell as little as one image of its own; 1 where groups do not matter."""
    sizes = np.bincount(groups)
    if min(values.sum(), (1 - values).sum()) < FEW_ERRORS:  # as if all of a group were right or wrong
        return float((sizes**2).sum() / sizes.sum())
    errors = values - values.mean()
    return max(1.0, float((np.bincount(groups, errors) ** 2).sum() / (errors**2).sum()))


def _resampled(seen: HeldOut, probs: Probs, metric: str, tests: int = 0) -> NDArray[np.float64]:
    """Scores of the bootstrap, on the same resamples for all probabilities; with `tests`, of so many images each."""
    draws, values = np.random.default_rng(1), score_per_image(metric, seen.targets, probs)
    order, sizes = seen.groups.argsort(kind="stable"), np.bincount(seen.groups)
    begins = sizes.cumsum() - sizes
    scores = []
    for _ in range(RESAMPLES if values is not None else RESAMPLES_OF_SLOW):
        groups = draws.integers(len(sizes), size=len(sizes))
        if tests:
            groups = draws.choice(groups, max(1, round(tests * len(sizes) / len(seen))))
        ends = sizes[groups].cumsum()
        sample = order[np.arange(ends[-1]) + np.repeat(begins[groups] + sizes[groups] - ends, sizes[groups])]
        scores.append(
            values[sample].mean() if values is not None else evaluate(metric, seen.targets[sample], probs[sample])
        )
    return np.array(scores)


def _added(blend: Blend, metric: str, alone: Sequence[Sequence[Probs]], log_loss: float) -> float:
    """What the mean of each run's models scores more than one of them, on labels drawn from what that mean says. It is
    made so sure of them that single models have the log loss there that they had on held-out images."""
    count = max(map(len, alone))
    if count == 1:
        return 0.0
    said = [[blend.of_run(number, each) for each in models] for number, models in enumerate(alone)]
    mean = blend.of_runs([np.mean(models, axis=0) for models in said])
    single = [blend.of_runs([models[k % len(models)] for models in said]) for k in range(count)]
    loss = -np.mean([np.log(each.clip(SMALLEST)) for each in single], axis=0)
    likely = tempered(mean, search(lambda heat: (float((tempered(mean, heat) * loss).sum(1).mean()) - log_loss) ** 2))
    upto, draws, gains = likely.cumsum(1), np.random.default_rng(3), []
    for _ in range(LABELS if score_per_image(metric, np.zeros(1, np.int64), mean[:1]) is not None else LABELS_FOR_SLOW):
        labels = (upto > draws.random((len(mean), 1)) * upto[:, -1:]).argmax(1)
        gains.append(_score(metric, labels, mean) - np.mean([_score(metric, labels, each) for each in single]))
    return float(np.nanmean(gains)) if np.isfinite(gains).any() else 0.0


def _score(metric: str, targets: Targets, probs: Probs) -> float:
    values = score_per_image(metric, targets, probs)
    return evaluate(metric, targets, probs) if values is None else float(values.mean())


def _percentiles(values: NDArray[np.float64]) -> tuple[float, float]:
    known = values[np.isfinite(values)]  # a resample may lack what a metric needs
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.percentile(known, INTERVAL)
    return float(low), float(high)
