"""What a vision transformer has learned about patches before it sees an image: their filters and their positions."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from podium.basics.errors import PodiumError
from podium_annex.explain.model_input import name_of

COMPONENTS = 28  # in figure 7 of the paper of ViT
Array = NDArray[np.float32]


class PatchFilters(NamedTuple):
    components: Array  # [components, height, width, 3], each of length 1
    variance: Array  # share of the filters' variance that each of them explains


def patch_filters(model: nn.Module, count: int = COMPONENTS) -> PatchFilters:
    """Returns the first principal components of the filters that make tokens of patches.

    The largest value of a component is positive: its sign has no meaning.
    """
    filters = _patch_convolution(model).weight.detach().float().cpu().numpy()  # [filters, 3, height, width]
    rows = filters.reshape(len(filters), -1).astype(np.float64)
    _, singular_values, components = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    largest = np.take_along_axis(components, abs(components).argmax(1)[:, None], axis=1)
    components = (components * np.where(largest < 0, -1, 1))[:count].reshape(-1, *filters.shape[1:])
    variance = singular_values**2 / max((singular_values**2).sum(), np.finfo(np.float64).tiny)
    return PatchFilters(components.transpose(0, 2, 3, 1).astype(np.float32), variance[:count].astype(np.float32))


def position_similarity(model: nn.Module) -> Array:
    """Returns the cosine similarity of every two positions [rows, columns, rows, columns].

    The first two numbers are the patch, the last two the patch that it is compared with. In the stages of a pyramid,
    the last one that has positions counts.
    """
    for owner in reversed(list(model.modules())):
        positions = getattr(owner, "pos_embed", None)
        grid = getattr(getattr(owner, "patch_embed", None), "grid_size", None)
        if isinstance(positions, nn.Parameter) and grid is not None:
            break
    else:
        raise PodiumError(
            f"{name_of(model)} has no table of position embeddings, one for each patch; use a model that has one, such"
            " as vit_*"
        )
    rows, columns = (int(side) for side in grid)
    vectors = positions.detach().double().cpu().numpy().reshape(-1, positions.shape[-1])[-rows * columns :]
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    similarity: Array = (vectors @ vectors.T).reshape(rows, columns, rows, columns).astype(np.float32)
    return similarity


def _patch_convolution(model: nn.Module) -> Any:
    """Returns the convolution that cuts the image into patches: the first one, if its windows do not overlap."""
    first: Any = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    if first is None or first.kernel_size != tuple(first.stride) or first.in_channels != 3:
        raise PodiumError(
            f"the first layer of {name_of(model)} does not cut the image into patches; use a model that does, such as"
            " vit_* or convnext_*"
        )
    return first
