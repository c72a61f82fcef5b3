"""A classifier that also gets what the tables say of an image: its columns."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium.options.layers.heads import classifier_of, replace_module

HIDDEN = 32  # numbers between the columns and what they change
DROPPED = 0.2  # the share of the images whose columns training does not show: the model has to know the images, too
GAIN = 10.0  # new weights learn as many times faster than the pretrained ones


class WithColumns(nn.Module):
    """Moves the features before a classifier by the columns (film), or its outputs (concat).

    A linear layer of features and columns side by side is the sum of two: so concat adds to the outputs. Both start
    from 0, and change nothing for an image whose columns are unknown.
    """

    def __init__(self, layer: nn.Linear, columns: int, is_film: bool) -> None:
        super().__init__()
        self.layer, self.is_film = layer, is_film
        self.outputs = layer.out_features
        changed = 2 * layer.in_features if self.is_film else self.outputs
        # No nn.Linear: a layer with an output per class counts as the model's own.
        self.inner = nn.Parameter(torch.randn(HIDDEN, columns) / max(columns, 1) ** 0.5)
        self.inner_bias = nn.Parameter(torch.zeros(HIDDEN))
        self.outer = nn.Parameter(torch.zeros(changed, HIDDEN))
        self.columns: Tensor | None = None  # of the images that the model sees next

    def take(self, model: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        """Takes the columns from what the model is called with: its images, and perhaps their columns."""
        images, *columns = inputs
        self.columns = columns[0] if columns else None
        return images

    def forward(self, features: Tensor) -> Tensor:
        columns, self.columns = self.columns, None
        if columns is None:
            own: Tensor = self.layer(features)
            return own
        known = ~columns[:, :1].isnan()
        if self.training:
            known = known & (torch.rand(len(columns), 1, device=columns.device) >= DROPPED)
        hidden = F.gelu(F.linear(columns.nan_to_num(), self.inner, self.inner_bias))
        change = GAIN * F.linear(hidden, self.outer) * known
        if self.is_film:
            scale, shift = change.chunk(2, 1)
            moved: Tensor = self.layer(features * (1 + scale) + shift)
            return moved
        outputs: Tensor = self.layer(features)
        return outputs + F.pad(change, (0, outputs.shape[1] - self.outputs))  # further ones belong to the card's `also`


def put_columns(model: nn.Module, architecture: str, columns: int, is_film: bool) -> nn.Module:
    """Lets the model's classifier learn from columns, too: the model is then called with images and columns."""
    classifier = classifier_of(model)
    if classifier is None or not isinstance(classifier.layer, nn.Linear):
        raise PodiumError(f"{architecture} cannot use --columns: its classifier is not one linear layer; leave it out")
    joined = WithColumns(classifier.layer, columns, is_film)
    replace_module(model, classifier.name, joined)
    model.register_forward_pre_hook(joined.take)
    return joined


def drop_columns(model: nn.Module) -> None:
    """Leaves the model its classifier alone."""
    for name, module in list(model.named_modules()):
        if isinstance(module, WithColumns):
            replace_module(model, name, module.layer)
            model._forward_pre_hooks.clear()  # no model of timm has any
