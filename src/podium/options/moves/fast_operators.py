"""Parts of a model are computed in faster ways, with the same results up to rounding.

Up to 1.4 times as many images per second on a CPU, and on a GPU the same as timm (docs/benchmarks.md). operators/ has
the ways; models/place.py puts them into a model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.options.knob import knob
from podium.options.moves.move import Move


@dataclass(frozen=True)
class FastOperators(Move):
    with_head = True
    topic = "this machine"
    tried = {"operators": "fast"}

    operators: str = knob(
        "fast (parts of the model are computed in faster ways, with the same results up to rounding) or timm (as timm"
        " computes them)",
        off="timm",
        default="fast",
        why="up to 1.4 times as many images per second on a CPU; on a GPU the same as timm",
        choices=("fast", "timm"),
    )

    def spec(self) -> Mapping[str, Any]:
        return {"operators": self.operators}
