"""Intermediate features as timm returns them, for networks that yield the output of every block or stage."""

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from timm.models._features import feature_take_indices
from torch import Tensor

Output = TypeVar("Output")


def collect(
    outputs: Iterable[Output], count: int, indices: int | list[int] | None, stop_early: bool
) -> tuple[Output, list[Output]]:
    """Returns the last of `count` outputs, and those that `indices` names: all, the last n, or a list."""
    chosen, last = feature_take_indices(count, indices)
    computed = list(islice(outputs, last + 1 if stop_early else count))
    return computed[-1], [computed[index] for index in chosen]


def as_map(tokens: Tensor, height: int, width: int) -> Tensor:
    """Makes a map [n, channels, height, width] of patch tokens [n, height * width, channels]."""
    return tokens.transpose(1, 2).reshape(len(tokens), -1, height, width)
