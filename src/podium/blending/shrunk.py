"""Fits the shrunk blend: the weights of the least loss, drawn towards equal ones.

    podium submit --runs A B [--blend shrunk]

Of one label, each run is calibrated first. Then the weights and the temperature of the mean are fitted together: weights
that are fitted to a mean which is not calibrated prefer the runs that are most sure. A penalty on the distance of the
weights from equal ones counts against the evidence of the images, so it matters less the more images there are. Its
strength and the kind of mean are those of the least loss in cross-validation.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from podium.blending.blend import (
    MIN_PROB,
    Blend,
    Calibration,
    Mean,
    Probs,
    apply_temperature,
    probs_of_truth,
    scaled_errors,
)
from podium.blending.strategy_names import SHRUNK
from podium.blending.temperature import MAX_TEMPERATURE, MIN_TEMPERATURE, fit_temperature, random_part
from podium.tasks.metrics import evaluate
from podium.tasks.task import Targets

Weights = NDArray[np.float64]  # [runs]
Loss = Callable[[Weights], tuple[float, Weights]]  # weights -> loss, gradient
Tables = NDArray[np.float32]  # [runs, answers]: half the memory

STRENGTHS = (10.0, 100.0, 1000.0)  # of the penalty, where the loss is the sum over the images
MOST_VALUES, LEAST_IMAGES = 2_000_000, 2_000  # probabilities that weights are fitted to, or so many images
MOST_TRIED, TRIED_PARTS = 1_000, 3  # images, and their parts, on which strength and kind are chosen
LEAST_SHARE = 0.1  # of an equal weight: a run with less costs its predictions and brings nothing


def fit_shrunk(probs: Probs, targets: Targets) -> Blend:
    count, task = len(probs), targets.task
    images = random_part(np.arange(len(targets)), max(LEAST_IMAGES, MOST_VALUES // probs[:, 0].size))
    probs, targets, temperatures = probs[:, images], targets[images], (1.0,) * count
    if task.sums_to_one:
        temperatures = tuple(fit_temperature(run_probs, targets.values) for run_probs in probs)
        probs = np.array([apply_temperature(*pair) for pair in zip(probs, temperatures, strict=True)])
    if count == 1:
        return Blend(SHRUNK, Calibration(temperatures), Mean((1.0,)))
    kinds = ["arithmetic"]
    if task.are_labels and not task.has_columns:
        kinds.append("geometric" if task.sums_to_one else "logit")
    tried = random_part(np.arange(len(targets)), MOST_TRIED)
    loss = partial(_nested_loss, probs[:, tried], targets[tried])
    kind, strength = min(product(kinds, STRENGTHS), key=lambda option: loss(*option))
    return Blend(SHRUNK, Calibration(temperatures), fit_mean(probs, targets, kind, strength))


def _nested_loss(probs: Probs, targets: Targets, kind: str, strength: float) -> float:
    """Returns the loss of means, each fitted to the other parts of the images."""
    parts = np.random.default_rng(0).permutation(len(targets)) % TRIED_PARTS
    predicted = np.empty(probs.shape[1:])
    for part in range(TRIED_PARTS):
        is_scored = parts == part
        mean = fit_mean(probs[:, ~is_scored], targets[~is_scored], kind, strength)
        predicted[is_scored] = mean.apply(probs[:, is_scored])
    return evaluate(targets.task.loss, targets, predicted)


def fit_mean(probs: Probs, targets: Targets, kind: str, strength: float) -> Mean:
    """Returns the mean of this kind with the least loss and penalty; `probs` are calibrated."""
    count, task = len(probs), targets.task
    penalty = strength / max(1, len(targets))
    temperature = 1.0
    if kind == "arithmetic" and not task.sums_to_one:
        loss = partial(_likelihood, loss=loss_of(probs, targets), targets=targets)
        weights = minimise(partial(_penalised, loss=loss, penalty=penalty), count)
    elif kind == "arithmetic":
        tables = probs.reshape(count, -1).astype(np.float32)
        bounds = [*[(0.0, None)] * count, (1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE)]
        loss = partial(_loss_of_mean, tables=tables, truth=targets.values, penalty=penalty)
        *found, sureness = _descend(loss, np.append(np.full(count, 1 / count), 1.0), bounds)
        weights, temperature = np.array(found), 1 / sureness
    else:
        logs = np.log(probs.clip(MIN_PROB)).reshape(count, -1).astype(np.float32)
        if kind == "logit":
            logs -= np.log((1 - probs).clip(MIN_PROB)).reshape(count, -1)
        of_logs = _loss_of_logs if kind == "geometric" else _loss_of_logits
        loss = partial(of_logs, logs=logs, truth=targets.values)
        start = np.full(count, 1 / count)
        weights = _descend(partial(_penalised, loss=loss, penalty=penalty), start, [(0.0, None)] * count)
        temperature = float((1 / weights.sum().clip(1 / MAX_TEMPERATURE)).clip(MIN_TEMPERATURE))
    weights = normalise(weights)
    weights = normalise(np.where(weights < LEAST_SHARE / count, 0, weights))
    return Mean(tuple(weights.tolist()), temperature, kind)


def _likelihood(weights: Weights, loss: Loss, targets: Targets) -> tuple[float, Weights]:
    """Returns minus the log likelihood of an image: of its labels, or of its numbers with errors of unknown size."""
    value, gradient = loss(weights)
    if targets.task.are_labels:
        answers = len(set(targets.columns)) or targets.values.shape[1]
        return answers * value, answers * gradient
    half = targets.values.shape[1] / 2
    return half * float(np.log(value + MIN_PROB)), half * gradient / (value + MIN_PROB)


def _penalised(weights: Weights, loss: Loss, penalty: float) -> tuple[float, Weights]:
    value, gradient = loss(weights)
    distance = weights - weights.mean()
    return value + penalty * float(distance @ distance), gradient + 2 * penalty * distance


def _loss_of_mean(numbers: Weights, tables: Tables, truth: NDArray[np.int64], penalty: float) -> tuple[float, Weights]:
    """Returns the log loss of the arithmetic mean; `numbers` are the weights, and 1 / temperature of the mean."""
    weights, sureness, images = numbers[:-1], numbers[-1], np.arange(len(truth))
    mean = (weights.astype(np.float32) @ tables).reshape(len(truth), -1).clip(MIN_PROB)
    logs = np.log(mean)
    loss, errors = _softmax_loss(logs * np.float32(sureness), truth)
    gradient = tables @ (errors * np.float32(sureness) / mean).ravel()
    distance = weights - 1 / len(weights)
    value = loss + penalty * float(distance @ distance)
    return value, np.append(gradient + 2 * penalty * distance, float((errors * logs).sum(dtype=np.float64)))


def _loss_of_logs(weights: Weights, logs: Tables, truth: NDArray[np.int64]) -> tuple[float, Weights]:
    """Returns the log loss of the geometric mean; the sum of the weights is 1 / its temperature."""
    loss, errors = _softmax_loss((weights.astype(np.float32) @ logs).reshape(len(truth), -1), truth)
    return loss, (logs @ errors.ravel()).astype(np.float64)


def _softmax_loss(logits: Tables, truth: NDArray[np.int64]) -> tuple[float, Tables]:
    """Returns the log loss and its gradient by the logits, which it overwrites."""
    images = np.arange(len(truth))
    logits -= logits.max(1, keepdims=True)
    true = logits[images, truth]
    probs = np.exp(logits, out=logits)
    sums = probs.sum(1)
    loss = float((np.log(sums) - true).mean(dtype=np.float64))
    probs /= sums[:, None]
    probs[images, truth] -= 1
    probs /= len(truth)
    return loss, probs


def _loss_of_logits(weights: Weights, logs: Tables, truth: NDArray[np.float32]) -> tuple[float, Weights]:
    """Returns the log loss of the mean of the logits of several labels, the sum over an image's classes."""
    logits = weights.astype(np.float32) @ logs
    is_true = truth.ravel() > 0
    loss = np.logaddexp(0, np.where(is_true, -logits, logits)).sum(dtype=np.float64) / len(truth)
    errors = (1 / (1 + np.exp(-logits)) - is_true).astype(np.float32) / np.float32(len(truth))
    return float(loss), (logs @ errors).astype(np.float64)


