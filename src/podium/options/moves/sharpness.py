"""Sharpness-aware minimisation: each step computes its gradient where the loss is highest nearby.

Foret et al., 2021. It doubles the time of a step, so compare it with twice the epochs. It has not been measured here
beyond its time (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium.options.knob import knob
from podium.options.moves.move import Backward, Cost, Move

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Sharpness(Move):
    tried = {"sam": 0.05}
    sam: float = knob(
        "radius of sharpness-aware minimisation, which doubles the time of a step; 0: off",
        0,
        10,
        off=0.0,
        default=0.0,
        why="whether it beats twice the epochs depends on the competition",
        is_move=True,
    )

    @property
    def cost(self) -> Cost:
        return Cost(passes=1, copies_of_learned=1)

    def of_learning(self) -> str:
        return f"sam {self.sam:g}"

    def gradient(self, backward: Backward, model: nn.Module, statistics: Sequence[Tensor]) -> Backward:
        def backward_uphill(images: Tensor, targets: Tensor) -> Tensor:
            loss = backward(images, targets)
            with moved_uphill(model, statistics, self.sam):
                backward(images, targets)
            return loss

        return backward_uphill


@contextmanager
def moved_uphill(model: nn.Module, statistics: Sequence[Tensor], radius: float) -> Iterator[None]:
    """Within the block, the weights are those of the highest loss nearby.

    The gradient is computed there; the update starts from the original weights.
    """
    import torch

    gradients = {weight: weight.grad for weight in model.parameters() if weight.grad is not None}
    before = [(tensor, tensor.detach().clone()) for tensor in (*gradients, *statistics)]
    scale = radius / (torch.nn.utils.get_total_norm(gradients.values()) + 1e-12)
    with torch.no_grad():
        for weight, gradient in gradients.items():
            weight.add_(gradient * scale)
    yield
    with torch.no_grad():
        for tensor, value in before:
            tensor.copy_(value)
