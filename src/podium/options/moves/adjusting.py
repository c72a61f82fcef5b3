"""Logit adjustment: learn as if all classes were equally frequent, for metrics that count classes alike.

Menon et al., 2021: the loss sees the logits moved by the logarithms of the classes' shares, so that the head itself
need not say how frequent they are. On a long tail, scored by classes, it gained 8.5 points on hand signs and 5.5 on
digits, and nothing on clothes, whose rare classes have one image (docs/benchmarks.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium.options.knob import knob
from podium.options.moves.move import Loss, Move, Taught, refuse_unless_one_class
from podium.tasks.task import Targets

if TYPE_CHECKING:
    from torch import Tensor

TWICE = "do the same twice"  # of two ways for rare classes


@dataclass(frozen=True)
class Adjusting(Move):
    topic = "rare classes"
    tried = {"adjust": 1.0}
    adjust: float = knob(
        "logit adjustment: learn as if all classes were equally frequent (1), or partly so (Menon et al., 2021); for"
        " metrics that count classes alike",
        0,
        3,
        off=0.0,
        default=0.0,
        why="right for a metric that counts every image alike, such as accuracy",
        for_heads=False,
        is_move=True,
        against={
            "balance": TWICE,
            "class_weights": TWICE,
            "head": "both favour rare classes",
            "teacher": "contradict each other: a teacher says how frequent its classes are",
        },
    )

    def of_learning(self) -> str:
        return f"adjust {self.adjust:g}"

    def check_targets(self, targets: Targets, without_labels: int) -> None:
        refuse_unless_one_class("--adjust", targets)

    @property
    def shares_left_out(self) -> float:
        return self.adjust

    def label_loss(self, loss: Loss, taught: Taught) -> Loss:
        import torch

        from podium.options.moves.loss_functions import log_shares

        shift = torch.from_numpy(self.adjust * log_shares(taught.targets, taught.classes)).to(taught.device)

        def adjusted(logits: Tensor, targets: Tensor) -> Tensor:
            return loss(logits + shift, targets)

        return adjusted
