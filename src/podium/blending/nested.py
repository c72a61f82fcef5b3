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
from podium.blending.gain import Gain
from podium.blending.held_out import HeldOut

Mask = NDArray[np.bool_]  # of the held-out images


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
