"""Fits a blend to held-out images: the weight of each run, and temperatures if it is calibrated.

    podium submit --runs A B --blend STRATEGY

The weights are equal, convex, greedy or those of the best single run, and the probabilities are calibrated or not;
strategy_names.py lists these strategies. choose_blend.py chooses one of them. shrunk.py fits the shrunk blend,
stack_fits.py the stacks.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from podium.blending.blend import POWERS, Blend, Calibration, Mean, Probs, equal_blend, probs_of_truth, scaled_errors
from podium.blending.shrunk import Weights, fit_shrunk, loss_of, minimise, normalise
from podium.blending.stack_fits import fit_stack
from podium.blending.stack_inputs import TableRows
from podium.blending.strategy_names import BEST, CALIBRATED, GEOMETRIC, POWER, RANK, SHRUNK, STACKS, STRATEGIES
from podium.options.extensions.extend import OWN_STACKS
from podium.tasks.metrics import METRICS, OF_LOGARITHMS, calibrates, evaluate
from podium.tasks.task import Targets, Task
from podium.tasks.temperature import MIN_PROB, apply_temperature, fit_temperature

BAGS, STEPS = 10, 10  # of the greedy strategy: the weights are as fine as about 1/100


def fit_equal(probs: Probs, targets: Targets, metric: str) -> Weights:
    return np.full(len(probs), 1 / len(probs))


def fit_convex(probs: Probs, targets: Targets, metric: str) -> Weights:
    """Returns the weights that minimise the loss, or those with the best score found near them or equal weights.

    The search for the best score is for metrics other than the loss.
    """
    from scipy.optimize import minimize

    loss = loss_of(probs, targets)
    weights = minimise(loss, len(probs))
    if metric in OF_LOGARITHMS:
        return weights
    count, better = len(probs), METRICS[metric]().better

    def regret(log_weights: Weights) -> float:
        candidate = normalise(np.exp(log_weights))
        tie_break = 1e-3 * loss(candidate)[0]
        return tie_break - better * evaluate(metric, targets, _weighted_mean(candidate, probs))

    results = []
    for start in (np.zeros(count), np.log(weights.clip(1e-3))):
        simplex = np.vstack([start, start + np.eye(count)])  # steps that are large enough to change a predicted label
        options = {"maxfev": 20 * count, "initial_simplex": simplex}
        results.append(minimize(regret, start, method="Nelder-Mead", options=options))
    return normalise(np.exp(min(results, key=lambda result: result.fun).x))


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
    return normalise(total)


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
    """Returns the strategies to try that can differ; the last one is taken if no other is better.

    Temperatures are for probabilities that sum to 1, and change no label of a single run.
    """
    if run_count > 1:
        return STRATEGIES[0], BEST, SHRUNK
    return (STRATEGIES[0], SHRUNK) if calibrates(metric, task) else STRATEGIES[:1]


def fit_blend(strategy: str, probs: Probs, targets: Targets, metric: str, features: TableRows | None = None) -> Blend:
    """Returns the fitted blend; `features` are those of the images, for a stack."""
    if strategy in STACKS or strategy in OWN_STACKS:
        stack = fit_stack(strategy, probs, targets, features)
        return replace(equal_blend(len(probs)), strategy=strategy, stack=stack)
    if strategy == SHRUNK:
        return fit_shrunk(probs, targets)
    if strategy == POWER:
        return _fit_power(probs, targets, metric)
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


def _fit_power(probs: Probs, targets: Targets, metric: str) -> Blend:
    """Returns equal weights of the power that scores best."""
    equal, suffix = equal_blend(len(probs)), " of one" if targets.task.sums_to_one else ""
    better = METRICS[metric]().better
    kinds = [f"power {power:g}{suffix}" for power in POWERS]
    blends = [replace(equal, strategy=POWER, mean=replace(equal.mean, kind=kind)) for kind in kinds]
    return max(blends, key=lambda blend: _greedy_score(metric, better, targets, blend.apply(probs)))


def _weighted_mean(weights: Weights, probs: Probs) -> Probs:
    mean: Probs = (weights @ probs.reshape(len(probs), -1)).reshape(probs.shape[1:])
    return mean
