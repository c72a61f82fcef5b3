"""Looks at the modules of a model whose tensors have no values, which takes a tenth of a second."""

import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from podium.models.described_models import in_timm
from podium.models.inner_weights import watch_loading
from podium.models.registry import register_zoo
from podium.options.extensions.extension_files import extension_models

if TYPE_CHECKING:
    from torch import nn

Seen = TypeVar("Seen")


def look_inside(
    name: str, look: "Callable[[nn.Module], Seen]", device: str = "meta", pretrained: bool = False, **options: Any
) -> Seen:
    """Builds the model on torch's device meta; on the CPU if it needs the values of its tensors.

    Its weights have no initial values, nor pretrained ones. To use the model on meta imports torch's compiler, which
    takes a second.
    """
    import timm
    import torch

    register_zoo()
    architecture, arguments = in_timm(name)

    def look_on(device: str) -> Seen:
        with warnings.catch_warnings(action="ignore"), torch.device(device):
            with skip_initial_values(), watch_loading():
                model = timm.create_model(architecture, pretrained=pretrained, **{**arguments, **options})
            return look(model.eval().requires_grad_(False))

    try:
        return look_on(device)
    except (RuntimeError, NotImplementedError):
        return look_on("cpu")


def inner_backbones(name: str) -> tuple[str, ...]:
    """Returns the models of timm, MODEL.TAG, inside a model of one's own that take pretrained weights; else nothing.

    A model of one's own that timm's builder makes is no such model: it has weights of its own, or none.
    """
    model = name.partition(".")[0]
    if model not in extension_models():
        return ()
    return _inner_backbones(model, sys.modules["timm"].models.model_entrypoint(model))


@cache
def _inner_backbones(name: str, entrypoint: Any) -> tuple[str, ...]:
    """Looks once for each function that registers the model: another file may have one of the same name."""
    import torch

    for device in ("meta", "cpu"):
        try:
            with watch_loading() as noted, torch.device(device), skip_initial_values():
                model = entrypoint(pretrained=True, num_classes=2)
            return tuple(dict.fromkeys(inner.name for inner in noted if inner.model is not model))
        except Exception:  # of the project's code, in any way; whoever builds the model says it
            continue
    return ()


def skip_initial_values() -> Any:
    """Leaves out the drawing of initial weights: it takes seconds, and on meta it imports torch's compiler."""
    from torch import linspace, nn
    from torch.overrides import TorchFunctionMode

    def changes_weights(function: Any, args: Any) -> bool:
        name = getattr(function, "__name__", "")
        changes = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
        return changes and len(args) > 0 and isinstance(args[0], nn.Parameter)

    class WithoutValues(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(function, "__module__", "") == "torch.nn.init" or changes_weights(function, args):
                return args[0] if args else kwargs["tensor"]
            options = {"device": "cpu"} if function is linspace else {}  # the rates of stochastic depth, read at once
            return function(*args, **{**options, **(kwargs or {})})

    return WithoutValues()


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
