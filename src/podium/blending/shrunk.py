"""Fits the shrunk blend: the weights of the least loss, drawn towards equal ones.

    podium submit --runs A B [--blend shrunk]

Of one label, each run is calibrated first. Then the weights and the temperature of the mean are fitted together,
because weights alone would favour the runs that are most sure. A penalty on the distance from equal weights counts
against the evidence of the images, so it matters less the more images there are. Its strength and the kind of mean,
of probabilities or of their logarithms, are those of the least loss in cross-validation.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from podium.blending.blend import Blend, Calibration, Mean, Probs, probs_of_truth, scaled_errors
from podium.blending.strategy_names import SHRUNK
from podium.tasks.metrics import evaluate, score_per_image
from podium.tasks.task import Targets
from podium.tasks.temperature import (
    MAX_TEMPERATURE,
    MIN_PROB,
    MIN_TEMPERATURE,
    apply_temperature,
    fit_temperature,
    random_part,
)

Weights = NDArray[np.float64]  # [runs]
Loss = Callable[[Weights], tuple[float, Weights]]  # weights -> loss, gradient
Tables = NDArray[np.float32]  # [runs, answers]: half the memory

STRENGTHS = (10.0, 100.0, 1000.0)  # of the penalty on unequal weights, where the loss is the sum over the images
TRUST = 5.0  # of the penalty on the squared logarithm of a temperature: few mistakes do not show that runs are unsure
MOST_VALUES, LEAST_IMAGES = 2_000_000, 1_000  # probabilities that weights are fitted to, or so many images
MOST_TRIED, TRIED_PARTS = 1_000, 3  # images, and their parts, on which strength and kind are chosen
SHOWN = 0.5  # standard errors by which the arithmetic mean has to be better
LEAST_SHARE = 0.1  # of an equal weight: a run with less costs its predictions and brings nothing


def fit_shrunk(probs: Probs, targets: Targets) -> Blend:
    count, task, most = len(probs), targets.task, MOST_VALUES // probs[:, 0].size
    images = random_part(np.arange(len(targets)), max(LEAST_IMAGES, most))
    probs, targets, temperatures = probs[:, images], targets[images], (1.0,) * count
    if task.sums_to_one:
        temperatures = tuple(fit_temperature(run_probs, targets.values, targets.votes, TRUST) for run_probs in probs)
        probs = np.array([apply_temperature(*pair) for pair in zip(probs, temperatures, strict=True)])
    tried = random_part(np.arange(len(targets)), min(MOST_TRIED, max(LEAST_IMAGES // 3, most)))
    mean = Mean((1.0,)) if count == 1 else fit_mean(probs, targets, *_choose_kind(probs[:, tried], targets[tried]))
    return Blend(SHRUNK, Calibration(temperatures), mean)


def _choose_kind(probs: Probs, targets: Targets) -> tuple[str, float]:
    """Returns the kind of mean and the strength of the penalty with the least loss in cross-validation.

    A mean of logarithms is usually better. It is worse where a run is sure and wrong, so the arithmetic one is taken if
    it is better by half a standard error.
    """
    task, of_logs = targets.task, "geometric" if targets.task.sums_to_one else "logit"
    strengths, predicted = {}, {}
    for kind in (of_logs, "arithmetic") if task.are_labels and not task.has_columns else ("arithmetic",):
        tables = {strength: _predict_parts(probs, targets, kind, strength) for strength in STRENGTHS}
        losses = {strength: evaluate(task.loss, targets, table) for strength, table in tables.items()}
        strengths[kind] = min(losses, key=losses.__getitem__)
        predicted[kind] = tables[strengths[kind]]
    if of_logs in predicted:
        before, after = (np.asarray(score_per_image(task.loss, targets, table)) for table in predicted.values())
        gain = before - after
        if gain.mean() <= SHOWN * gain.std() / len(gain) ** 0.5:
            return of_logs, strengths[of_logs]
    return "arithmetic", strengths["arithmetic"]


def _predict_parts(probs: Probs, targets: Targets, kind: str, strength: float) -> Probs:
    """Returns what means predict that are each fitted to the other parts of the images."""
    parts = np.random.default_rng(0).permutation(len(targets)) % TRIED_PARTS
    predicted = np.empty(probs.shape[1:])
    for part in range(TRIED_PARTS):
        is_scored = parts == part
        mean = fit_mean(probs[:, ~is_scored], targets[~is_scored], kind, strength)
        predicted[is_scored] = mean.apply(list(probs[:, is_scored]))
    return predicted


def fit_mean(probs: Probs, targets: Targets, kind: str, strength: float) -> Mean:
    """Returns the mean of this kind with the least loss and penalties; `probs` are calibrated."""
    count, task = len(probs), targets.task
    penalties: Weights = np.array([strength, TRUST]) / max(1, len(targets))
    if kind == "arithmetic" and not task.sums_to_one:
        likelihood = partial(_likelihood, loss=loss_of(probs, targets), targets=targets)
        return Mean(_keep_large(minimise(partial(_penalised, loss=likelihood, penalty=penalties[0]), count)))
    start, bounds = np.full(count, 1 / count), [(0.0, np.inf)] * count
    if kind == "arithmetic":
        tables = probs.reshape(count, -1).astype(np.float32)
        loss: Loss = partial(_loss_of_mean, tables=tables, targets=targets, penalties=penalties)
        bounds.append((1 / MAX_TEMPERATURE, 1 / MIN_TEMPERATURE))
        found = _descend(loss, np.append(start, 1.0), bounds)[:-1]
    else:
        loss = partial(_loss_of_logs, logs=_logs(probs, kind), targets=targets, penalties=penalties)
        found = _descend(loss, start, bounds)
    mean = Mean(_keep_large(found), kind=kind)
    if task.sums_to_one:
        return replace(mean, temperature=fit_temperature(mean.apply(list(probs)), targets.values, targets.votes, TRUST))
    return replace(mean, temperature=float(np.clip(1 / max(found.sum(), MIN_PROB), MIN_TEMPERATURE, MAX_TEMPERATURE)))


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


def _loss_of_mean(numbers: Weights, tables: Tables, targets: Targets, penalties: Weights) -> tuple[float, Weights]:
    """Returns the penalised log loss of the arithmetic mean; `numbers` are the weights, and 1 / its temperature."""
    weights, sureness = numbers[:-1], numbers[-1]
    mean = (weights.astype(np.float32) @ tables).reshape(len(targets), -1).clip(MIN_PROB)
    logs = np.log(mean)
    loss, errors = _softmax_loss(logs * np.float32(sureness), targets)
    gradient = tables @ (errors * np.float32(sureness) / mean).ravel()
    distance, log = weights - 1 / len(weights), np.log(sureness)
    loss += penalties @ [float(distance @ distance), log**2]
    of_sureness = float((errors * logs).sum(dtype=np.float64)) + 2 * penalties[1] * log / sureness
    return loss, np.append(gradient + 2 * penalties[0] * distance, of_sureness)


def _loss_of_logs(weights: Weights, logs: Tables, targets: Targets, penalties: Weights) -> tuple[float, Weights]:
    """Returns the penalised log loss of the mean of logarithms; the sum of the weights is 1 / its temperature."""
    scores = (weights.astype(np.float32) @ logs).reshape(len(targets), -1)
    loss, errors = (_softmax_loss if targets.task.sums_to_one else _logit_loss)(scores, targets)
    distance, sureness = weights - weights.mean(), max(weights.sum(), MIN_PROB)
    loss += penalties @ [float(distance @ distance), np.log(sureness) ** 2]
    return loss, logs @ errors.ravel() + 2 * penalties[0] * distance + 2 * penalties[1] * np.log(sureness) / sureness


def _softmax_loss(logits: Tables, targets: Targets) -> tuple[float, Tables]:
    """Returns the log loss, of labels or of votes, and its gradient by the logits, which it overwrites."""
    images, truth, votes = np.arange(len(targets)), targets.values, targets.votes
    logits -= logits.max(1, keepdims=True)
    true = logits[images, truth] if votes is None else (votes * logits).sum(1)
    probs = np.exp(logits, out=logits)
    sums = probs.sum(1)
    loss = float((np.log(sums) - true).mean(dtype=np.float64))
    probs /= sums[:, None]
    if votes is None:
        probs[images, truth] -= 1
    else:
        probs -= votes
    probs /= len(targets)
    return loss, probs


def _logit_loss(logits: Tables, targets: Targets) -> tuple[float, Tables]:
    """Returns the log loss of several labels, summed over an image's classes, and its gradient by the logits."""
    is_true = targets.values > 0
    loss = np.logaddexp(0, np.where(is_true, -logits, logits)).sum(dtype=np.float64) / len(targets)
    return float(loss), (1 / (1 + np.exp(-logits)) - is_true).astype(np.float32) / np.float32(len(targets))


