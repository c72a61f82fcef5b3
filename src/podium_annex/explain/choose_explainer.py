"""Chooses how to show where a model looks: by the attention of its class token, or by Grad-CAM."""

from collections.abc import Callable
from typing import Any

import torch

from podium.basics.errors import PodiumError
from podium.basics.image_size import ImageSize, sides_of
from podium_annex.explain.attention import class_attention
from podium_annex.explain.gradients import grad_cam

Explainer = Callable[[Any, torch.Tensor], Any]  # of a model and its inputs: maps [images, rows, columns]


def choose_explainer(model: Any, size: ImageSize) -> tuple[Explainer, str]:
    """Returns the attention of the class token if the model has one, else Grad-CAM; raises if it has neither."""
    trial = torch.zeros(1, 3, *sides_of(size))
    try:
        class_attention(model, trial)
    except PodiumError:
        grad_cam(model, trial)
        return grad_cam, "Grad-CAM"
    return _mean_attention, "attention of the class token"


def _mean_attention(model: Any, images: torch.Tensor) -> Any:
    return class_attention(model, images).mean(1)
