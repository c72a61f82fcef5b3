"""Counts the parameters and the multiply-adds of a model, without computing them if the model allows it."""

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from podium.basics.image_size import ImageSize, sides_of
from podium.models.described_models import in_timm
from podium.models.hub import backbones_in, timm_name
from podium.models.look_inside import look_inside
from podium.models.registry import register_zoo

if TYPE_CHECKING:
    from torch import nn

SMALL = 60_000_000  # parameters of a model whose one image is computed faster than torch's compiler is imported
CLASSES = 1_000  # as papers count; the classes of a competition change the head only


class Costs(NamedTuple):
    parameters: int
    multiply_adds: int  # of one image, forwards


def count_parameters(name: str) -> int:
    """Returns the number of a model's parameters."""
    return sum(look_inside(part, _parameters) for part in backbones_in(timm_name(name)))


def count_costs(name: str) -> Costs:
    """Returns what a model, or a model with a tag, costs at the image size that its weights were made for."""
    return look_inside(name, lambda model: Costs(_parameters(model), _multiply_adds(model)), num_classes=CLASSES)


def _parameters(model: "nn.Module") -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _multiply_adds(model: "nn.Module", image_size: ImageSize | None = None) -> int:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    config: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
    size = (3, *sides_of(image_size)) if image_size else config.get("input_size", (3, 224, 224))
    image = torch.zeros(1, *size)
    # MATH computes attention as two products of matrices: the counter does not know every fused kernel for it.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(image)
    return int(counter.get_total_flops()) // 2  # a multiplication and an addition are two operations


@cache
def multiply_adds_at(name: str, image_size: ImageSize, classes: int) -> int:
    """Returns those of a competition's model: for its image size and its classes."""
    if len(names := backbones_in(name)) > 1:
        return sum(multiply_adds_at(part, image_size, classes) for part in names)
    options: dict[str, Any] = {"num_classes": classes}
    if _needs_size(name):
        options["img_size"] = sides_of(image_size)
    is_small = look_inside(name, _parameters, **options) < SMALL
    device = "cpu" if is_small else "meta"
    return look_inside(name, lambda model: _multiply_adds(model, image_size), device, **options)


def _needs_size(name: str) -> bool:
    import timm

    register_zoo()
    config = timm.get_pretrained_cfg(in_timm(name)[0], allow_unregistered=True)
    return bool(config and config.fixed_input_size)