def _logs(probs: Probs, kind: str) -> Tables:
    logs = np.log(probs.clip(MIN_PROB))
    if kind == "logit":
        logs -= np.log((1 - probs).clip(MIN_PROB))
    return np.asarray(logs.reshape(len(probs), -1), np.float32)


def _keep_large(weights: Weights) -> tuple[float, ...]:
    """Returns weights that sum to 1, and 0 for those that are small."""
    shares = normalise(weights)
    return tuple(normalise(np.where(shares < LEAST_SHARE / len(shares), 0, shares)).tolist())


def _descend(loss: Loss, start: Weights, bounds: list[tuple[float, float]]) -> Weights:
    from scipy.optimize import minimize

    options = {"maxiter": 50, "ftol": 1e-7, "gtol": 1e-5}  # finer than single precision shows
    return np.asarray(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)


def loss_of(probs: Probs, targets: Targets) -> Loss:
    """Returns the log loss of the runs' weighted mean, or the mean squared error of numbers."""
    if not targets.task.are_labels:
        errors = scaled_errors(probs, targets)
        return partial(_squared_error_and_gradient, products=errors @ errors.T / errors.shape[1])
    votes = None if targets.votes is None else targets.votes.astype(np.float64).ravel() / len(targets)
    return partial(_log_loss_and_gradient, true_probs=probs_of_truth(probs, targets).clip(MIN_PROB), votes=votes)


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


def _log_loss_and_gradient(weights: Weights, true_probs: Probs, votes: Weights | None) -> tuple[float, Weights]:
    mean = (weights @ true_probs).clip(MIN_PROB)
    if votes is not None:
        return -float(votes @ np.log(mean)), -(true_probs / mean) @ votes
    return float(-np.log(mean).mean()), -(true_probs / mean).mean(1)


def normalise(weights: Weights) -> Weights:
    positive: Weights = weights.clip(0)
    return np.asarray(positive / positive.sum()) if positive.any() else np.full(len(weights), 1 / len(weights))
