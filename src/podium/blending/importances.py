"""Says what a stack of trees gains from each column of the tables, on images that it was not fitted to.

The cells of a column are dealt anew among the images of a part, with all that was made of them, and the stack that was
fitted to the other parts predicts again: the score falls by what the column was worth. Of two columns that say the
same, each may look worthless, because the other one is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from podium.blending.blend import Blend
from podium.blending.held_out import HeldOut
from podium.blending.nested import Mask
from podium.blending.stack_inputs import CONSTANT, RUNS, inputs_of, sources_of
from podium.tasks.metrics import METRICS, evaluate

TIMES = 3  # that the cells are dealt


@dataclass(frozen=True)
class FittedPart:
    """A blend that was fitted to other images, and those that it is scored on."""

    blend: Blend
    is_scored: Mask


def find_importances(parts: Sequence[FittedPart], held_out: HeldOut, metric: str) -> tuple[tuple[str, float], ...]:
    """Returns how much the score falls without what each column says, a positive number if it gets worse."""
    runs, images, classes = held_out.probs.shape
    sources = np.array(sources_of(runs, classes, held_out.features, has_further=True))
    better, rng = METRICS[metric]().better, np.random.default_rng(0)
    means, inputs = [], []
    for part in parts:
        assert part.blend.stack is not None, "they are of stacks"
        scored = held_out.of(part.is_scored)
        logits = part.blend.stack.logits(scored.probs)
        means.append(logits.mean(0))
        inputs.append(inputs_of(logits, scored.features, has_further=True))

    def score(is_dealt: Mask) -> float:
        probs = np.empty((images, classes))
        for part, mean, own in zip(parts, means, inputs, strict=True):
            assert part.blend.stack is not None
            changed = own.copy()
            changed[:, is_dealt] = own[rng.permutation(len(own))][:, is_dealt]
            probs[part.is_scored] = part.blend.stack.of_inputs(mean, changed)
        return better * evaluate(metric, held_out.targets, probs)

    whole = score(np.zeros(len(sources), bool))
    names = [name for name in dict.fromkeys(sources.tolist()) if name not in (RUNS, CONSTANT)]
    return tuple((name, whole - float(np.mean([score(sources == name) for _ in range(TIMES)])) + 0.0) for name in names)
