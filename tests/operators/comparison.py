"""What a model computes, to compare it with the same model in another way."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def logits_and_gradients(model: nn.Module, images: Tensor, precision: torch.dtype) -> dict[str, Tensor]:
    """Returns float64 copies of the logits and of the gradients of all parameters, and of the images."""
    images = images.detach().clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        logits = model(images)
    loss = F.cross_entropy(logits.to(images.dtype), torch.arange(len(images)) % 5)
    gradients = torch.autograd.grad(loss, [images, *model.parameters()])
    names = ["images", *(name for name, _ in model.named_parameters())]
    found = {"logits": logits, **dict(zip(names, gradients, strict=True))}
    return {name: tensor.detach().double() for name, tensor in found.items()}


def error(found: Tensor, exact: Tensor) -> float:
    return float((found - exact).norm() / exact.norm().clamp_min(1e-12))
