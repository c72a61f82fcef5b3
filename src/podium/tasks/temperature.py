"""Fits a temperature: how much more or less sure a run, or a mean of runs, should be.

The logits of its probabilities are divided by the temperature that minimises the log loss of held-out images.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Probs = NDArray[np.float64]  # [images, classes]

MIN_PROB = 1e-12  # 0 has no logarithm
CACHED_VALUES = 32_768
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.2, 5.0
SHARE_OF_A_MISTAKE = 0.5  # where none is seen: the posterior of `_draw_wrong` (expected_score.py) has this mean


def fit_temperature(
    probs: Probs, truth: NDArray[np.int64], votes: NDArray[np.float32] | None = None, trust: float = 0.0
) -> float:
    """Returns the temperature that minimises the log loss of one label, or of the shares of its votes.

    The more `trust` in the probabilities, the nearer it stays to 1: few mistakes show little (see TRUST in shrunk.py).

    If no image is wrong, and no vote divided, the loss would fall without end as the temperature does. So a share of
    each image then counts for the second most probable class, as much as so many images allow (`SHARE_OF_A_MISTAKE`).
    The images are taken in parts that the processor's cache holds: a step of the search makes no table of all.
    """
    logits = np.log(probs.clip(MIN_PROB))
    images = max(1, CACHED_VALUES // logits.shape[1])
    parts = [slice(start, start + images) for start in range(0, len(logits), images)]
    all_right = logits.shape[1] > 1 and all((logits[part].argmax(1) == truth[part]).all() for part in parts)
    all_right = all_right and (votes is None or bool((votes.max(1) == 1).all()))
    wrong = SHARE_OF_A_MISTAKE / (len(logits) + 1) if all_right else 0.0

    def log_losses(part: slice, temperature: float) -> NDArray[Any]:
        scaled, rows = logits[part] / temperature, np.arange(len(truth[part]))
        true = scaled[rows, truth[part]] if votes is None else (votes[part] * scaled).sum(1)
        highest = scaled.max(1)
        if all_right:
            others = scaled.copy()
            others[rows, truth[part]] = -np.inf
            true = (1 - wrong) * true + wrong * others.max(1)
        scaled -= highest[:, None]
        return np.asarray(highest + np.log(np.exp(scaled, out=scaled).sum(1)) - true)

    def log_loss(temperature: float) -> float:
        loss = float(np.concatenate([log_losses(part, temperature) for part in parts]).mean())
        return loss + trust / len(logits) * float(np.log(temperature)) ** 2

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
