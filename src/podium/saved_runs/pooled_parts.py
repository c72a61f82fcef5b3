"""How what a model says of several parts of an image becomes one answer: boxes of objects, or tiles.

The fold files hold the mean and the other ways of tasks/pool.py. A fold's answers are pooled in the way that was better
than the mean on the images that the other folds have held out, and else by the mean: so no image chooses for itself.
"""

from collections.abc import Sequence

import numpy as np

from podium.saved_runs.prediction_files import Predictions
from podium.tasks.metrics import score_per_image

MEAN = "mean"
CLEAR = 2.0  # standard errors of a mean difference


def best_pooling(others: Sequence[Predictions]) -> str:
    """Returns the way that these folds speak for."""
    best, least = MEAN, 0.0
    for way in others[0].pooled if others else ():
        gains = np.concatenate([_losses(one, MEAN) - _losses(one, way) for one in others if way in one.pooled])
        error = float(gains.std()) / max(len(gains), 1) ** 0.5
        gain = float(gains.mean())
        if gain > max(CLEAR * error, least):
            best, least = way, gain
    return best


def _losses(held_out: Predictions, way: str) -> np.ndarray:
    probs = held_out.pooled.get(way, held_out.probs)
    losses = score_per_image(held_out.target.task.loss, held_out.target, probs.astype(np.float64))
    assert losses is not None  # a log loss is a mean over images
    return np.asarray(losses, np.float64)