def _descend(loss: Loss, start: Weights, bounds: list[tuple[float, float | None]]) -> Weights:
    from scipy.optimize import minimize

    options = {"maxiter": 50, "ftol": 1e-7, "gtol": 1e-5}  # finer than single precision shows
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)


def loss_of(probs: Probs, targets: Targets) -> Loss:
    """Returns the log loss of the runs' weighted mean, or the mean squared error of numbers."""
    if not targets.task.are_labels:
        errors = scaled_errors(probs, targets)
        return partial(_squared_error_and_gradient, products=errors @ errors.T / errors.shape[1])
    return partial(_log_loss_and_gradient, true_probs=probs_of_truth(probs, targets).clip(MIN_PROB))


def minimise(loss: Loss, count: int) -> Weights:
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
    return normalise(result.x)


def _squared_error_and_gradient(weights: Weights, products: Probs) -> tuple[float, Weights]:
    """`products` [runs, runs] are the means of the products of two runs' errors; the weights sum to 1."""
    return float(weights @ products @ weights), 2 * products @ weights


def _log_loss_and_gradient(weights: Weights, true_probs: Probs) -> tuple[float, Weights]:
    mean = (weights @ true_probs).clip(MIN_PROB)
    return float(-np.log(mean).mean()), -(true_probs / mean).mean(1)


def normalise(weights: Weights) -> Weights:
    positive: Weights = weights.clip(0)
    return np.asarray(positive / positive.sum()) if positive.any() else np.full(len(weights), 1 / len(weights))
