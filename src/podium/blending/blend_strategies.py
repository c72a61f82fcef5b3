"""Fits a blend to held-out images: the weight of each run, and temperatures if it is calibrated.

    podium submit --runs A B --blend STRATEGY

The weights are equal, convex, greedy or those of the best single run, and the probabilities are calibrated or not;
strategy_names.py lists these strategies. choose_blend.py chooses one of them. stack_fits.py fits the stacks.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.blending.blend import (
    MIN_PROB,
    Blend,
    Calibration,
    Mean,
    Probs,
    apply_temperature,
    equal_blend,
    probs_of_truth,
    scaled_errors,
)
from podium.blending.stack import Inputs
from podium.blending.stack_fits import fit_stack
from podium.blending.strategy_names import BEST, CALIBRATED, GEOMETRIC, RANK, STACKS, STRATEGIES
from podium.tasks.metrics import METRICS, OF_LOGARITHMS, evaluate
from podium.tasks.task import Targets, Task

Weights = NDArray[np.float64]  # [runs]
Loss = Callable[[Weights], tuple[float, Weights]]  # weights -> loss, gradient

BAGS, STEPS = 10, 10  # of the greedy strategy: the weights are as fine as about 1/100
CACHED_VALUES = 32_768
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.2, 5.0
SHARE_OF_A_MISTAKE = 0.5  # where none is seen: the posterior of `_draw_wrong` (expected_score.py) has this mean


def fit_equal(probs: Probs, targets: Targets, metric: str) -> Weights:
    return np.full(len(probs), 1 / len(probs))


def fit_convex(probs: Probs, targets: Targets, metric: str) -> Weights:
    """Returns the weights that minimise the loss, or those with the best score found near them or equal weights.

    The search for the best score is for metrics other than the loss.
    """
    from scipy.optimize import minimize

    loss = _loss_of(probs, targets)
    weights = _minimise(loss, len(probs))
    if metric in OF_LOGARITHMS:
        return weights
    count, better = len(probs), METRICS[metric]().better

    def regret(log_weights: Weights) -> float:
        candidate = _normalise(np.exp(log_weights))
        tie_break = 1e-3 * loss(candidate)[0]
        return tie_break - better * evaluate(metric, targets, _weighted_mean(candidate, probs))

    results = []
    for start in (np.zeros(count), np.log(weights.clip(1e-3))):
        simplex = np.vstack([start, start + np.eye(count)])  # steps that are large enough to change a predicted label
        options = {"maxfev": 20 * count, "initial_simplex": simplex}
        results.append(minimize(regret, start, method="Nelder-Mead", options=options))
    return _normalise(np.exp(min(results, key=lambda result: result.fun).x))


def _loss_of(probs: Probs, targets: Targets) -> Loss:
    """Returns the log loss of the runs' weighted mean, or the mean squared error of numbers."""
    if not targets.task.are_labels:
        errors = scaled_errors(probs, targets)
        return partial(_squared_error_and_gradient, products=errors @ errors.T / errors.shape[1])
    votes = None if targets.votes is None else targets.votes.astype(np.float64).ravel() / len(targets)
    return partial(_log_loss_and_gradient, true_probs=probs_of_truth(probs, targets).clip(MIN_PROB), votes=votes)


def _minimise(loss: Loss, count: int) -> Weights:
    """Returns the best weights. The losses are convex in the weights, so a local minimum is the global one."""
    from scipy.optimize import minimize

    result = minimize(
        loss,
        np.full(count, 1 / count),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1, "jac": np.ones_like},
    )
    return _normalise(result.x)


def _squared_error_and_gradient(weights: Weights, products: Probs) -> tuple[float, Weights]:
    """`products` [runs, runs] are the means of the products of two runs' errors; the weights sum to 1."""
    return float(weights @ products @ weights), 2 * products @ weights


