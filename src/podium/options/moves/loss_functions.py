"""The losses that compare a model's logits with the labels, and how much an image of each class counts.

A loss takes logits and targets, both float32 [images, classes], and returns a loss per image. Targets are
probabilities: mixup, cutmix and label smoothing have mixed the labels already. With one label for an image they sum to
1; with several, each class is a question of its own. Numbers are in deviations, and nan where they are unknown.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from podium.options.moves.move import Loss, Taught
from podium.tasks.number_scale import LARGEST_LOGARITHM, LOG1P, fit_scale
from podium.tasks.task import Targets

BETA = 0.999  # of the effective number of images: beyond about 1,000 images of a class, more add little


def loss_of_labels(function: Loss | None, name: str, smoothing: float, weights: str, taught: Taught) -> Loss:
    """Returns the mean loss of a batch, a function of logits and targets without smoothing.

    `function` is one of the project's own. An image counts as much as its classes: by the shares of its target before
    smoothing. So its weight depends neither on the other images of the batch nor on how it is split.
    """
    targets, classes = taught.targets, taught.classes
    if targets.columns:
        return partial(loss_of_columns, targets.parts(classes), function or BUILT_IN[name], smoothing)
    if not targets.task.sums_to_one:
        return partial(_loss_of_several, function or OF_SEVERAL_LABELS[name], smoothing)
    if name == "cross_entropy" and weights == "none":
        return partial(F.cross_entropy, label_smoothing=smoothing)
    of_classes = torch.tensor(
        class_weights(weights, targets.counts(classes)), dtype=torch.float32, device=taught.device
    )
    return _weighted_loss(function or BUILT_IN[name], smoothing, of_classes)


def log_shares(targets: Targets, classes: int) -> NDArray[np.float32]:
    """Returns the logarithm of each class's share of the images; a class without images counts as one."""
    counts = targets.counts(classes).clip(1)
    shares: NDArray[np.float32] = np.log(counts / counts.sum()).astype(np.float32)
    return shares


def _weighted_loss(function: Loss, smoothing: float, weights: Tensor) -> Loss:
    """Returns the mean loss of images of one label, which count as much as their classes."""

    def loss(logits: Tensor, soft_targets: Tensor) -> Tensor:
        smoothed = soft_targets.lerp(torch.full_like(soft_targets, 1 / len(weights)), smoothing)
        return (function(logits, smoothed) * (soft_targets * weights).sum(1)).mean()

    return loss


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


BUILT_IN: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "focal": focal,
    "asymmetric": asymmetric,
    "poly": poly,
}


# --- losses for numbers ------------------------------------------------------------------------------


def loss_of_numbers(
    function: Loss | None, name: str, quantile: float, weights: Sequence[float], taught: Taught
) -> Loss:
    """Returns the mean loss of a batch of numbers, whose unit is a deviation; `function` is the project's own.

    The weights of the columns have a mean of 1 in it, so that it needs no other learning rate.
    """
    numbers = taught.targets.values
    known = 1 - float(np.isnan(numbers).mean())
    if function:
        return lambda outputs, targets: function(outputs, targets).mean()
    if name == "cross_entropy" and len(set(weights)) < 2:
        return partial(squared_error, known)
    losses: dict[str, Callable[[], Loss]] = {
        "cross_entropy": lambda: partial(F.mse_loss, reduction="none"),
        "absolute": lambda: partial(quantile_error, 0.5),
        "huber": lambda: huber_error,
        "quantile": lambda: partial(quantile_error, quantile),
        "poisson": lambda: poisson_error(numbers, taught.device),
    }
    of_columns = torch.tensor(weights or [1.0], dtype=torch.float32, device=taught.device)
    return partial(_mean_of_known, losses[name](), of_columns / of_columns.mean() / known)


def _mean_of_known(function: Loss, weights: Tensor, outputs: Tensor, numbers: Tensor) -> Tensor:
    """Returns the mean loss of the numbers that are not nan, which teach nothing; the weights are of the columns."""
    is_unknown = numbers.isnan()
    losses = function(outputs, torch.where(is_unknown, outputs.detach(), numbers))
    return (torch.where(is_unknown, 0.0, losses) * weights).mean()


def quantile_error(quantile: float, outputs: Tensor, numbers: Tensor) -> Tensor:
    """Is least where this share of the numbers is below the output; for a half, the absolute error."""
    errors = numbers - outputs
    return 2 * torch.maximum(quantile * errors, (quantile - 1) * errors)


def huber_error(outputs: Tensor, numbers: Tensor) -> Tensor:
    """The squared error up to one deviation, and from there on a line (Huber, 1964)."""
    return 2 * F.huber_loss(outputs, numbers, reduction="none")


def poisson_error(numbers: NDArray[np.float64], device: torch.device) -> Loss:
    """Returns the deviance of 1 + number in units of its mean; outputs are deviations of the logarithm of it.

    So the exponential of the output is the mean of 1 + number, where the squared error of logarithms would answer less.
    """
    units, _ = fit_scale(numbers, LOG1P)
    facts = [[*unit, mean] for unit, mean in zip(units, 1 + np.nanmean(numbers, 0), strict=True)]
    middle, deviation, mean = torch.tensor(facts, dtype=torch.float32, device=device).unbind(1)

    def loss(outputs: Tensor, numbers: Tensor) -> Tensor:
        said, true = ((part * deviation + middle).clamp(max=LARGEST_LOGARITHM) for part in (outputs, numbers))
        deviance = said.exp() - true.exp() - true.exp() * (said - true)
        return 2 * deviance / (mean * deviation.square())

    return loss


def squared_error(known: float, outputs: Tensor, numbers: Tensor) -> Tensor:
    """Returns the mean loss of numbers in units of their deviation; `known` is the share of those that are not nan."""
    errors = torch.where(numbers.isnan(), 0.0, outputs - numbers)
    return errors.square().mean() / known


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
