"""Layers that stay as they are while the others learn."""

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from podium.options.layers.heads import layer_numbers


def freeze_layers(model: nn.Module, share: float) -> None:
    """Freezes a share of the backbone's layers, those nearest to the image; the head always learns."""
    numbers = layer_numbers(model)
    last = max(numbers.values())  # the head's, and of what follows the last block
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(numbers.get(name, last) >= share * last)


def set_norms(model: nn.Module, gathers: bool) -> None:
    """Lets batch norm gather statistics in training, unless they are fixed, or its layer is frozen."""
    for module in model.modules():
        if isinstance(module, _NormBase):
            learns = any(parameter.requires_grad for parameter in module.parameters()) or not list(module.parameters())
            module.train(gathers and learns)