def _log_loss_and_gradient(weights: Weights, true_probs: Probs, votes: Weights | None) -> tuple[float, Weights]:
    mean = (weights @ true_probs).clip(MIN_PROB)
    if votes is not None:
        return -float(votes @ np.log(mean)), -(true_probs / mean) @ votes
    return float(-np.log(mean).mean()), -(true_probs / mean).mean(1)


def fit_greedy(probs: Probs, targets: Targets, metric: str) -> Weights:
    """Returns the weights of a greedy selection of runs (Caruana et al., 2004), averaged over bags.

    Each bag is a resample of the images. In each step, the run that helps the mean most is added to it.
    """
    better, rng = METRICS[metric]().better, np.random.default_rng(0)
    total = np.zeros(len(probs))
    for _ in range(BAGS):
        bag = rng.integers(len(targets), size=len(targets))
        bag_probs, bag_targets = probs[:, bag], targets[bag]
        counts, summed = np.zeros(len(probs)), np.zeros(bag_probs.shape[1:])
        best_score, best_counts = (-np.inf, -np.inf), counts
        for _ in range(STEPS):
            steps = [
                (_greedy_score(metric, better, bag_targets, summed + run_probs, counts.sum() + 1), number)
                for number, run_probs in enumerate(bag_probs)
            ]
            score, number = max(steps, key=lambda step: step[0])
            summed += bag_probs[number]
            counts = counts.copy()
            counts[number] += 1
            if score > best_score:
                best_score, best_counts = score, counts
        total += best_counts / best_counts.sum()
    return _normalise(total)


def _greedy_score(metric: str, better: int, targets: Targets, summed: Probs, count: float = 1.0) -> tuple[float, float]:
    """Returns the score and, to decide if scores are equal, the mean log probability of the truth.

    With one label, the sum of `count` runs serves as their mean: every metric depends only on the proportions of an
    image's probabilities.
    """
    if not targets.task.are_labels:
        score = better * evaluate(metric, targets, summed / count)
        error = float((scaled_errors((summed / count)[None], targets) ** 2).mean())
        return score if np.isfinite(score) else -np.inf, -error
    totals: Any = summed.sum(1) if targets.task.sums_to_one else 1.0
    probs = summed if targets.task.sums_to_one else summed / count
    if targets.votes is None:
        true_probs = probs_of_truth(probs[None], targets)[0].clip(MIN_PROB)
        log_likelihood = float(np.log(true_probs / totals).mean())
    else:
        log_likelihood = -evaluate("log_loss", targets, probs)
    if metric in OF_LOGARITHMS:
        return log_likelihood, 0.0
    score = better * evaluate(metric, targets, probs)
    return score if np.isfinite(score) else -np.inf, log_likelihood  # a resample may lack a class that the metric needs


def fit_best(probs: Probs, targets: Targets, metric: str) -> Weights:
    """Returns weight 1 for the run with the best score, and 0 for the others."""
    better = METRICS[metric]().better
    scores = [_greedy_score(metric, better, targets, run_probs) for run_probs in probs]
    weights = np.zeros(len(probs))
    weights[scores.index(max(scores))] = 1
    return weights


FIT_WEIGHTS: dict[str, Callable[[Probs, Targets, str], Weights]] = {  # one for each of WEIGHTINGS
    "equal": fit_equal,
    "convex": fit_convex,
    "greedy": fit_greedy,
    BEST: fit_best,
}


def list_strategies(run_count: int, metric: str, task: Task) -> tuple[str, ...]:
    """Returns the strategies that can differ. One run has one weight, and a temperature does not change its labels.

    Temperatures are for probabilities that sum to 1.
    """
    if run_count > 1:
        is_possible = {name: task.sums_to_one or not name.endswith(CALIBRATED) for name in STRATEGIES}
        return tuple(name for name in STRATEGIES if is_possible[name])
    if not task.sums_to_one:
        return STRATEGIES[:1]
    return STRATEGIES[:2] if metric in OF_LOGARITHMS else STRATEGIES[:1]


