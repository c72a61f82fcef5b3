"""How much each run counts in their mean: fitted to what they say of images they have not seen, and judged honestly.

    podium submit --runs A B

Reads runs/<slug>/*/fold<k>/oof.npz; submission.py writes what comes of it.

Every way to blend is judged by nested cross-validation: fitted on all folds but one, scored on that one. A way that is
better than a simpler one by less than chance is not better, so the simplest within noise of the best is taken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from podium import PodiumError
from podium.console import bar, table
from podium.metrics import METRICS, each_image, evaluate
from podium.runs import Run

Probs = NDArray[np.float64]  # [runs, images, classes], or [images, classes]
Targets = NDArray[np.int64]

FEWEST = 20  # held-out images that weights are fitted to
PARTS = 5  # of the held-out images, where they are of one fold
BAGS, STEPS = 10, 10  # of the greedy way: their mean has weights as fine as a hundredth
RESAMPLES, RESAMPLES_OF_SLOW = 1000, 200  # of the bootstrap; the second for metrics that are no mean over images
INTERVAL = (2.5, 97.5)  # percentiles
LABELS, LABELS_FOR_SLOW = 100, 10  # drawn for each test image, to reckon what a mean over folds adds
FEW = 5000  # test images that it is reckoned on
SMALLEST = 1e-12  # probability: of nothing there is no logarithm
COOLEST, HOTTEST = 0.2, 5.0  # temperatures


@dataclass(frozen=True)
class HeldOut:
    """What several runs say of the same images, each answered by models that have not seen it."""

    probs: Probs
    targets: Targets
    parts: NDArray[np.int64]  # images of one part are scored by what the others fitted
    groups: NDArray[np.int64]  # images of one group are alike: chance draws all of them, or none

    def __len__(self) -> int:
        return len(self.targets)


def held_out(runs: Sequence[Run], classes: tuple[str, ...], groups: Mapping[str, str] | None = None) -> HeldOut:
    """The images that all runs have held out, in the folds of the first; each in the group it is said to be of."""
    found: list[dict[str, tuple[NDArray[np.float32], int, int]]] = []
    for run in runs:
        said = {}
        for fold in run.finished():
            oof = run.out_of_fold(fold).of(classes)
            said.update(
                {
                    str(name): (probs, int(target), fold)
                    for name, probs, target in zip(oof.id, oof.probs, oof.target, strict=True)
                }
            )
        found.append(said)
    shared = [name for name in found[0] if all(name in said for said in found)]
    parts = np.array([found[0][name][2] for name in shared], np.int64)
    kin = np.unique([(groups or {}).get(name, name) for name in shared], return_inverse=True)[1]
    if len(set(parts.tolist())) == 1:
        parts = np.random.default_rng(0).permutation(kin.max() + 1)[kin] % PARTS
    return HeldOut(
        probs=np.array([[said[name][0] for name in shared] for said in found], np.float64),
        targets=np.array([found[0][name][1] for name in shared], np.int64),
        parts=parts,
        groups=kin,
    )


# --- the ways --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blend:
    """Probabilities of several runs to those of their mean."""

    way: str
    weights: tuple[float, ...]  # of each run; their sum is 1
    temperatures: tuple[float, ...]  # of each run: above 1 it is less sure than it said
    temperature: float = 1.0  # of the mean

    def __call__(self, probs: Probs) -> Probs:
        return self.of_runs([self.of_run(n, each) for n, each in enumerate(probs)])

    def of_run(self, number: int, probs: Probs) -> Probs:
        return tempered(probs, self.temperatures[number])

    def of_runs(self, probs: Sequence[Probs]) -> Probs:
        weighted = (weight * each for weight, each in zip(self.weights, probs, strict=True))
        return tempered(sum(weighted, np.zeros_like(probs[0])), self.temperature)


def equal(probs: Probs, targets: Targets, metric: str) -> NDArray[np.float64]:
    return np.full(len(probs), 1 / len(probs))


def convex(probs: Probs, targets: Targets, metric: str) -> NDArray[np.float64]:
    """The weights of the least log loss, which is convex and so has one least. Where the metric is another: the best of
    it near these and near equal ones."""
    true = probs[:, np.arange(len(targets)), targets].clip(SMALLEST)

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        mean = (weights @ true).clip(SMALLEST)
        return float(-np.log(mean).mean()), -(true / mean).mean(1)

    count = len(probs)
    least = minimize(
        loss,
        np.full(count, 1 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1, "jac": np.ones_like},
    )
    weights = _normal(least.x)
    if metric == "log_loss":
        return weights

    def regret(logs: NDArray[np.float64]) -> float:
        tried = _normal(np.exp(logs))
        return 1e-3 * loss(tried)[0] - METRICS[metric]().better * evaluate(metric, targets, _mix(tried, probs))

    found = []
    for begin in (np.zeros(count), np.log(weights.clip(1e-3))):
        simplex = np.vstack([begin, begin + np.eye(count)])  # steps long enough to change an answer
        options = {"maxfev": 20 * count, "initial_simplex": simplex}
        found.append(minimize(regret, begin, method="Nelder-Mead", options=options))
    return _normal(np.exp(min(found, key=lambda each: each.fun).x))


def greedy(probs: Probs, targets: Targets, metric: str) -> NDArray[np.float64]:
    """Whichever run helps the mean most joins it, again and again (Caruana et al., 2004), on several resamples of the
    images, whose weights are averaged."""
    better, draws = METRICS[metric]().better, np.random.default_rng(0)
    total = np.zeros(len(probs))
    for _ in range(BAGS):
        bag = draws.integers(len(targets), size=len(targets))
        seen, truth = probs[:, bag], targets[bag]
        counts, summed = np.zeros(len(probs)), np.zeros(seen.shape[1:])
        best, chosen = (-np.inf, -np.inf), counts
        for _ in range(STEPS):
            steps = [(_worth(metric, better, truth, summed + each), n) for n, each in enumerate(seen)]
            worth, number = max(steps, key=lambda step: step[0])
            summed += seen[number]
            counts = counts.copy()
            counts[number] += 1
            if worth > best:
                best, chosen = worth, counts
        total += chosen / chosen.sum()
    return _normal(total)


def _worth(metric: str, better: int, targets: Targets, summed: Probs) -> tuple[float, float]:
    """The score, and the log loss where scores are equal, as they often are. A sum of runs serves as their mean: no
    metric here asks more of probabilities than their proportions."""
    true = summed[np.arange(len(targets)), targets].clip(SMALLEST)
    least = float(np.log(true / summed.sum(1)).mean())
    if metric == "log_loss":
        return least, 0.0
    score = better * evaluate(metric, targets, summed)
    return score if np.isfinite(score) else -np.inf, least  # a resample may lack what a metric needs


Fit = Callable[[Probs, Targets, str], NDArray[np.float64]]
FITS: dict[str, Fit] = {"equal": equal, "convex": convex, "greedy": greedy}
CALIBRATED = "-calibrated"
WAYS = tuple(f"{name}{kind}" for name in FITS for kind in ("", CALIBRATED))  # the simplest first


def fit(way: str, probs: Probs, targets: Targets, metric: str) -> Blend:
    name = way.removesuffix(CALIBRATED)
    if name == way:
        return Blend(way, _plain(FITS[name](probs, targets, metric)), (1.0,) * len(probs))
    temperatures = [temperature(each, targets) for each in probs]
    probs = np.array([tempered(each, degree) for each, degree in zip(probs, temperatures, strict=True)])
    weights = FITS[name](probs, targets, metric)
    return Blend(way, _plain(weights), tuple(temperatures), temperature(_mix(weights, probs), targets))


def ways(runs: int, metric: str) -> tuple[str, ...]:
    """Those that can differ: one run has one weight, and a temperature changes no decision of it."""
    if runs > 1:
        return WAYS
    return WAYS[:2] if metric == "log_loss" else WAYS[:1]


def tempered(probs: Probs, temperature: float) -> Probs:
    """Probabilities of logits divided by the temperature."""
    if temperature == 1:
        return probs
    logits = np.log(probs.clip(SMALLEST)) / temperature
    powers: Probs = np.exp(logits - logits.max(1, keepdims=True))
    scaled: Probs = powers / powers.sum(1, keepdims=True)
    return scaled


def temperature(probs: Probs, targets: Targets) -> float:
    """The one of the least log loss."""
    logits = np.log(probs.clip(SMALLEST))
    rows = np.arange(len(targets))

    def loss(heat: float) -> float:
        scaled = logits / heat
        highest = scaled.max(1)
        total = highest + np.log(np.exp(scaled - highest[:, None]).sum(1))
        return float((total - scaled[rows, targets]).mean())

    return _search(loss)


def _search(loss: Callable[[float], float]) -> float:
    """The temperature of the least loss."""
    bounds = (np.log(COOLEST), np.log(HOTTEST))
    return float(np.exp(minimize_scalar(lambda log: loss(np.exp(log)), bounds=bounds, method="bounded").x))


def _mix(weights: NDArray[np.float64], probs: Probs) -> Probs:
    mean: Probs = (weights @ probs.reshape(len(probs), -1)).reshape(probs.shape[1:])
    return mean


def _normal(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    positive: NDArray[np.float64] = weights.clip(0)
    return np.asarray(positive / positive.sum())


def _plain(weights: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(weights.tolist())


# --- their judge -----------------------------------------------------------------------------------------


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


def judge(seen: HeldOut, metric: str, tests: int, way: str | None = None) -> Verdict:
    """The way that is given, or else the simplest that is not worse than the best by more than chance; and what to
    expect of it on so many test images."""
    better, enough = METRICS[metric]().better, len(seen) >= FEWEST
    if way and way != "equal" and not enough:
        raise PodiumError(f"weights cannot be fitted to {len(seen)} images that all runs held out; use --blend equal")
    tried = ways(len(seen.probs), metric) if enough else WAYS[:1]
    if way:
        tried = tuple(each for each in WAYS if each in ("equal", way))
    with bar(total=len(tried), desc="judging blends", unit="way") as progress:
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
    values, draws = each_image(metric, seen.targets, probs), np.random.default_rng(2)
    if metric == "accuracy" and values is not None:  # also where no answer is wrong, of which no resample would be
        alike = _alike(values, seen.groups)
        count, others = len(values) / alike, max(1, round(tests / alike))
        right = draws.beta(values.mean() * count + 0.5, (1 - values.mean()) * count + 0.5, RESAMPLES * 10)
        return _percentiles(draws.binomial(others, right) / others)
    return _percentiles(_resampled(seen, probs, metric, tests))


def _alike(values: NDArray[np.float64], groups: NDArray[np.int64]) -> float:
    """How many images of groups tell as little as one image of its own; 1 where groups do not matter."""
    errors = values - values.mean()
    alone = (errors**2).sum()
    return max(1.0, float((np.bincount(groups, errors) ** 2).sum() / alone)) if alone else 1.0


def _resampled(seen: HeldOut, probs: Probs, metric: str, tests: int = 0) -> NDArray[np.float64]:
    """Scores of the bootstrap, on the same resamples for all probabilities; with `tests`, of so many images each."""
    draws, values = np.random.default_rng(1), each_image(metric, seen.targets, probs)
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
    likely = tempered(mean, _search(lambda heat: (float((tempered(mean, heat) * loss).sum(1).mean()) - log_loss) ** 2))
    upto, draws, gains = likely.cumsum(1), np.random.default_rng(3), []
    for _ in range(LABELS if each_image(metric, np.zeros(1, np.int64), mean[:1]) is not None else LABELS_FOR_SLOW):
        labels = (upto > draws.random((len(mean), 1)) * upto[:, -1:]).argmax(1)
        gains.append(_score(metric, labels, mean) - np.mean([_score(metric, labels, each) for each in single]))
    return float(np.nanmean(gains)) if np.isfinite(gains).any() else 0.0


def _score(metric: str, targets: Targets, probs: Probs) -> float:
    values = each_image(metric, targets, probs)
    return evaluate(metric, targets, probs) if values is None else float(values.mean())


def _percentiles(values: NDArray[np.float64]) -> tuple[float, float]:
    known = values[np.isfinite(values)]  # a resample may lack what a metric needs
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.percentile(known, INTERVAL)
    return float(low), float(high)
