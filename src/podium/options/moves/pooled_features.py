"""How a model pools its features: as timm does, by the class token, by means, or by a mean of powers.

Class token and mean: Oquab et al., 2023 (DINOv2); a mean of powers: Radenovic et al., 2019. For heads on frozen
features of hand signs, mean and maximum gained 1.3 points and a mean of cubes 1.0, both within chance
(docs/benchmarks.md). options/layers/pooling.py changes the model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.options.knob import knob
from podium.options.moves.move import Move
from podium.options.recipe_options import POOLS, TIMM_POOL


@dataclass(frozen=True)
class PooledFeatures(Move):
    with_head = True
    tried = {"pool": "gem"}

    pool: str = knob(
        "how features are pooled: default (as timm does), token (the class token), mean, both (class token and mean, or"
        " mean and maximum, side by side), gem (a mean of powers, whose exponent is learned), or your own"
        " (docs/extend.md)",
        off=TIMM_POOL,
        default=TIMM_POOL,
        why="as the pretrained weights were trained",
        choices=POOLS,
        is_move=True,
    )

    def of_learning(self) -> str:
        return f"pool {self.pool}"

    def spec(self) -> Mapping[str, Any]:
        return {"pool": self.pool}
