"""What a change of the predictions gains, and whether that is more than chance: one rule for all who ask.

Decisions, poolings, blends, runs beside others and the winners of searches are judged by it: both predictions are
scored on the same resamples of the held-out images, and the gain is clear if its 95 % interval lies above zero.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from podium.blending.blend import Probs
from podium.blending.expected_score import Interval, bootstrap_scores, percentile_interval
from podium.blending.held_out import HeldOut
from podium.tasks.metrics import METRICS, evaluate


@dataclass(frozen=True)
class Gain:
    before: float  # the score without the change
    score: float
    gain: float  # positive is better for every metric
    interval: Interval = (math.nan, math.nan)  # 95 %; not a number where it says nothing

    @property
    def is_clear(self) -> bool:
        return self.interval[0] > 0

    @property
    def is_harm(self) -> bool:
        return self.interval[1] < 0

    @property
    def verdict(self) -> str:
        return "it helps here" if self.is_clear else "it harms here" if self.is_harm else "that may be chance"

    def as_json(self) -> dict[str, Any]:
        between = [bound if math.isfinite(bound) else None for bound in self.interval]
        return {"score_before": self.before, "score": self.score, "gain": self.gain, "between": between}


def gain_of(held_out: HeldOut, before: Probs, after: Probs, metric: str, is_taken_or_left: bool = False) -> Gain:
    """Returns what these predictions gain over those; images of one group say nothing about other groups.

    A change that is only taken or left needs no interval where it gains nothing.
    """
    better = METRICS[metric]().better
    scores = evaluate(metric, held_out.targets, before), evaluate(metric, held_out.targets, after)
    gain = better * (scores[1] - scores[0]) + 0.0  # turns -0.0 into 0.0
    if len(np.unique(held_out.groups)) == 1 or (is_taken_or_left and not gain > 0):
        return Gain(*scores, gain)
    resampled = bootstrap_scores(held_out, before, metric), bootstrap_scores(held_out, after, metric)
    return Gain(*scores, gain, percentile_interval(better * (resampled[1] - resampled[0]) + 0.0))
