"""Predicts probabilities: the same function for validation, out-of-fold predictions and test images."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium.models.build import ModelSpec
from podium.models.cpu_threads import threads
from podium.models.device import CPU, autocast
from podium.models.normalise import Normaliser
from podium.options.recipe_options import VIEWS
from podium.tasks.number_scale import from_scale, to_scale

ZOOM = 16  # the zoomed view leaves out a sixteenth at each edge


@torch.inference_mode()
def predict_proba(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    normalise: Normaliser,
    precision: torch.dtype,
    views: str,
    progress: Any = None,
    columns: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    """Returns a row of probabilities, or numbers, per image, in order: the mean of its views.

    `columns` are what the tables say of the images, for a model that learned from that.
    """
    model.eval()
    batch_probs, done = list[Tensor](), 0
    for images, _ in batches:
        threads.take_for_batch(len(images))
        beside = () if columns is None else (_columns_of(columns[done : done + len(images)], normalise.device),)
        done += len(images)
        with autocast(normalise.device, precision):
            logits = [model(view, *beside) for view in views_of(normalise(images), views)]
        # Stays on the device: copying every batch to the CPU would make the GPU wait.
        batch_probs.append(torch.stack([probs_of(view_logits, normalise.spec) for view_logits in logits]).mean(0))
        if progress is not None:
            progress.update(len(images))
    if not batch_probs:
        return np.empty((0, 0), np.float32)
    probs: NDArray[np.float32] = torch.cat(batch_probs).cpu().numpy()
    return probs


def probs_of(logits: Tensor, spec: ModelSpec) -> Tensor:
    """Returns numbers, or probabilities: of one label they sum to 1, of several each stands for itself.

    Of several targets, those of each column sum to 1. The class that no training image has gets its share: a model
    cannot say more of it, and its other classes share the rest.
    """
    if spec.scales:
        scales = _scales(spec, logits.device)
        return from_scale(logits.float() * scales[:, 1] + scales[:, 0], spec.target_scale, spec.curves)
    parts = spec.parts
    if not parts:
        return logits.float().sigmoid()
    if spec.unknown:
        is_unknown = torch.tensor([name == spec.unknown for name in spec.classes], device=CPU)
        is_unknown = is_unknown.to(logits.device, non_blocking=True)
        known = logits.float().masked_fill(is_unknown, -torch.inf).softmax(-1)
        return torch.where(is_unknown, spec.unknown_share, (1 - spec.unknown_share) * known)
    return torch.cat([logits[..., part].float().softmax(-1) for part in parts], -1)


def _columns_of(columns: NDArray[np.float32], device: torch.device) -> Tensor:
    return torch.from_numpy(columns).to(device, non_blocking=True)


def models_by_class(specs: Sequence[ModelSpec], classes: Sequence[str]) -> NDArray[np.bool_]:
    """Marks for each model and class whether the model counts in the mean of them all: [models, classes].

    Where folds hold some classes out whole, a class has the mean of the models that were taught it. In the mean of all,
    its images would look unknown, because one model of K says nothing of it: its probability would be below the
    threshold, which single models were fitted to.
    """
    unseen = [set(spec.unseen) for spec in specs]
    counts = np.array([[name not in names for name in classes] for names in unseen])
    counts[:, ~counts.any(0)] = True  # a class that none was taught
    return counts


def wanted(values: Tensor, spec: ModelSpec) -> Tensor:
    """Returns what a loss compares a model's outputs with: the number of the one label, marks, or scaled numbers.

    Columns beyond those of the answers stay as they are.
    """
    if spec.scales:
        count = len(spec.scales)
        return torch.cat([scaled(values[:, :count].float(), spec), values[:, count:].float()], 1)
    return values.float() if values.ndim > 1 else values


def scaled(numbers: Tensor, spec: ModelSpec) -> Tensor:
    """Returns what a model's outputs should be for these numbers."""
    scales = _scales(spec, numbers.device)
    return (to_scale(numbers, spec.target_scale, spec.curves) - scales[:, 0]) / scales[:, 1]


def unit_of(spec: ModelSpec) -> Tensor:
    """Returns what a difference between answers is measured in: 1, or of numbers, about their deviation."""
    if not spec.scales:
        return torch.ones(1, device=CPU)
    steps = torch.tensor([[-1.0], [1.0]], device=CPU).expand(2, len(spec.scales))
    lower, upper = probs_of(steps, spec)
    unit = (upper - lower) / 2
    return torch.where(unit > 0, unit, 1.0)


def _scales(spec: ModelSpec, device: torch.device) -> Tensor:
    """Returns a mean and a deviation for each number. (`new_tensor` would make a GPU wait.)"""
    return torch.tensor(spec.scales, dtype=torch.float32, device=CPU).to(device, non_blocking=True)


def views_of(images: Tensor, views: str) -> list[Tensor]:
    """Returns the images, and the images in all combinations of the views: `mirror+zoom` makes four."""
    batches = [images]
    for view in views.split("+"):
        batches += [changed for batch in batches for changed in _apply_view(batch, view)]
    return batches


def names_of_views(views: str) -> list[str]:
    """Returns a name for each of the batches that `views_of` returns; that of the images themselves is empty."""
    names = [""]
    for view in views.split("+"):
        further = VIEWS[view].images - 1 if view in VIEWS else 0
        names += [f"{name}+{view} {number}" for name in names for number in range(further)]
    return names


def _apply_view(images: Tensor, view: str) -> list[Tensor]:
    match view:
        case "mirror":
            return [images.flip(-1)]
        case "flip":
            return [images.flip(-2)]
        case "turn":
            return [images.rot90(quarters, (-2, -1)) for quarters in (1, 2, 3)]
        case "zoom":
            height, width = images.shape[-2:]
            top, left = height // ZOOM, width // ZOOM
            centre = images[..., top : height - top, left : width - left]
            return [F.interpolate(centre, (height, width), mode="bicubic", antialias=True)]
        case "none":
            return []
    if view not in VIEWS:
        raise PodiumError(f"there is no view '{view}'; restore the file that adds it (docs/extend.md)")
    function = VIEWS[view].function
    assert function is not None
    further: list[Tensor] = function(images)
    return further
