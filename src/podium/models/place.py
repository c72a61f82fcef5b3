"""Brings a model to its device, in the layout and with the operators that are fastest there."""

import torch
from torch import nn

from podium.models.build import ModelSpec
from podium.models.device import is_cpu
from podium.models.normalise import Normaliser
from podium.models.operators.exchange import exchange_operators


def place_model(
    model: nn.Module, spec: ModelSpec, device: torch.device, precision: torch.dtype, compiled: bool = False
) -> Normaliser:
    """Returns what makes the model's inputs of images."""
    normalise = Normaliser(spec, device)
    model.to(device).to(memory_format=normalise.layout)
    if are_exchanged(spec.operators, device, compiled):
        exchange_operators(model, device, precision, fixed_norms=spec.norm != "train")
    return normalise


def are_exchanged(operators: str, device: torch.device, compiled: bool) -> bool:
    """Returns whether faster operators take the place of timm's; on a CPU, torch.compile finds its own."""
    return operators == "fast" and (not is_cpu(device) or not compiled)
