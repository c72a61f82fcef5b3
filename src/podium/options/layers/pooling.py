"""What makes one row of features of a model's tokens, or of its last map: --pool.

`pool_features` puts a module where timm pools, after the weights are loaded, so the names of all other parameters stay.
`both` gives the classifier two rows of features side by side; what lies between pooling and classifier, such as a norm,
sees them as two images.
"""

from functools import cache
from typing import Any, NamedTuple

import torch
from timm.layers import SelectAdaptivePool2d
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium.options.layers.heads import classifier_of, replace_module
from podium.options.recipe_options import BUILT_IN_POOLS, POOLS

SMALLEST = 1e-6  # of a feature in GeM: negative numbers have no powers
EXPONENT = 3.0  # of GeM at its start, as Radenovic et al. (2018) train it


class Pooling(nn.Module):
    """Pools tokens [images, tokens, features], or maps. The rows of a second way follow those of the first."""

    def __init__(self, ways: tuple[str, ...], dims: tuple[int, ...] = (1,), keepdim: bool = False, skip: int = 0):
        super().__init__()
        self.ways, self.dims, self.keepdim, self.skip = ways, dims, keepdim, skip
        if "gem" in ways:
            self.exponent = nn.Parameter(torch.full((1,), EXPONENT))

    def forward(self, features: Tensor) -> Tensor:
        pooled = [
            features[:, 0] if way == "token" else self._reduce(features[:, self.skip :], way) for way in self.ways
        ]
        return pooled[0] if len(pooled) == 1 else torch.cat(pooled)

    def _reduce(self, features: Tensor, way: str) -> Tensor:
        if way == "mean":
            return features.mean(self.dims, self.keepdim)
        if way == "max":
            return features.amax(self.dims, self.keepdim)
        # In float32, and relative to the largest feature: no power becomes 0, whose root has no gradient.
        positive = features.float().clamp(min=SMALLEST)
        largest = positive.detach().amax(self.dims, keepdim=True)
        mean = (positive / largest).pow(self.exponent).mean(self.dims, keepdim=True).pow(1 / self.exponent) * largest
        return (mean if self.keepdim else mean.flatten(1)).to(features.dtype)


class OwnPooling(nn.Module):
    """Gives a module of the project's own the features of an image in a row for each place, without the class token."""

    def __init__(self, own: nn.Module, dims: tuple[int, ...] = (1,), keepdim: bool = False, skip: int = 0):
        super().__init__()
        self.own, self.dims, self.keepdim, self.skip = own, dims, keepdim, skip

    def forward(self, features: Tensor) -> Tensor:
        places = features[:, self.skip :] if len(self.dims) == 1 else features.flatten(*self.dims)
        rows: Tensor = self.own(places) if self.dims[-1] < 3 else self.own(places.transpose(1, 2))
        if not self.keepdim:
            return rows
        return rows[:, :, None, None] if self.dims[-1] == 3 else rows[:, None, None]


class Place(NamedTuple):
    """Where a model pools."""

    name: str  # of the module that our own takes the place of
    options: dict[str, Any]  # of Pooling
    has_token: bool

    def ways(self, pool: str) -> tuple[str, ...]:
        """Returns what is done to the features; nothing if it cannot be done."""
        if pool == "both":
            return ("token", "mean") if self.has_token else ("mean", "max")
        return (pool,) if pool != "token" or self.has_token else ()


def pool_features(model: nn.Module, pool: str, architecture: str) -> nn.Module:
    """Exchanges the pooling of a timm model, which gets a new classifier where that has more features than before."""
    if pool not in POOLS:
        raise PodiumError(f"there is no pooling '{pool}'; restore the file that adds it (docs/extend.md)")
    place, classifier = _place_of(model), classifier_of(model)
    if place is None or classifier is None:
        raise _cannot_pool(architecture, pool, "it pools in a way of its own; leave that out")
    if own := POOLS[pool]:
        width: Any = model.num_features
        replace_module(model, place.name, made := OwnPooling(own(width), **place.options))
        return made
    if not place.ways(pool):
        others = ", ".join(other for other in BUILT_IN_POOLS if place.ways(other))
        raise _cannot_pool(architecture, pool, f"it has no class token; take one of {others}")
    pooling = Pooling(place.ways(pool), **place.options)
    replace_module(model, place.name, pooling)
    if len(pooling.ways) > 1:
        outputs, features = classifier.layer.weight.shape[:2]
        replace_module(model, classifier.name, nn.Linear(2 * features, outputs))
        base: Any = type(model)
        model.__class__ = _side_by_side(base)
    return pooling


def _cannot_pool(architecture: str, pool: str, reason: str) -> PodiumError:
    return PodiumError(f"{architecture} cannot use --pool {pool}: {reason}")


def _place_of(model: Any) -> Place | None:
    if hasattr(model, "attn_pool") and callable(getattr(model, "pool", None)):  # timm's ViT and EVA
        model.pool_include_prefix = True  # Pooling leaves out the class token itself
        token = getattr(model, "cls_token", None) is not None
        return Place("attn_pool", {"skip": model.num_prefix_tokens}, token)
    maps = {name: module for name, module in model.named_modules() if isinstance(module, SelectAdaptivePool2d)}
    if len(maps) != 1:
        return None
    ((name, module),) = maps.items()
    keepdim = module(torch.zeros(1, 1, 1, 1)).ndim == 4
    return Place(name, {"dims": getattr(module.pool, "dim", (2, 3)), "keepdim": keepdim}, has_token=False)


@cache
def _side_by_side(base: type[Any]) -> type[nn.Module]:
    """Returns the class of a model whose classifier gets the two rows of features of an image as one."""

    def forward_head(self: Any, features: Tensor, pre_logits: bool = False) -> Tensor:
        rows: Tensor = base.forward_head(self, features, pre_logits=True)
        both = rows.unflatten(0, (2, -1)).transpose(0, 1).flatten(1)
        output: Tensor = both if pre_logits else self.get_classifier()(both)
        return output

    return type(base.__name__, (base,), {"forward_head": forward_head})
