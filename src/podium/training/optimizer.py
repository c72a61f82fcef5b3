"""The optimiser of a run: AdamW or Muon, with a learning rate for each layer."""

import logging
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from timm.optim import create_optimizer_v2
from torch import nn

from podium.models.device import cpu_multiplies_bfloat16, is_cpu
from podium.models.low_rank import low_rank_parameters
from podium.recipe import Recipe
from podium.recipe_defaults import LORA_RATE
from podium.terminal import say

DECAYED_LAYERS = 12  # over which the layer decay is spread, as in the ViT-Base of the papers


def create_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    # Muon's updates are scaled to the length of AdamW's, so the same learning rates serve.
    own: dict[str, Any] = {"fused": True} if recipe.optimizer == "adamw" else {"adjust_lr_fn": "match_rms_adamw"}
    with _without_timms_warning():
        optimizer: torch.optim.Optimizer = create_optimizer_v2(
            model,
            recipe.optimizer,
            lr=recipe.lr,
            weight_decay=recipe.weight_decay,
            layer_decay=recipe.layer_decay,
            **own,
        )
    if recipe.layer_decay != 1 and all(group.get("lr_scale", 1.0) == 1 for group in optimizer.param_groups):
        _note_useless_decay(recipe.model)
    _limit_layer_decay(optimizer, recipe.layer_decay)
    _scale_rate(optimizer, low_rank_parameters(model), LORA_RATE)
    device = next(model.parameters()).device
    if recipe.optimizer == "muon" and recipe.operators == "fast" and is_cpu(device):
        from podium.operators.muon import make_faster  # it needs inner parts of timm, which other runs do not

        make_faster(optimizer, torch.bfloat16 if cpu_multiplies_bfloat16() else torch.float32)
    return optimizer


@contextmanager
def _without_timms_warning() -> Iterator[None]:
    """Silences what timm says of a model of one layer, also if no decay is asked for."""
    logger = logging.getLogger("timm.optim._param_groups")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@cache  # once, not in each fold
def _note_useless_decay(name: str) -> None:
    say(f"podium: note: --layer-decay has no effect: {name} lacks timm's group_matcher, which tells its layers; add it")


def _limit_layer_decay(optimizer: torch.optim.Optimizer, decay: float) -> None:
    """Spreads the decay over DECAYED_LAYERS, because published values assume about that many layers.

    timm counts 38 layers in convnext_small; 0.8 to that power would freeze the stem.
    """
    lowest = min(group.get("lr_scale", 1.0) for group in optimizer.param_groups)
    if lowest < decay**DECAYED_LAYERS:
        depth = math.log(lowest) / math.log(decay)
        for group in optimizer.param_groups:
            group["lr_scale"] **= DECAYED_LAYERS / depth


def _scale_rate(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter], factor: float) -> None:
    """Gives the parameters groups of their own. `update` multiplies the learning rate by each group's lr_scale."""
    if factor == 1:
        return
    scaled_ones = set(parameters)
    for group in list(optimizer.param_groups):
        own = [parameter for parameter in group["params"] if parameter in scaled_ones]
        rest = [parameter for parameter in group["params"] if parameter not in scaled_ones]
        scaled = {"lr_scale": group.get("lr_scale", 1.0) * factor}
        if own and rest:
            group["params"] = rest
            optimizer.add_param_group({**group, **scaled, "params": own})
        elif own:
            group |= scaled
