"""Simulated runs whose strength is known, for the tests of blending."""

import numpy as np

from by_array import targets_of
from podium.blending.held_out import HeldOut


def simulate_runs(
    strengths: tuple[float, ...], image_count: int, seed: int, shared_noise: float = 0.5, class_count: int = 8
) -> HeldOut:
    """Returns runs that know the true class as well as their strength says, and make partly the same errors.

    Their probabilities are calibrated: the best temperature of each run is 1. Every image is a group of its own.
    """
    rng = np.random.default_rng(seed)
    targets = rng.integers(class_count, size=image_count)
    common = rng.normal(size=(image_count, class_count))
    powers = []
    for strength in strengths:
        own = rng.normal(size=(image_count, class_count))
        logits = shared_noise * common + (1 - shared_noise**2) ** 0.5 * own
        logits[np.arange(image_count), targets] += strength
        powers.append(np.exp(strength * logits))  # by Bayes' rule, for noise of standard deviation 1
    probs = np.array([run_powers / run_powers.sum(1, keepdims=True) for run_powers in powers])
    return HeldOut(probs, targets_of(targets), np.arange(image_count) % 5, np.arange(image_count))
