"""The weights that a fine-tuning starts from: the final weights keep a share of them.

Between the model with the frozen head and the fine-tuned one lie models that are better than both (Wortsman et al.,
2022, "Robust fine-tuning of zero-shot models"), unless a barrier lies there: the loss on training images tells.
Training goes on from the fine-tuned weights; only predictions and the saved model use those in between.
"""

import math
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import nn

from podium.options.layers.low_rank_layers import merged

TOLERATED = 1.05  # times the line: keeping has lost at 1.25 and above (docs/benchmarks.md)


class KeptStart:
    def __init__(self, model: nn.Module, share: float) -> None:
        self.share = share
        self.weights = deepcopy(merged(model)).eval().requires_grad_(False)
        self.between = deepcopy(self.weights)
        self.loss: float | None = None  # of the start

    def set(self, model: nn.Module) -> None:
        self.weights.load_state_dict(merged(model).state_dict())
        self.loss = None

    def choose(self, trained: nn.Module, loss_of: Callable[[nn.Module], float]) -> tuple[nn.Module, float]:
        """Returns the model between the start and the trained one, and its share; beyond a barrier, the trained one.

        There is no barrier where the loss in between is at most what a straight line between both ends has there, and
        a little more: rounding must not decide.
        """
        self._mix_with(trained)
        if self.loss is None:
            self.loss = loss_of(self.weights)
        line = self.share * self.loss + (1 - self.share) * loss_of(trained)
        if loss_of(self.between) <= TOLERATED * line < math.inf:
            return self.between, self.share
        return trained, 0.0

    @torch.no_grad()
    def _mix_with(self, trained: nn.Module) -> None:
        between, end, start = (model.state_dict() for model in (self.between, trained, self.weights))
        for name, tensor in end.items():
            between[name].copy_(tensor.lerp(start[name], self.share) if tensor.is_floating_point() else tensor)
