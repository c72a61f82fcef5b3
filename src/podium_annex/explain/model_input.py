"""What all explanations need of a model: its name, inputs of its type, its grid of patches, evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from podium.basics.errors import PodiumError


def name_of(model: nn.Module) -> str:
    config: Any = getattr(model, "pretrained_cfg", None) or {}
    return str(config.get("architecture") or type(model).__name__)


def prepare_input(model: nn.Module, images: Tensor) -> Tensor:
    """Returns a copy of normalised images [n, 3, height, width], on the device and in the precision of the model."""
    if not isinstance(images, Tensor) or images.ndim != 4 or not images.is_floating_point():
        raise PodiumError(
            "images must be a tensor of normalised images, n x 3 x height x width, as the model takes them"
        )
    weights = next((weights for weights in model.parameters() if weights.is_floating_point()), images)
    return images.detach().to(weights.device, weights.dtype, copy=True)


@contextmanager
def in_evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts all parts of a model into evaluation mode; afterwards, each is in its own mode again."""
    in_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in in_training:
            module.training = True


def prefix_of(model: nn.Module) -> int:
    """Returns how many tokens stand before the patches: class token, distillation token, registers."""
    return int(getattr(model, "num_prefix_tokens", 0) or 0)


def grid_of(model: nn.Module, patches: int, images: Tensor) -> tuple[int, int]:
    """Returns the rows and columns of the patches: their grid has the shape of the images."""
    height, width = images.shape[-2:]
    rows = max(round((max(patches, 0) * height / width) ** 0.5), 1)
    if patches < 1 or patches % rows:
        raise PodiumError(f"{name_of(model)} has {patches} patches, which are no grid; take a model of square patches")
    return rows, patches // rows


def run_in_evaluation_mode(model: nn.Module, inputs: Tensor) -> None:
    with torch.inference_mode(), in_evaluation_mode(model):
        model(inputs)
