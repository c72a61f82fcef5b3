"""The losses that compare a model's logits with the labels, and how much an image of each class counts.

A loss takes logits and targets, both float32 [images, classes], and returns a loss per image. Targets are
probabilities: mixup, cutmix and label smoothing have mixed the labels already. With one label for an image they sum to
1; with several, each class is a question of its own. Numbers have one loss, the squared error.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from podium.competition.further_targets import FurtherTargets
from podium.models.heads import SCALE
from podium.recipe import Recipe
from podium.recipe_options import ARCFACE, LOSSES
from podium.tasks.task import Targets

Loss = Callable[[Tensor, Tensor], Tensor]

SMALLEST_MARGIN, LARGEST_MARGIN = 0.05, 0.5  # of the largest and the smallest class, in radians
BETA = 0.999  # of the effective number of images: beyond about 1,000 images of a class, more add little


def make_label_loss(recipe: Recipe, targets: Targets, classes: int, device: torch.device) -> Loss:
    """Returns the mean loss of a batch, a function of logits and targets without smoothing.

    `targets` are the labels of the fold's training images. An image counts as much as its classes: by the shares of its
    target before smoothing. So its weight depends neither on the other images of the batch nor on how it is split.
    """
    if not targets.task.are_labels:
        known = 1 - float(np.isnan(targets.values).mean())
        return LOSSES[recipe.loss] or partial(squared_error, known)
    if targets.columns:
        function = LOSSES[recipe.loss] or BUILT_IN[recipe.loss]
        return partial(loss_of_columns, targets.parts(classes), function, recipe.smoothing)
    if not targets.task.sums_to_one:
        return partial(_loss_of_several, LOSSES[recipe.loss] or OF_SEVERAL_LABELS[recipe.loss], recipe.smoothing)
    loss = _loss_of_one_label(recipe, targets, classes, device)
    if recipe.head == ARCFACE:
        margins = torch.from_numpy(class_margins(targets.counts(classes))).to(device)
        return lambda logits, soft_targets: loss(with_margins(logits, soft_targets, margins), soft_targets)
    if not recipe.adjust:
        return loss
    shift = torch.from_numpy(recipe.adjust * log_shares(targets, classes)).to(device)
    return lambda logits, soft_targets: loss(logits + shift, soft_targets)


def log_shares(targets: Targets, classes: int) -> NDArray[np.float32]:
    """Returns the logarithm of each class's share of the images; a class without images counts as one."""
    counts = targets.counts(classes).clip(1)
    shares: NDArray[np.float32] = np.log(counts / counts.sum()).astype(np.float32)
    return shares


def _loss_of_one_label(recipe: Recipe, targets: Targets, classes: int, device: torch.device) -> Loss:
    if recipe.loss == "cross_entropy" and recipe.class_weights == "none":
        return partial(F.cross_entropy, label_smoothing=recipe.smoothing)
    function = LOSSES[recipe.loss] or BUILT_IN[recipe.loss]
    counts = targets.counts(classes)
    weights = torch.tensor(class_weights(recipe.class_weights, counts), dtype=torch.float32, device=device)

    def loss(logits: Tensor, soft_targets: Tensor) -> Tensor:
        smoothed = soft_targets.lerp(torch.full_like(soft_targets, 1 / classes), recipe.smoothing)
        return (function(logits, smoothed) * (soft_targets * weights).sum(1)).mean()

    return loss


