"""The loss of a fold: that of its labels, as the moves make it, and that of what is learned beside the answers.

A loss takes logits and targets, both float32 [images, classes]; options/moves/loss_functions.py has the functions.
"""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from podium.competition.extras.further_targets import FurtherTargets
from podium.options.layers.heads import SCALE
from podium.options.moves.move import Loss, Taught
from podium.options.recipe import Recipe
from podium.options.recipe_options import ARCFACE
from podium.tasks.task import Targets

WEIGHT_OF_FURTHER = 0.3  # a guess: the answers come first; at 1, no score was higher (docs/benchmarks.md)
SMALLEST_MARGIN, LARGEST_MARGIN = 0.05, 0.5  # of the largest and the smallest class, in radians


def make_label_loss(
    recipe: Recipe, targets: Targets, classes: int, device: torch.device, names: Sequence[str] = ()
) -> Loss:
    """Returns the mean loss of a batch; `targets` are the labels of the fold's training images."""
    loss: Loss = F.cross_entropy
    for move in recipe.moves:
        loss = move.label_loss(loss, Taught(targets, classes, device, names))
    if recipe.head != ARCFACE:
        return loss
    margins = torch.from_numpy(class_margins(targets.counts(classes))).to(device)
    return lambda logits, soft_targets: loss(add_margins(logits, soft_targets, margins), soft_targets)


def class_margins(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns the angle of each class, in radians: the more, the fewer images it has (to the power of -1/4).

    So the solution of the third place in Google's Landmark Recognition 2020 (Ha et al., arXiv 2010.05350).
    """
    sizes = counts.clip(1) ** -0.25
    spread = sizes.max() - sizes.min()
    shares = (sizes - sizes.min()) / spread if spread > 0 else np.ones(len(sizes))
    margins: NDArray[np.float32] = (SMALLEST_MARGIN + shares * (LARGEST_MARGIN - SMALLEST_MARGIN)).astype(np.float32)
    return margins


def add_margins(logits: Tensor, targets: Tensor, margins: Tensor) -> Tensor:
    """Returns the outputs of a cosine head as if each image were that angle further from its class (ArcFace).

    Where the angle would pass 180 degrees, the cosine goes on to fall, along a line.
    """
    cosines = (logits / SCALE).clamp(-1 + 1e-6, 1 - 1e-6)  # a sine of 0 has no gradient
    sines = (1 - cosines.square()).sqrt()
    moved = cosines * margins.cos() - sines * margins.sin()
    moved = torch.where(cosines > -margins.cos(), moved, cosines - margins * margins.sin())
    return logits.lerp(SCALE * moved, targets)


def and_further(own: Loss, classes: int, further: FurtherTargets) -> Loss:
    """Returns the loss of outputs and targets that have the further columns after so many classes."""
    known = further.known_shares

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        beside = loss_of_further(further, known, outputs[:, classes:], targets[:, classes:])
        return own(outputs[:, :classes], targets[:, :classes]) + WEIGHT_OF_FURTHER * beside

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
