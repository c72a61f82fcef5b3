"""The head of a timm model: the layers that turn features into an output per class."""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium.options.recipe_options import ARCFACE, DROPOUTS, HEADS, MLP

HIDDEN = 512  # features of the hidden layer of --head mlp
DROPOUT, DROPOUTS_AVERAGED = 0.5, 5  # of --head dropouts, as Inoue (2019) calls it: multi-sample dropout
SCALE = 30.0  # of the cosines, as in the winners' solutions of Google's Landmark competitions


def head_layers(model: Any) -> list[nn.Module]:
    """Returns the model's classifiers: one, or several that it averages; none of a model without timm's interface."""
    classifier = model.get_classifier() if hasattr(model, "get_classifier") else None
    found = classifier if isinstance(classifier, list | tuple | nn.ModuleList) else [classifier]
    return [layer for layer in found if isinstance(layer, nn.Module)]


def head_parameters(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for layer in head_layers(model) for parameter in layer.parameters()]


def output_layers(model: nn.Module, classes: int) -> list[nn.Linear | nn.Conv2d]:
    """Returns the layers of the classifiers that have an output per class."""
    heads = [head.last if isinstance(head, NamedHead) else head for head in head_layers(model)]
    layers = [layer for head in heads if head is not None for layer in head.modules()]
    return [layer for layer in layers if isinstance(layer, nn.Linear | nn.Conv2d) and len(layer.weight) == classes]


class WithFurtherOutputs(nn.Module):
    """An output layer that has further outputs in training, after its own; prediction knows only its own."""

    def __init__(self, layer: nn.Linear | nn.Conv2d, further: int) -> None:
        super().__init__()
        self.layer = layer
        # From 0: they disturb nothing that the layer was fitted to.
        self.weight = nn.Parameter(torch.zeros_like(layer.weight[:1]).repeat(further, *[1] * (layer.weight.ndim - 1)))
        self.bias = nn.Parameter(self.weight.new_zeros(further))

    def forward(self, features: Tensor) -> Tensor:
        own: Tensor = self.layer(features)
        if not self.training:
            return own
        compute = F.linear if self.weight.ndim == 2 else F.conv2d
        return torch.cat([own, compute(features, self.weight, self.bias)], 1)


def add_further_outputs(model: nn.Module, classes: int, further: int) -> bool:
    """Gives the model's output layers further outputs in training; returns whether it has such layers."""
    layers = {id(layer) for layer in output_layers(model, classes)}
    names = [name for name, module in model.named_modules() if id(module) in layers]
    for name in names:
        model.set_submodule(name, WithFurtherOutputs(model.get_submodule(name), further))  # type: ignore[arg-type]
    return bool(names)


def drop_further_outputs(model: nn.Module) -> nn.Module:
    """Returns the model as it was built, with the weights of now."""
    names = [name for name, module in model.named_modules() if isinstance(module, WithFurtherOutputs)]
    if not names:
        return model
    plain = deepcopy(model)
    for name in names:
        plain.set_submodule(name, plain.get_submodule(name).layer)  # type: ignore[arg-type]
    return plain


def layer_numbers(model: Any) -> dict[str, int]:
    """Returns the number of every parameter's layer, from the image on, as timm counts them for its layer decay."""
    from timm.models import group_parameters
    from timm.optim._param_groups import auto_group_layers

    if hasattr(model, "group_matcher"):
        numbers: dict[str, int] = group_parameters(model, model.group_matcher(coarse=False), reverse=True)
        return numbers
    numbers = auto_group_layers(model)
    return numbers


class CosineHead(nn.Linear):
    """A classifier without a bias whose outputs are SCALE times the cosine between the features and each class."""

    def forward(self, features: Tensor) -> Tensor:
        with torch.autocast(features.device.type, enabled=False):  # in 16 bits, outputs near SCALE would lose digits
            return SCALE * F.linear(F.normalize(features.float()), F.normalize(self.weight))


class NamedHead(nn.Module):
    """A head of several layers in the place of a classifier: one of Podium's, or of the project's own."""

    def __init__(self, head: nn.Module, features: int, outputs: int) -> None:
        super().__init__()
        self.head, self.features, self.outputs = head, features, outputs
        self.last_name = _name_of_last(head, features, outputs)

    @property
    def last(self) -> nn.Module | None:
        """The linear layer that the head ends with, if it does."""
        return None if self.last_name is None else self.head.get_submodule(self.last_name)

    def forward(self, features: Tensor) -> Tensor:
        outputs: Tensor = self.head(features.flatten(1))
        return outputs


@torch.no_grad()
def _name_of_last(head: nn.Module, features: int, outputs: int) -> str | None:
    """Returns the name of the layer whose bias is what the head says where its weight is 0; None if there is none."""
    name: str
    for name, found in head.named_modules():
        if isinstance(found, nn.Linear) and found.bias is not None and len(found.bias) == outputs:
            trial = deepcopy(head).eval()
            with suppress(Exception):  # a head of one's own may do anything with its layers
                layer: Any = trial.get_submodule(name)
                layer.weight.zero_()
                layer.bias.copy_(torch.arange(1, outputs + 1))
                if torch.allclose(trial(torch.ones(2, features)), layer.bias):
                    return name
    return None


class MeanOfDropouts(nn.Linear):
    """A classifier that learns from several dropouts of the same features at once."""

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return super().forward(features)
        parts = [super(MeanOfDropouts, self).forward(F.dropout(features, DROPOUT)) for _ in range(DROPOUTS_AVERAGED)]
        return torch.stack(parts).mean(0)


def mlp(features: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, outputs))


BUILT_IN: dict[str, Callable[[int, int], nn.Module]] = {MLP: mlp, DROPOUTS: MeanOfDropouts}


class Classifier(NamedTuple):
    name: str  # in the model
    layer: nn.Linear | nn.Conv2d


def classifier_of(model: nn.Module) -> Classifier | None:
    """Returns the model's classifier if it is one layer."""
    layers = head_layers(model)
    if len(layers) != 1 or not isinstance(layers[0], nn.Linear | nn.Conv2d):
        return None
    return next((Classifier(name, layers[0]) for name, module in model.named_modules() if module is layers[0]), None)


def replace_module(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, module)


def put_linear_head(model: nn.Module) -> None:
    """Exchanges the head that `put_head` has put for a usual one, which is to be fitted."""
    (head,) = head_layers(model)
    name = next(name for name, module in model.named_modules() if module is head)
    outputs, features = (head.outputs, head.features) if isinstance(head, NamedHead) else head.weight.shape[:2]  # type: ignore
    replace_module(model, name, nn.Linear(features, outputs))


def put_head(model: nn.Module, architecture: str, head: str) -> nn.Module:
    """Exchanges the classifier for the head of this name."""
    if head not in HEADS:
        raise PodiumError(f"there is no head '{head}'; restore the file that adds it (docs/extend.md)")
    classifier = classifier_of(model)
    if classifier is None:
        raise PodiumError(f"{architecture} cannot use --head {head}: it has several classifiers, or none; leave it out")
    outputs, features = classifier.layer.weight.shape[:2]
    made: nn.Module
    if head == ARCFACE:
        made = CosineHead(features, outputs, bias=False)
    else:
        make = HEADS[head] or BUILT_IN[head]
        made = NamedHead(make(features, outputs), features, outputs)
    replace_module(model, classifier.name, made)
    return made
