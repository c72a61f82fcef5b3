"""Looks at the modules of a model whose tensors have no values, which takes a tenth of a second."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from podium.zoo.registry import register_zoo

if TYPE_CHECKING:
    from torch import nn

Seen = TypeVar("Seen")


def look_inside(name: str, look: "Callable[[nn.Module], Seen]", **options: Any) -> Seen:
    """Builds the model on torch's device meta; on the CPU if it needs the values of its tensors."""
    import timm
    import torch

    register_zoo()

    def look_on(device: str) -> Seen:
        with warnings.catch_warnings(action="ignore"), torch.device(device):
            return look(timm.create_model(name, pretrained=False, **options).eval().requires_grad_(False))

    try:
        return look_on("meta")
    except (RuntimeError, NotImplementedError):
        return look_on("cpu")


class Modules(NamedTuple):
    """What a backbone's modules say of it; its name would not."""

    kind: str  # a key of recipe_defaults.PRETRAINED
    has_batch_norm: bool


@cache
def modules_of(name: str) -> Modules:
    return look_inside(name, lambda model: Modules(_kind_of(model), _count_batch_norms(model) > 0))


def _count_batch_norms(model: "nn.Module") -> int:
    from torch import nn

    return sum(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def _kind_of(model: "nn.Module") -> str:
    """Attention tells a transformer, a feature map of one size a plain one; the norms tell the others apart."""
    from torch import nn

    modules = list(model.modules())
    has_attention = any(isinstance(getattr(module, "num_heads", None), int) for module in modules)
    other_norms = sum(isinstance(module, nn.LayerNorm | nn.GroupNorm | nn.RMSNorm) for module in modules)
    if _count_batch_norms(model) > other_norms and not has_attention:
        return "batch norm"
    info: Any = getattr(model, "feature_info", None) or ()
    reductions = info.reduction() if hasattr(info, "reduction") else [layer["reduction"] for layer in info]
    if len(set(reductions)) == 1:
        return "vit"
    return "swin" if has_attention else "convnext"