def class_margins(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns the angle of each class, in radians: the more, the fewer images it has (to the power of -1/4).

    So the solution of the third place in Google's Landmark Recognition 2020 (Ha et al., arXiv 2010.05350).
    """
    sizes = counts.clip(1) ** -0.25
    spread = sizes.max() - sizes.min()
    shares = (sizes - sizes.min()) / spread if spread > 0 else np.ones(len(sizes))
    margins: NDArray[np.float32] = (SMALLEST_MARGIN + shares * (LARGEST_MARGIN - SMALLEST_MARGIN)).astype(np.float32)
    return margins


def with_margins(logits: Tensor, targets: Tensor, margins: Tensor) -> Tensor:
    """Returns the outputs of a cosine head as if each image were that angle further from its class (ArcFace).

    Where the angle would pass 180 degrees, the cosine goes on to fall, along a line.
    """
    cosines = (logits / SCALE).clamp(-1 + 1e-6, 1 - 1e-6)  # a sine of 0 has no gradient
    sines = (1 - cosines.square()).sqrt()
    moved = cosines * margins.cos() - sines * margins.sin()
    moved = torch.where(cosines > -margins.cos(), moved, cosines - margins * margins.sin())
    return logits.lerp(SCALE * moved, targets)


def _loss_of_several(function: Loss, smoothing: float, logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean loss; smoothing moves each 0 and 1 towards a half."""
    return function(logits, targets.lerp(torch.full_like(targets, 0.5), smoothing)).mean()


def loss_of_columns(parts: list[slice], function: Loss, smoothing: float, logits: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean loss over the columns of several targets, of which each is a question of one label."""
    losses = []
    for part in parts:
        own = targets[:, part]
        smoothed = own.lerp(torch.full_like(own, 1 / own.shape[1]), smoothing)
        losses.append(function(logits[:, part], smoothed).mean())
    return torch.stack(losses).mean()


def class_weights(kind: str, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns a weight per class whose mean over the training images is 1; a class without images counts as one."""
    present = counts.clip(1)
    if kind == "balanced":
        weights = counts.sum() / (len(counts) * present)
    elif kind == "effective":  # Cui et al., 2019
        weights = (1 - BETA) / (1 - BETA**present)
    else:
        weights = np.ones(len(counts))
    scaled: NDArray[np.float64] = weights * (counts.sum() / (counts @ weights))
    return scaled


# --- losses ------------------------------------------------------------------------------------------


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets, reduction="none")


def focal(logits: Tensor, targets: Tensor, gamma: float = 2.0) -> Tensor:
    """Counts an image less, the more probable its class is already (Lin et al., 2017)."""
    log_probs = logits.log_softmax(1)
    return -(targets * (1 - log_probs.exp()) ** gamma * log_probs).sum(1)


def asymmetric(logits: Tensor, targets: Tensor, gamma_pos: float = 0.0, gamma_neg: float = 4.0) -> Tensor:
    """Has a focus of its own for the other classes (Ridnik et al., 2021; the form for a single label).

    A class is the label to the share of its target, and another class for the rest. For a plain label, gamma_pos 0
    gives the cross-entropy; gamma_neg matters for smoothed and mixed labels.
    """
    log_probs = logits.log_softmax(1)
    probs = log_probs.exp()
    focus = targets * (1 - probs) ** gamma_pos + (1 - targets) * probs**gamma_neg
    return -(targets * focus * log_probs).sum(1)


def poly(logits: Tensor, targets: Tensor, epsilon: float = 1.0) -> Tensor:
    """Adds the first term of the cross-entropy's series once more: Poly-1 (Leng et al., 2022)."""
    return cross_entropy(logits, targets) + epsilon * (1 - (targets * logits.softmax(1)).sum(1))


BUILT_IN: dict[str, Loss] = {"cross_entropy": cross_entropy, "focal": focal, "asymmetric": asymmetric, "poly": poly}


def squared_error(known: float, outputs: Tensor, numbers: Tensor) -> Tensor:
    """Returns the mean loss of numbers in units of their deviation; `known` is the share of those that are not nan."""
    errors = torch.where(numbers.isnan(), 0.0, outputs - numbers)
    return errors.square().mean() / known


# --- what is learned beside the answers --------------------------------------------------------------


def and_further(own: Loss, classes: int, recipe: Recipe, further: FurtherTargets) -> Loss:
    """Returns the loss of outputs and targets that have the further columns after so many classes."""
    known = further.known_shares

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        beside = loss_of_further(further, known, outputs[:, classes:], targets[:, classes:])
        return own(outputs[:, :classes], targets[:, :classes]) + recipe.also_weight * beside

    return loss


def loss_of_further(further: FurtherTargets, known: Sequence[float], outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean loss of the columns that are learned beside the answers.

    `known` is the share of the images of which each column is known. Elsewhere the targets are nan, and teach nothing.
    """
    losses = []
    for column, share in zip(further.columns, known, strict=True):
        said, own = outputs[:, column.part], targets[:, column.part]
        is_unknown = own.isnan()
        if column.separator:
            loss = F.binary_cross_entropy_with_logits(said, own.nan_to_num(), reduction="none")
            loss = torch.where(is_unknown, 0.0, loss).mean(1)
        elif column.classes:
            loss = -(torch.where(is_unknown, 0.0, own) * said.log_softmax(1)).sum(1)
        else:
            loss = torch.where(is_unknown, 0.0, said - own).square().sum(1)
        losses.append(loss.mean() / share)
    return torch.stack(losses).mean()


# --- losses for several labels -----------------------------------------------------------------------


def binary_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over the classes."""
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(1)


def binary_focal(logits: Tensor, targets: Tensor, gamma: float = 2.0) -> Tensor:
    """Counts a class less, the better it is predicted already (Lin et al., 2017)."""
    losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return ((logits.sigmoid() - targets).abs() ** gamma * losses).mean(1)


def binary_asymmetric(
    logits: Tensor, targets: Tensor, gamma_pos: float = 0.0, gamma_neg: float = 4.0, margin: float = 0.05
) -> Tensor:
    """Counts classes that an image lacks less, the less probable they are already (Ridnik et al., 2021).

    Below the margin they do not count at all.
    """
    probs = logits.sigmoid()
    absent = (1 - probs + margin).clamp(max=1)
    present_loss = -targets * (1 - probs) ** gamma_pos * F.logsigmoid(logits)
    absent_loss = -(1 - targets) * (1 - absent) ** gamma_neg * absent.clamp(min=1e-8).log()
    return (present_loss + absent_loss).mean(1)


def binary_poly(logits: Tensor, targets: Tensor, epsilon: float = 1.0) -> Tensor:
    probs = logits.sigmoid()
    return binary_cross_entropy(logits, targets) + epsilon * (targets + probs - 2 * targets * probs).mean(1)


OF_SEVERAL_LABELS: dict[str, Loss] = {
    "cross_entropy": binary_cross_entropy,
    "focal": binary_focal,
    "asymmetric": binary_asymmetric,
    "poly": binary_poly,
}
