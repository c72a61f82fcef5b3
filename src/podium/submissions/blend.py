"""A blend: how the probabilities of several runs become one prediction.

blend_strategies.py fits its weights and temperatures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Probs = NDArray[np.float64]  # [runs, images, classes] or [images, classes]
Targets = NDArray[Any]  # as in task.py

MIN_PROB = 1e-12  # 0 has no logarithm


@dataclass(frozen=True)
class Blend:
    """The weighted mean of the runs' probabilities. Temperatures other than 1 calibrate them."""

    strategy: str  # one of STRATEGIES in strategy_names.py
    weights: tuple[float, ...]  # one per run; they sum to 1
    temperatures: tuple[float, ...]  # one per run; above 1 the run becomes less confident
    temperature: float = 1.0  # of the mean

    def apply(self, probs: Probs) -> Probs:
        """Returns the blended probabilities; `probs` are those of all runs."""
        return self.average([self.calibrate(number, run_probs) for number, run_probs in enumerate(probs)])

    def calibrate(self, run_number: int, probs: Probs) -> Probs:
        return apply_temperature(probs, self.temperatures[run_number])

    def average(self, calibrated: Sequence[Probs]) -> Probs:
        """Returns the weighted mean of the runs' calibrated probabilities, at the temperature of the mean."""
        weighted = (weight * probs for weight, probs in zip(self.weights, calibrated, strict=True))
        return apply_temperature(sum(weighted, np.zeros_like(calibrated[0])), self.temperature)


def probs_of_truth(probs: Probs, targets: Targets) -> Probs:
    """Returns [runs, answers]: the probability of the true class, or of the truth about each class of each image."""
    if targets.ndim == 1:
        return probs[:, np.arange(len(targets)), targets]
    truth: Probs = np.where(targets > 0, probs, 1 - probs).reshape(len(probs), -1)
    return truth


def apply_temperature(probs: Probs, temperature: float) -> Probs:
    """Returns the probabilities of one label after their logits are divided by the temperature."""
    if temperature == 1:
        return probs
    logits = np.log(probs.clip(MIN_PROB)) / temperature
    powers: Probs = np.exp(logits - logits.max(1, keepdims=True))
    scaled: Probs = powers / powers.sum(1, keepdims=True)
    return scaled
