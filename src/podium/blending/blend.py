"""A blend: how the probabilities of several runs become one prediction.

blend_strategies.py fits its weights and temperatures; stack.py is a blend that is a model of its own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.blending.stack import Inputs, Stack
from podium.tasks.task import Targets

Probs = NDArray[np.float64]  # [runs, images, classes] or [images, classes]

MIN_PROB = 1e-12  # 0 has no logarithm


@dataclass(frozen=True)
class Blend:
    """The weighted mean of the runs' probabilities. Temperatures other than 1 calibrate them."""

    strategy: str  # one of ALL_STRATEGIES in strategy_names.py
    weights: tuple[float, ...]  # one per run; they sum to 1
    temperatures: tuple[float, ...]  # one per run; above 1 the run becomes less confident
    temperature: float = 1.0  # of the mean
    pooling: str = "mean"  # of the images of an answer, where a row of the submission is for several; see pooling.py
    mean: str = "arithmetic"  # or of logarithms: geometric of one label, logit of several; or of ranks; see MEANS
    stack: Stack | None = None  # instead of a mean, a model of the runs' probabilities

    def apply(self, probs: Probs, features: Inputs | None = None) -> Probs:
        """Returns the blended probabilities; `probs` are those of all runs, `features` those of the images."""
        return self.average([self.calibrate(number, run_probs) for number, run_probs in enumerate(probs)], features)

    def calibrate(self, run_number: int, probs: Probs) -> Probs:
        """Returns what the fold models of a run are averaged in, and then the runs."""
        return self.stack.logits(probs) if self.stack else apply_temperature(probs, self.temperatures[run_number])

    def average(self, calibrated: Sequence[Probs], features: Inputs | None = None) -> Probs:
        """Returns the weighted mean of the runs' calibrated probabilities, at the temperature of the mean."""
        if self.stack:
            return self.stack.apply(calibrated, features)
        if self.weights == (1.0,) and self.mean == "arithmetic":
            return apply_temperature(calibrated[0], self.temperature)
        scale, scale_back = MEANS[self.mean]
        weighted = (weight * scale(probs) for weight, probs in zip(self.weights, calibrated, strict=True))
        mean: Probs = sum(weighted, np.zeros_like(calibrated[0]))
        return apply_temperature(scale_back(mean), self.temperature)


def _same(probs: Probs) -> Probs:
    return probs


def _log(probs: Probs) -> Probs:
    return np.asarray(np.log(probs.clip(MIN_PROB)))


def _softmax(logs: Probs) -> Probs:
    powers: Probs = np.exp(logs - logs.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def _logit(probs: Probs) -> Probs:
    return np.asarray(_log(probs) - _log(1 - probs))


def _sigmoid(logits: Probs) -> Probs:
    return np.asarray(1 / (1 + np.exp(-logits)))


def _ranks(probs: Probs) -> Probs:
    """Returns the share of the images with a lower probability of the class; equal ones share their mean."""
    from scipy.stats import rankdata

    return np.asarray((rankdata(probs, axis=0) - 0.5) / len(probs))


def sum_to_one(probs: Probs) -> Probs:
    return np.asarray(probs / probs.sum(1, keepdims=True))


# What is averaged, and how the mean becomes probabilities again.
MEANS: dict[str, tuple[Callable[[Probs], Probs], Callable[[Probs], Probs]]] = {
    "arithmetic": (_same, _same),
    "geometric": (_log, _softmax),  # of one label: sums to 1
    "rank_of_one": (_ranks, sum_to_one),
    "rank": (_ranks, _same),
    "logit": (_logit, _sigmoid),  # of several labels: the geometric mean of yes and of no
}


def probs_of_truth(probs: Probs, targets: Targets) -> Probs:
    """Returns [runs, answers]: the probability of the true class (in each column), or of the truth about each class."""
    if targets.task.sums_to_one:
        return probs[:, np.arange(len(targets)), targets.values]
    is_true = targets.values > 0
    if targets.columns:
        return probs[:, is_true]
    truth: Probs = np.where(is_true, probs, 1 - probs).reshape(len(probs), -1)
    return truth


def scaled_errors(numbers: Probs, targets: Targets) -> Probs:
    """Returns [runs, answers]: the errors of numbers in units of each column's deviation; 0 where nothing is known."""
    deviations = np.nanstd(targets.values, 0)
    errors: Probs = (numbers - targets.values) / np.where(deviations > 0, deviations, 1.0)
    return np.nan_to_num(errors.reshape(len(numbers), -1))


def apply_temperature(probs: Probs, temperature: float) -> Probs:
    """Returns the probabilities of one label after their logits are divided by the temperature."""
    if temperature == 1:
        return probs
    scaled: Probs = probs.clip(MIN_PROB)  # the only copy
    np.log(scaled, out=scaled)
    scaled /= temperature
    scaled -= scaled.max(1, keepdims=True)
    np.exp(scaled, out=scaled)
    scaled /= scaled.sum(1, keepdims=True)
    return scaled
