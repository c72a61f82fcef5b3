"""Statistics of batch norm: gathered from each batch, kept as they were pretrained, or computed anew and then kept.

Where there are many images, gathered and kept ones are equal within chance, and kept ones are a fifth faster; with 285
images, gathering loses three points at its usual rate. Computing them anew loses up to 20 points nearly everywhere,
and is there for images that are nothing like the pretrained ones (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.options.knob import knob
from podium.options.moves.move import Move

if TYPE_CHECKING:
    from torch import nn

TRAIN = "train"
NORMS = (TRAIN, "frozen", "adapt")


@dataclass(frozen=True)
class BatchNorm(Move):
    with_head = True  # the features of a frozen backbone are computed with the statistics that stay
    tried = {"norm": "frozen"}

    norm: str = knob(
        "statistics of batch norm: train (of each batch), frozen (those of the weights stay) or adapt (computed anew"
        " from the training images at this size, then they stay)",
        off="train",
        default="train",
        why="what suits each batch; kinds of models with pretrained statistics have a value of their own",
        choices=NORMS,
    )

    @property
    def is_on(self) -> bool:
        return True

    def of_learning(self) -> str:
        return f"batch norm {self.norm}" if self.norm != TRAIN else ""

    def spec(self) -> Mapping[str, Any]:
        return {"norm": self.norm}

    @property
    def gathers_statistics(self) -> bool:
        return self.norm == TRAIN

    @property
    def adapts_statistics(self) -> bool:
        return self.norm == "adapt"

    def set_training(self, model: nn.Module) -> None:
        from podium.options.layers.frozen import set_norms

        set_norms(model, self.gathers_statistics)
