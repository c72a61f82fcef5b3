"""The weights that a fine-tuning starts from: the final weights keep a share of them.

Between the model with the frozen head and the fine-tuned one lie models that are better than both (Wortsman et al.,
2022, "Robust fine-tuning of zero-shot models"). Training goes on from the fine-tuned weights; only predictions and the
saved model use those in between.
"""

from copy import deepcopy

import torch
from torch import nn

from podium import PodiumError
from podium.training.plan import Plan


def keep_start(model: nn.Module, plan: Plan, statistics_change: bool) -> "KeptStart | None":
    """Returns None if nothing is kept. Weights in between need statistics of batch norm that fit both ends."""
    recipe = plan.recipe
    if recipe.keep and statistics_change and plan.origins.get("keep") in ("flag", "card"):
        raise PodiumError("--keep needs --norm frozen, because this model has batch norm")
    is_kept = recipe.keep and recipe.head_first and not statistics_change
    return KeptStart(model, recipe.keep) if is_kept else None


class KeptStart:
    def __init__(self, model: nn.Module, share: float) -> None:
        self.share = share
        self.weights = deepcopy(model).eval().requires_grad_(False)
        self.between = deepcopy(self.weights)

    @torch.no_grad()
    def set(self, model: nn.Module) -> None:
        for module in (self.weights, self.between):
            module.load_state_dict(model.state_dict())

    @torch.no_grad()
    def mixed_with(self, trained: nn.Module) -> nn.Module:
        """Returns the model between the start and the trained one."""
        groups = (module.parameters() for module in (self.between, trained, self.weights))
        for between, end, start in zip(*groups, strict=True):
            between.copy_(end.lerp(start, self.share))
        return self.between
