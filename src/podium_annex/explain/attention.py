"""Attention of vision transformers: that of the class token, rolled out over the layers, and how far it reaches.

All attention layers of timm and of the zoo have a dropout, `attn_drop`. It gets the softmax of queries and keys, if the
layer is told not to use torch's fused kernel. A hook reads it there, so every kind of attention gives its own weights,
with its biases, norms and rotations.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium_annex.explain.model_input import grid_of, name_of, prefix_of, prepare_input, run_in_evaluation_mode

Array = NDArray[np.float32]


def class_attention(model: nn.Module, images: Tensor, layer: int = -1) -> Array:
    """Returns the class token's attention to the patches [images, heads, rows, columns] in a layer (default: the last).

    The rows of DeepViT's maps are those before the heads are mixed.
    """
    _need_class_token(model)
    prefix, heads = _prefix_with_class_token(model), []
    for image in prepare_input(model, images).split(1):
        layers = _layers_of_last_tokens(model, image)
        if not -len(layers) <= layer < len(layers):
            raise PodiumError(
                f"{name_of(model)} has no attention layer {layer}; it has {len(layers)}, from 0 to {len(layers) - 1}"
            )
        to_patches = layers[layer][:, 0, prefix:]
        heads.append(to_patches.reshape(len(to_patches), *grid_of(model, to_patches.shape[-1], image)))
    result: Array = np.stack(heads)
    return result


def attention_rollout(model: nn.Module, images: Tensor) -> Array:
    """Returns how much of every patch reaches the class token through all layers [images, rows, columns].

    Abnar and Zuidema, 2020, arXiv 2005.00928.
    """
    _need_class_token(model)
    prefix, maps = _prefix_with_class_token(model), []
    for image in prepare_input(model, images).split(1):
        to_patches = rollout(_self_attention(model, image))[0, prefix:]
        maps.append(to_patches.reshape(grid_of(model, len(to_patches), image)))
    return np.stack(maps).astype(np.float32)


def rollout(layers: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Multiplies the layers' attention [heads, tokens, tokens], the first layer first.

    Of each layer it takes the mean of the heads, adds the identity (the skip connection), and lets each row sum to 1.
    """
    product = np.eye(layers[0].shape[-1])
    for heads in layers:
        mixed = heads.astype(np.float64).mean(0) + np.eye(heads.shape[-1])
        product = mixed / mixed.sum(-1, keepdims=True) @ product
    return product


def attention_distance(model: nn.Module, images: Tensor) -> Array:
    """Returns how far every head looks, in pixels [layers, heads]: the mean over images and patches.

    Dosovitskiy et al., 2020, figure 7. The attention to the class token has no distance and is left out.
    """
    prefix, distances = prefix_of(model), []
    inputs = prepare_input(model, images)
    for image in inputs.split(1):
        layers = [heads[:, prefix:, prefix:] for heads in _self_attention(model, image)]
        if len({len(heads) for heads in layers}) > 1:
            raise PodiumError(f"the layers of {name_of(model)} differ in their number of heads; use class_attention")
        rows, columns = grid_of(model, layers[0].shape[-1], image)
        patch = image.shape[-2] / rows, image.shape[-1] / columns
        distances.append([mean_distance(heads, (rows, columns), patch) for heads in layers])
    mean: Array = np.mean(distances, axis=0).astype(np.float32)
    return mean


def mean_distance(heads: NDArray[Any], grid: tuple[int, int], patch: tuple[float, float]) -> NDArray[np.float64]:
    """Returns the mean distance of each head's attention [heads, patches, patches]; `patch` is its height and width."""
    row, column = (place.ravel() for place in np.indices(grid))
    down = (row[:, None] - row) * patch[0]
    across = (column[:, None] - column) * patch[1]
    weights = heads.astype(np.float64)
    weights /= weights.sum(-1, keepdims=True)
    means: NDArray[np.float64] = (weights * np.hypot(down, across)).sum(-1).mean(-1)
    return means


def attention_layers(model: nn.Module, image: Tensor) -> list[Array]:
    """Returns the attention of every layer [n, heads, queries, keys], in the order of computation."""
    layers = [module for module in model.modules() if isinstance(getattr(module, "attn_drop", None), nn.Module)]
    with _computed_plainly(layers) as captured:
        run_in_evaluation_mode(model, image)
    return [weights.float().cpu().numpy() for weights in captured]


def _layers_of_last_tokens(model: nn.Module, image: Tensor) -> list[Array]:
    """Returns the layers that see the tokens that the last one sees: all of a ViT, the last stage of a pyramid."""
    maps = attention_layers(model, image)
    tokens = maps[-1].shape[-1] if maps else 0
    chosen = [weights[0] for weights in maps if _shape_fits(weights, (1, tokens), tokens)]
    if not maps or not _shape_fits(maps[-1], (1, tokens), tokens):
        raise _no_such_attention(model)
    return chosen


def _self_attention(model: nn.Module, image: Tensor) -> list[Array]:
    """Returns the layers in which all tokens look at all tokens of the last layer."""
    if not hasattr(model, "num_prefix_tokens"):  # windows, or other tokens than a grid of patches
        raise _no_such_attention(model)
    layers = _layers_of_last_tokens(model, image)
    if any(weights.shape[-2] != weights.shape[-1] for weights in layers):
        raise _no_such_attention(model)
    return layers


def _shape_fits(weights: Array, queries: tuple[int, int], tokens: int) -> bool:
    return weights.ndim == 4 and len(weights) == 1 and weights.shape[2] in queries and weights.shape[3] == tokens


def _no_such_attention(model: nn.Module) -> PodiumError:
    return PodiumError(
        f"{name_of(model)} has no layers in which all tokens look at all tokens; use Grad-CAM (grad_cam)"
    )


def _need_class_token(model: nn.Module) -> None:
    if not any(name.split(".")[-1] == "cls_token" for name, _ in model.named_parameters()):
        raise PodiumError(
            f"{name_of(model)} has no class token, whose attention could be shown; use Grad-CAM (grad_cam)"
        )


def _prefix_with_class_token(model: nn.Module) -> int:
    return max(prefix_of(model), 1)


@contextmanager
def _computed_plainly(layers: Sequence[Any]) -> Iterator[list[Tensor]]:
    """Yields a list that gets the attention of these layers in every forward pass within the block."""
    captured: list[Tensor] = []

    def turn_fused_off(layer: Any, *_: object) -> None:  # after the hook with which exchange.py chooses
        layer.fused_attn = False

    fused = [layer for layer in layers if hasattr(layer, "fused_attn")]
    before = [layer.fused_attn for layer in fused]
    hooks = [layer.register_forward_pre_hook(turn_fused_off) for layer in fused]
    hooks += [
        layer.attn_drop.register_forward_hook(lambda module, inputs, output: captured.append(inputs[0]))
        for layer in layers
    ]
    try:
        yield captured
    finally:
        for hook in hooks:
            hook.remove()
        for layer, was_fused in zip(fused, before, strict=True):
            layer.fused_attn = was_fused
