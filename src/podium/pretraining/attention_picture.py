"""Draws what the class token looks at: a row per image, with the attention of each head of the last block beside it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.disk import write_bytes
from podium.images.decode import Pixels

SIDE, GAP = 112, 4  # pixels of the picture
MOST_HEADS = 12  # drawn


def class_attention(backbone: nn.Module, inputs: Tensor) -> Tensor | None:
    """Returns the class token's attention to the patches [images, heads, rows, columns]; None if there is no such."""
    attention = _last_attention(backbone)
    prefix = int(getattr(backbone, "num_prefix_tokens", 0) or 0)
    if attention is None or not prefix or getattr(backbone, "cls_token", None) is None:
        return None
    with torch.inference_mode(), _captured(attention) as captured:
        backbone.eval()(inputs)
    if len(captured) != 1 or captured[0].ndim != 4:
        return None
    to_patches = captured[0][:, :, 0, prefix:].float()
    side = round(to_patches.shape[-1] ** 0.5)
    return to_patches.unflatten(-1, (side, side)) if side * side == to_patches.shape[-1] else None


def draw_attention(path: Path, images: Sequence[Pixels], attention: NDArray[np.float32]) -> None:
    """Writes a PNG: each image, the mean of its heads, and each head, as brightness over the darkened image."""
    rows = []
    for image, heads in zip(images, attention, strict=True):
        large = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
        maps = [heads.mean(0), *heads[:MOST_HEADS]]
        rows.append([large, *(_highlight(large, head) for head in maps)])
    height, width = (count * (SIDE + GAP) + GAP for count in (len(rows), len(rows[0])))
    canvas = np.full((height, width, 3), 255, np.uint8)
    for down, row in enumerate(rows):
        for across, tile in enumerate(row):
            top, left = (place * (SIDE + GAP) + GAP for place in (down, across))
            canvas[top : top + SIDE, left : left + SIDE] = tile
    encoded = cv2.imencode(".png", cv2.cvtColor(canvas, cv2.COLOR_RGB2BGR))[1]
    write_bytes(path, encoded.tobytes())


def _highlight(image: NDArray[Any], head: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Returns the map in colours, over a grey copy of the image so that its shape shows through."""
    spread = head.max() - head.min()
    level = ((head - head.min()) / (spread or 1) * 255).astype(np.uint8)
    level = cv2.resize(level, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
    colours = cv2.cvtColor(cv2.applyColorMap(level, cv2.COLORMAP_VIRIDIS), cv2.COLOR_BGR2RGB)
    grey = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    blended: NDArray[np.uint8] = cv2.addWeighted(colours, 0.75, grey, 0.25, 0)  # type: ignore[assignment]
    return blended


def _last_attention(backbone: nn.Module) -> Any:
    """Returns timm's attention of the last block, whose dropout gets the attention if it is not computed fused."""
    layers = [module for module in backbone.modules() if hasattr(module, "fused_attn") and hasattr(module, "attn_drop")]
    return layers[-1] if layers else None


@contextmanager
def _captured(attention: Any) -> Iterator[list[Tensor]]:
    """Yields a list that gets the attention of every forward pass within the block."""
    captured: list[Tensor] = []

    def compute_plainly(*_: object) -> None:  # after the hook with which operators/exchange.py chooses
        attention.fused_attn = False

    before = attention.fused_attn
    hooks = [
        attention.register_forward_pre_hook(compute_plainly),
        attention.attn_drop.register_forward_hook(lambda module, inputs, output: captured.append(output)),
    ]
    try:
        yield captured
    finally:
        attention.fused_attn = before
        for hook in hooks:
            hook.remove()
