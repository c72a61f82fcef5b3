"""Stochastic depth: a step leaves out some residual blocks of some images, the deeper the more often.

Huang et al., 2016, as timm has it (drop path). The values by kind of model are those of published fine-tunings; how
much they gain has not been measured here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.options.knob import ALWAYS_RECORDED, knob
from podium.options.moves.move import Move
from podium.options.search_values import Between, Searched


@dataclass(frozen=True)
class Depth(Move):
    with_head = True  # a model is built with it, whatever learns
    tried = {"drop_path": 0.5, "model": "test_vit"}
    neutral = {"drop_path": 0.0}

    drop_path: float = knob(
        "stochastic depth rate, increasing with depth",
        0,
        0.95,
        off=ALWAYS_RECORDED,
        also_called=("drop-path-rate", "stochastic-depth"),
        searched=Searched(Between(0, 0.3), closed_at=0),  # not all models have stochastic depth
    )

    @property
    def is_on(self) -> bool:
        return self.drop_path > 0

    def of_learning(self) -> str:
        return f"drop path {self.drop_path:g}"

    def model_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**options, "drop_path_rate": self.drop_path}
