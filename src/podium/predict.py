"""The one way from images to probabilities: validation, out-of-fold and test are the same function."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.device import autocast
from podium.models import Normaliser


@torch.inference_mode()
def predict_proba(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    normalise: Normaliser,
    precision: torch.dtype,
    mirrored: bool,
    progress: Any = None,
) -> NDArray[np.float32]:
    """A row of probabilities for every image, in order; with `mirrored`, the mean of both views."""
    model.eval()
    found = []
    for images, _ in batches:
        inputs = normalise(images)
        views = (inputs, inputs.flip(-1)) if mirrored else (inputs,)
        with autocast(normalise.device, precision):
            logits = [model(view) for view in views]
        # Stays on the device: fetching each batch would make the GPU wait for the loader.
        found.append(torch.stack([each.float().softmax(1) for each in logits]).mean(0))
        if progress is not None:
            progress.update(len(images))
    if not found:
        return np.empty((0, 0), np.float32)
    probs: NDArray[np.float32] = torch.cat(found).cpu().numpy()
    return probs
