"""Averaged weights: what predicts is a moving average of the weights, which forgets the first ones.

Polyak and Juditsky, 1992; as timm and fastai keep it. Its length is a share of the run, so that a short run has one,
too. Other lengths have not been measured here; a second average (SWA) gained nothing on four sets and is gone
(docs/benchmarks.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium.options.knob import ALWAYS_RECORDED, knob
from podium.options.moves.move import Cost, Move

if TYPE_CHECKING:
    from timm.utils import ModelEmaV3
    from torch import nn


@dataclass(frozen=True)
class Averaging(Move):
    tried = {"ema": 0.5}
    neutral = {"ema": 0.0}
    ema: float = knob(
        "share of the run that the averaged weights remember; 0: use the last weights",
        0,
        1,
        off=ALWAYS_RECORDED,
        default=0.1,
        why="long enough to average out noise, short enough to forget the first epochs",
        also_called=("model-ema", "model-ema-decay", "ema-decay"),
    )

    @property
    def is_on(self) -> bool:
        return self.ema > 0

    @property
    def cost(self) -> Cost:
        return Cost(copies=1)

    def of_learning(self) -> str:
        return f"ema {self.ema:g}"

    def average(self, average: ModelEmaV3 | None, model: nn.Module, steps: int) -> ModelEmaV3 | None:
        from timm.utils import ModelEmaV3

        return ModelEmaV3(model, decay=1 - 1 / max(1.0, self.ema * steps), use_warmup=True)
