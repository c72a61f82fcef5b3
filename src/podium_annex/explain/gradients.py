"""What gradients say of the last feature map: which places speak for a class, and which pixels a place sees."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium_annex.explain.model_input import grid_of, in_evaluation_mode, name_of, prefix_of, prepare_input

Array = NDArray[np.float32]


class ReceptiveField(NamedTuple):
    shares: Array  # [height, width]: each pixel's share of the sum of the absolute gradients
    centre: tuple[float, float]  # pixels from the top and from the left: the middle of the place
    side: float  # pixels of the square around the centre that holds half of the sum


def grad_cam(model: nn.Module, images: Tensor, classes: Sequence[int] | int | None = None) -> Array:
    """Returns which places speak for a class (default: the predicted one) [images, height, width].

    Selvaraju et al., 2017, arXiv 1610.02391. Each channel of the last feature map counts by the mean gradient of the
    class's logit; negative sums become 0. The maps are enlarged to the size of the images.
    """
    with in_evaluation_mode(model), torch.enable_grad():
        inputs = prepare_input(model, images).requires_grad_()
        features = _features(model, inputs)
        logits: Tensor = model.forward_head(features)  # type: ignore[operator]
        chosen = (
            logits.argmax(1) if classes is None else torch.as_tensor(classes, device=logits.device).expand(len(logits))
        )
        scores = logits.gather(1, chosen[:, None])
        (gradient,) = torch.autograd.grad(scores.sum(), features)
    channels, gradients = (_as_map(model, tensor.detach(), inputs).float() for tensor in (features, gradient))
    if prefix_of(model) and not gradients.any():
        raise PodiumError(
            f"the classifier of {name_of(model)} sees the class token alone, so its patches have no gradient; use the"
            " attention of the class token (class_attention, attention_rollout)"
        )
    if channels.shape[2:] == (1, 1):
        raise PodiumError(
            f"the last feature map of {name_of(model)} has a single place for images of"
            f" {inputs.shape[-2]}x{inputs.shape[-1]} pixels, so it cannot say where; take larger images, or another"
            " model"
        )
    weights = gradients.mean((2, 3), keepdim=True)
    maps = (weights * channels).sum(1, keepdim=True).relu()
    large = F.interpolate(maps, tuple(inputs.shape[-2:]), mode="bilinear")
    result: Array = large[:, 0].cpu().numpy()
    return result


def receptive_field(model: nn.Module, images: Tensor, seed: int = 0) -> ReceptiveField:
    """Returns the effective receptive field of the place in the middle of the last feature map: the mean of the images.

    Luo et al., 2016, arXiv 1701.04128. The gradient is that of the channels' sum with random signs. Without them a norm
    over the channels, as most transformers end with, would make the sum constant. If the map has an even number of
    rows, the middle is the place below the centre of the image; with columns, right of it.
    """
    total, centre = np.zeros(images.shape[-2:]), (0.0, 0.0)
    generator = torch.Generator().manual_seed(seed)
    with in_evaluation_mode(model), torch.enable_grad():
        for image in prepare_input(model, images).split(1):
            image.requires_grad_()
            features = _as_map(model, _features(model, image), image)
            rows, columns = features.shape[2:]
            signs = torch.randint(0, 2, (features.shape[1],), generator=generator) * 2 - 1
            middle = features[0, :, rows // 2, columns // 2]
            (gradient,) = torch.autograd.grad((middle * signs.to(middle)).sum(), image)
            total += gradient[0].float().abs().sum(0).cpu().numpy()
            centre = (rows // 2 + 0.5) * image.shape[2] / rows, (columns // 2 + 0.5) * image.shape[3] / columns
    if not total.sum() > 0:
        raise PodiumError(f"no pixel has an influence on the middle of the map of {name_of(model)}; take other images")
    shares = (total / total.sum()).astype(np.float32)
    return ReceptiveField(shares, centre, side_of_square(shares, centre, 0.5))


def side_of_square(shares: NDArray[Any], centre: tuple[float, float], part: float) -> float:
    """Returns the side of the smallest square around the centre whose pixels hold at least this part of the sum."""
    rows, columns = (np.arange(count) + 0.5 for count in shares.shape)
    distances = np.maximum(abs(rows[:, None] - centre[0]), abs(columns - centre[1])).ravel()
    order = distances.argsort(kind="stable")
    held = shares.ravel()[order].astype(np.float64).cumsum()
    last = order[np.searchsorted(held, part * held[-1] * (1 - 1e-6))]
    return float(2 * distances[last] + 1)


def _features(model: Any, inputs: Tensor) -> Tensor:
    if not (hasattr(model, "forward_features") and hasattr(model, "forward_head")):
        raise PodiumError(
            f"{name_of(model)} has no feature map: it lacks timm's forward_features and forward_head; add them"
        )
    features: Any = model.forward_features(inputs)
    if not isinstance(features, Tensor) or features.ndim not in (3, 4):
        raise PodiumError(f"{name_of(model)} has no single feature map; take another model")
    result: Tensor = features
    return result


def _as_map(model: nn.Module, features: Tensor, inputs: Tensor) -> Tensor:
    """Returns [n, channels, rows, columns] of a map of any layout, or of tokens, without the class token."""
    if features.ndim == 3:
        patches = features[:, prefix_of(model) :]
        result: Tensor = patches.transpose(1, 2).unflatten(2, grid_of(model, patches.shape[1], inputs))
        return result
    channels = getattr(model, "num_features", None)
    is_last = features.shape[-1] == channels and features.shape[1] != channels
    return features.permute(0, 3, 1, 2) if is_last else features
