"""Nested cross-validation: what is fitted to the held-out images is scored on images that it was not fitted to.

Weights of runs, decisions and poolings are judged this way: fitted to all parts of the held-out images except one, and
applied to that one. A change is taken if its gain is more than chance.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from podium.blending.blend import Probs, Step
from podium.blending.expected_score import Interval, bootstrap_scores, percentile_interval
from podium.blending.held_out import HeldOut
from podium.tasks.metrics import METRICS, evaluate

Mask = NDArray[np.bool_]  # of the held-out images


@dataclass(frozen=True)
class Gain:
    """What a change of the predictions brings."""

    before: float  # the score without it
    score: float
    gain: float  # positive is better for every metric
    interval: Interval = (math.nan, math.nan)  # 95 %; not a number if there is no gain

    @property
    def is_clear(self) -> bool:
        """Returns whether it is more than chance."""
        return self.interval[0] > 0

    def as_json(self) -> dict[str, Any]:
        between = [bound if math.isfinite(bound) else None for bound in self.interval]
        return {"score_before": self.before, "score": self.score, "gain": self.gain, "between": between}


S = TypeVar("S", bound=Step)


@dataclass(frozen=True)
class Judged(Generic[S]):
    """A step that was tried."""

    step: S  # fitted to all held-out images
    gain: Gain  # of such steps, fitted to other images
    is_taken: bool = False

    @property
    def taken(self) -> S | None:
        return self.step if self.is_taken else None

    def as_json(self) -> dict[str, Any]:
        return {**self.step.as_json(), "is_taken": self.is_taken, **self.gain.as_json()}

    def describe(self, metric: str) -> str:
        """Returns one line for people."""
        low, high = self.gain.interval
        gain = f"{self.gain.gain:+z.4f}"
        if math.isfinite(low):
            gain += f", 95 % interval {low:+z.4f} to {high:+z.4f}"
        scores = f"{self.step.describe()} for {metric}: {self.gain.before:z.4f} -> {self.gain.score:z.4f} ({gain})"
        return f"{scores}, {'taken' if self.is_taken else 'not taken: that may be chance'}"


def predict_nested(held_out: HeldOut, predict: Callable[[Mask, Mask], Probs]) -> Probs:
    """Returns what `predict(fitted, scored)` makes of each part: the part is `scored`, and all others are `fitted`."""
    predicted = np.empty(held_out.probs.shape[1:])
    for part in np.unique(held_out.parts):
        is_scored = held_out.parts == part
        predicted[is_scored] = predict(~is_scored, is_scored)
    return predicted


def measure_gain(held_out: HeldOut, before: Probs, after: Probs, metric: str) -> Gain:
    """Scores both on the same resamples of the held-out images."""
    better = METRICS[metric]().better
    scores = evaluate(metric, held_out.targets, before), evaluate(metric, held_out.targets, after)
    gain = better * (scores[1] - scores[0]) + 0.0  # turns -0.0 into 0.0
    if not gain > 0:
        return Gain(*scores, gain)
    resampled = bootstrap_scores(held_out, before, metric), bootstrap_scores(held_out, after, metric)
    return Gain(*scores, gain, percentile_interval(better * (resampled[1] - resampled[0])))
