"""The head of a timm model: the layers that turn features into an output per class."""

from typing import Any

from torch import nn


def head_layers(model: Any) -> list[nn.Module]:
    """Returns the model's classifiers: one, or two of a distilled model; none of a model without timm's interface."""
    classifier = model.get_classifier() if hasattr(model, "get_classifier") else None
    found = classifier if isinstance(classifier, list | tuple) else [classifier]
    return [layer for layer in found if isinstance(layer, nn.Module)]


def head_parameters(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for layer in head_layers(model) for parameter in layer.parameters()]


def layer_numbers(model: Any) -> dict[str, int]:
    """Returns the number of every parameter's layer, from the image on, as timm counts them for its layer decay."""
    from timm.models import group_parameters
    from timm.optim._param_groups import auto_group_layers

    if hasattr(model, "group_matcher"):
        numbers: dict[str, int] = group_parameters(model, model.group_matcher(coarse=False), reverse=True)
        return numbers
    numbers = auto_group_layers(model)
    return numbers
