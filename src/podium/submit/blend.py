"""How much each run counts in their mean: fitted to what they say of images they have not seen.

    podium submit --runs A B

Reads runs/<slug>/*/fold<k>/oof.npz; judge.py says which way serves best.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar

from podium.metrics import METRICS, evaluate
from podium.training.run_folder import Run

Probs = NDArray[np.float64]  # [runs, images, classes], or [images, classes]
Targets = NDArray[np.int64]

PARTS = 5  # of the held-out images, where they are of one fold
BAGS, STEPS = 10, 10  # of the greedy way: their mean has weights as fine as a hundredth
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
            oof = run.out_of_fold(fold).in_order_of(classes)
            said.update(
                {
                    str(name): (probs, int(target), fold)
                    for name, probs, target in zip(oof.id, oof.probs, oof.target, strict=True)
                }
            )
        found.append(said)
    shared = [name for name in found[0] if all(name in said for said in found)]
    parts = np.array([found[0][name][2] for name in shared], np.int64)
    of = {name: f"group {group}" for name, group in (groups or {}).items()}
    kin = np.unique([of.get(name, f"image {name}") for name in shared], return_inverse=True)[1]
    if len(set(parts.tolist())) == 1:
        parts = np.random.default_rng(0).permutation(kin.max() + 1)[kin] % PARTS
    return HeldOut(
        probs=np.array([[said[name][0] for name in shared] for said in found], np.float64),
        targets=np.array([found[0][name][1] for name in shared], np.int64),
        parts=parts,
        groups=kin,
    )


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

    return search(loss)


def search(loss: Callable[[float], float]) -> float:
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
