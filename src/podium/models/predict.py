"""The one way from images to probabilities: validation, out-of-fold and test are the same function."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.models.build import Normaliser
from podium.models.device import autocast

ZOOM = 16  # a sixteenth goes at each edge


def views_of(images: Tensor, views: str) -> list[Tensor]:
    """The images as they are and in all combinations of the views, a recipe's: `mirror+zoom` are four."""
    seen = [images]
    for view in views.split("+"):
        seen += [other for each in seen for other in _others(each, view)]
    return seen


def _others(images: Tensor, view: str) -> list[Tensor]:
    size = images.shape[-1]
    match view:
        case "mirror":
            return [images.flip(-1)]
        case "flip":
            return [images.flip(-2)]
        case "turn":
            return [images.rot90(quarters, (-2, -1)) for quarters in (1, 2, 3)]
        case "zoom":
            edge = size // ZOOM
            centre = images[..., edge : size - edge, edge : size - edge]
            return [F.interpolate(centre, (size, size), mode="bicubic", antialias=True)]
        case _:
            return []


@torch.inference_mode()
def predict_proba(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    normalise: Normaliser,
    precision: torch.dtype,
    views: str,
    progress: Any = None,
) -> NDArray[np.float32]:
    """A row of probabilities for every image, in order: the mean of its views."""
    model.eval()
    found = []
    for images, _ in batches:
        with autocast(normalise.device, precision):
            logits = [model(view) for view in views_of(normalise(images), views)]
        # Stays on the device: fetching each batch would make the GPU wait for the loader.
        found.append(torch.stack([each.float().softmax(1) for each in logits]).mean(0))
        if progress is not None:
            progress.update(len(images))
    if not found:
        return np.empty((0, 0), np.float32)
    probs: NDArray[np.float32] = torch.cat(found).cpu().numpy()
    return probs
