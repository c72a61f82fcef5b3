"""Low-rank updates of attention (LoRA, Hu et al., 2021).

The linear layers of attention keep their pretrained weights and learn an update of a low rank; of the rest of the
backbone, only the norms learn. So the optimiser has moments for few parameters (of ViT-L with rank 16, 0.8 %).
`merged` adds the updates to the weights: what predicts and what is saved is a plain model.
"""

import math
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np
import torch
from timm.layers import RmsNorm, RmsNorm2d, SimpleNorm, SimpleNorm2d
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from podium.basics.errors import PodiumError
from podium.options.layers.heads import head_parameters
from podium.options.layers.pooling import Pooling

ALPHA = 32.0  # over the rank, the factor of an update: so one learning rate suits all ranks (options/moves/low_rank.py)
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _NormBase, RmsNorm, RmsNorm2d, SimpleNorm, SimpleNorm2d)
Model = TypeVar("Model", bound=nn.Module)


class LowRankLinear(nn.Linear):
    """A linear layer whose weight is a fixed one plus an update, which begins at zero.

    The weight is a property, not a second product in `forward`: some of timm's attention layers read the weight of a
    linear layer and do not call it.
    """

    fixed: nn.Parameter
    down: nn.Parameter  # [rank, inputs]
    up: nn.Parameter  # [outputs, rank]

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        with torch.autocast(self.fixed.device.type, enabled=False):  # as `merged` computes it
            return self.fixed + ALPHA / len(self.down) * (self.up @ self.down)


def add_low_rank_updates(model: nn.Module, rank: int, rng: np.random.Generator, name: str) -> None:
    """Lets the model learn updates of this rank, its norms and its head, and nothing else."""
    layers = _attention_layers(model)
    if not layers:
        raise PodiumError(f"{name} has no attention whose linear layers --lora could update; leave it out")
    model.requires_grad_(False)
    for module in model.modules():
        if isinstance(module, (*NORMS, Pooling)):
            module.requires_grad_(True)
    for parameter in head_parameters(model):
        parameter.requires_grad_(True)
    for layer in layers:
        _update_by_low_rank(layer, rank, rng)


def _attention_layers(model: nn.Module) -> list[nn.Linear]:
    """Returns the linear layers right inside modules with heads: for queries, keys, values, and the output."""
    attention = [module for module in model.modules() if isinstance(getattr(module, "num_heads", None), int)]
    return [layer for module in attention for layer in module.children() if type(layer) is nn.Linear]


def _update_by_low_rank(layer: Any, rank: int, rng: np.random.Generator) -> None:
    """Changes the class of a layer, as its place, name and bias stay."""
    bound = 1 / math.sqrt(layer.in_features)
    layer.down = nn.Parameter(torch.from_numpy(rng.uniform(-bound, bound, (rank, layer.in_features))).to(layer.weight))
    layer.up = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
    layer.fixed = layer.weight
    del layer.weight
    layer.__class__ = LowRankLinear


def low_rank_parameters(model: nn.Module) -> list[nn.Parameter]:
    layers = [layer for layer in model.modules() if isinstance(layer, LowRankLinear)]
    return [parameter for layer in layers for parameter in (layer.down, layer.up)]


@torch.no_grad()
def merged(model: Model) -> Model:
    """Returns a copy whose weights include their updates; the model itself if it has none."""
    if not low_rank_parameters(model):
        return model
    plain = deepcopy(model)
    for layer in list(plain.modules()):
        if isinstance(layer, LowRankLinear):
            _merge(layer)
    return plain


def _merge(layer: Any) -> None:
    weight = layer.weight
    del layer.fixed, layer.down, layer.up
    layer.__class__ = nn.Linear
    layer.weight = nn.Parameter(weight, requires_grad=False)
