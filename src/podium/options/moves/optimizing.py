"""What the optimizer does beside its steps: how fast the learning rate rises and falls, and weight decay.

The rate warms up, and falls along a half cosine to zero (Loshchilov and Hutter, 2017), a pure function of the step.
Decoupled decay of matrices: Loshchilov and Hutter, 2019; from scratch with Muon, 1.5 scores a tenth of a point above
0.05 (docs/benchmarks.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from podium.options.knob import ALWAYS_RECORDED, knob
from podium.options.moves.move import Move

COSINE = "cosine"
# extend.py adds a project's own entries.
SCHEDULES: dict[str, Callable[[float], float] | None] = {COSINE: None}  # None: below


@dataclass(frozen=True)
class Optimizing(Move):
    tried = {"weight_decay": 0.1, "warmup": 1.0}
    neutral = {"weight_decay": 0.05, "warmup": 0.0}
    weight_decay: float = knob(
        "decoupled weight decay, for matrices only",
        0,
        10,
        off=ALWAYS_RECORDED,
        default=0.05,
        why="as in the AdamW recipes that the rows by kind of model come from",
        also_called=("wd", "l2"),
    )
    warmup: float = knob(
        "epochs of warm-up; at most a fifth of the run",
        0,
        off=ALWAYS_RECORDED,
        also_called=("warmup-epochs", "warmup-steps", "warmup-ratio"),
    )
    schedule: str = knob(
        "how the learning rate goes on after the warm-up: cosine (down to zero), or your own (docs/extend.md)",
        off=COSINE,
        default=COSINE,
        why="it ends at zero, so the last weights are the model",
        choices=SCHEDULES,
        for_heads=False,
    )

    @property
    def is_on(self) -> bool:
        return True

    def of_learning(self) -> str:
        words = [f"weight decay {self.weight_decay:g}"] if self.weight_decay else []
        return ", ".join(words + ([f"schedule {self.schedule}"] if self.schedule != COSINE else []))

    def optimizer_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**options, "weight_decay": self.weight_decay}

    def rate(self, rate: float, step: int, total_steps: int, per_epoch: int) -> float:
        """Rises linearly to the peak during the warm-up, then goes on as the schedule says."""
        warmup = min(self.warmup * per_epoch, total_steps / 5)
        if step < warmup:
            return rate * (step + 1) / (warmup + 1)
        if own := SCHEDULES[self.schedule]:
            return rate * own((step - warmup) / (total_steps - warmup))
        return rate * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total_steps - warmup)))
