"""The optimiser of a run: AdamW, Muon or the project's own, with a learning rate for each layer."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from timm.optim import create_optimizer_v2
from torch import nn

from podium.models.device import cpu_multiplies_bfloat16, is_cpu
from podium.options.moves.fast_operators import FastOperators
from podium.options.recipe import Options, Recipe
from podium.options.recipe_options import OPTIMIZERS

OF_A_GROUP = ("params", "lr", "weight_decay", "lr_scale")  # that every optimiser knows, and the share of the rate


def create_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    own = OPTIMIZERS[recipe.optimizer]
    # Muon's updates are scaled to the length of AdamW's, so the same learning rates serve.
    options: Options = {"adjust_lr_fn": "match_rms_adamw"} if recipe.optimizer == "muon" else {"fused": True}
    for move in recipe.moves:
        options = move.optimizer_options(options)
    with _without_timms_warning():
        optimizer: torch.optim.Optimizer = create_optimizer_v2(
            model,
            "adamw" if own else recipe.optimizer,
            lr=recipe.lr,
            **options,
        )
    if own:  # it gets the groups that AdamW would have
        optimizer = own([{key: group[key] for key in OF_A_GROUP if key in group} for group in optimizer.param_groups])
    for move in recipe.moves:
        move.rates(optimizer, model, recipe.model)
    device = next(model.parameters()).device
    if recipe.optimizer == "muon" and FastOperators.of(recipe).is_on and is_cpu(device):
        from podium.models.operators.muon import make_faster  # it needs inner parts of timm, which other runs do not

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