def fit_blend(strategy: str, probs: Probs, targets: Targets, metric: str, features: Inputs | None = None) -> Blend:
    """Returns the fitted blend; `features` are those of the images, for a stack."""
    if strategy in STACKS:
        stack = fit_stack(strategy, probs, targets, features)
        return replace(equal_blend(len(probs)), strategy=strategy, stack=stack)
    if strategy in (GEOMETRIC, RANK):
        count, kind = len(probs), strategy
        if strategy == GEOMETRIC and not targets.task.sums_to_one:
            kind = "logit"
        elif strategy == RANK and targets.task.sums_to_one:
            kind = "rank_of_one"
        return Blend(strategy, Calibration((1.0,) * count), Mean((1 / count,) * count, kind=kind))
    fit_weights = FIT_WEIGHTS[strategy.removesuffix(CALIBRATED)]
    if not strategy.endswith(CALIBRATED):
        weights = fit_weights(probs, targets, metric)
        return Blend(strategy, Calibration((1.0,) * len(probs)), Mean(tuple(weights.tolist())))
    temperatures = tuple(fit_temperature(run_probs, targets.values, targets.votes) for run_probs in probs)
    probs = np.array([apply_temperature(*pair) for pair in zip(probs, temperatures, strict=True)])
    weights = fit_weights(probs, targets, metric)
    temperature = fit_temperature(_weighted_mean(weights, probs), targets.values, targets.votes)
    return Blend(strategy, Calibration(temperatures), Mean(tuple(weights.tolist()), temperature))


def fit_temperature(probs: Probs, targets: NDArray[np.int64], votes: Probs | None = None) -> float:
    """Returns the temperature that minimises the log loss of one label, or of the shares of its votes.

    If no image is wrong, and no vote divided, the loss would fall without end as the temperature does. So a share of
    each image then counts for the second most probable class, as much as so many images allow (`SHARE_OF_A_MISTAKE`).
    The images are taken in parts that the processor's cache holds: a step of the search makes no table of all.
    """
    logits = np.log(probs.clip(MIN_PROB))
    images = max(1, CACHED_VALUES // logits.shape[1])
    parts = [slice(start, start + images) for start in range(0, len(logits), images)]
    all_right = logits.shape[1] > 1 and all((logits[part].argmax(1) == targets[part]).all() for part in parts)
    all_right = all_right and (votes is None or bool((votes.max(1) == 1).all()))
    wrong = SHARE_OF_A_MISTAKE / (len(logits) + 1) if all_right else 0.0

    def log_losses(part: slice, temperature: float) -> Weights:
        scaled, rows = logits[part] / temperature, np.arange(len(targets[part]))
        true = scaled[rows, targets[part]] if votes is None else (votes[part] * scaled).sum(1)
        highest = scaled.max(1)
        if all_right:
            others = scaled.copy()
            others[rows, targets[part]] = -np.inf
            true = (1 - wrong) * true + wrong * others.max(1)
        scaled -= highest[:, None]
        return np.asarray(highest + np.log(np.exp(scaled, out=scaled).sum(1)) - true)

    def log_loss(temperature: float) -> float:
        return float(np.concatenate([log_losses(part, temperature) for part in parts]).mean())

    return find_temperature(log_loss)


def random_part(images: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Returns at most so many of these images, in their order: a temperature needs no more of a very large table."""
    if len(images) <= most:
        return images
    return np.sort(np.random.default_rng(0).choice(images, most, replace=False))


def find_temperature(loss: Callable[[float], float]) -> float:
    """Returns the temperature that minimises the loss."""
    from scipy.optimize import minimize_scalar

    bounds = (np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE))
    return float(np.exp(minimize_scalar(lambda log: loss(np.exp(log)), bounds=bounds, method="bounded").x))


def _weighted_mean(weights: Weights, probs: Probs) -> Probs:
    mean: Probs = (weights @ probs.reshape(len(probs), -1)).reshape(probs.shape[1:])
    return mean


def _normalise(weights: Weights) -> Weights:
    positive: Weights = weights.clip(0)
    return np.asarray(positive / positive.sum())
