"""CSWin (Dong et al., 2021, arXiv 2107.00652): attention in stripes, half of the heads across and half of them down.

    podium train -c sample --model cswin_nano --weights none --folds 0 --epochs 15 --level light \\
      --optimizer muon --lr 5e-3        (one minute on two cores, 0.98 held out)

A cross of stripes joins distant places in one block, and stripes of full length cost less than the whole map: they are
1, 2 and 7 tokens wide in the first three maps of a 224 px image. The last map is one window. A depthwise convolution of
the values inside a window tells where they are ("locally enhanced positions"), so any size of image is possible.
"""

import re
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import DropPath, Mlp, calculate_drop_path_rates, use_fused_attn
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn

from podium_annex.zoo.config import config
from podium_annex.zoo.intermediates import as_map
from podium_annex.zoo.staged import Size, Stage, StagedNet

STRIPES = (1, 2, None)  # width in the first three maps; None: half of the map, 7 of 14 tokens at 224 px


class WindowAttention(nn.Module):
    """Attention within windows, plus a depthwise convolution of the values."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.fused_attn = use_fused_attn()
        self.get_v = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.attn_drop = nn.Dropout(0.0)

    def forward(self, qkv: Tensor, window: Size) -> Tensor:
        """Takes [windows, tokens, 3, dim]; returns [windows, tokens, dim]."""
        windows, tokens, _, dim = qkv.shape
        q, k, v = qkv.view(windows, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v)
        else:
            x = self.attn_drop((q * self.scale @ k.transpose(-2, -1)).softmax(-1)) @ v
        positions = self.get_v(as_map(qkv[:, :, 2], *window)).flatten(2).transpose(1, 2)
        return x.transpose(1, 2).reshape(windows, tokens, dim) + positions


class Block(nn.Module):
    """`stripe` is the width of the stripes; 0 means one window, the whole map, for all heads."""

    def __init__(self, dim: int, num_heads: int, stripe: int | None, drop_path: float) -> None:
        super().__init__()
        self.stripe = stripe
        branches = 1 if stripe == 0 else 2
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attns = nn.ModuleList(WindowAttention(dim // branches, num_heads // branches) for _ in range(branches))
        self.proj = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = Mlp(dim, 4 * dim)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, size: Size) -> Tensor:
        x = x + self.drop_path(self.proj(self.attend(self.qkv(self.norm1(x)), size)))
        return x + self.drop_path(self.mlp(self.norm2(x)))

    def attend(self, qkv: Tensor, size: Size) -> Tensor:
        height, width = size
        qkv = qkv.unflatten(-1, (3, -1))
        if self.stripe == 0:
            return self.attns[0](qkv, size)
        down, across = qkv.chunk(2, dim=-1)
        down = in_windows(self.attns[0], down, size, (height, self.stripe or width // 2))
        across = in_windows(self.attns[1], across, size, (self.stripe or height // 2, width))
        return torch.cat([down, across], dim=-1)


def in_windows(attention: nn.Module, x: Tensor, size: Size, window: Size) -> Tensor:
    """Cuts a map into windows, applies attention to each, and puts the map together again."""
    (height, width), (high, wide) = size, window
    if not (high and wide) or height % high or width % wide:
        raise ValueError(f"a map of {height} x {width} tokens cannot be cut into stripes of {high} x {wide}")
    rows, columns = height // high, width // wide
    x = x.reshape(len(x), rows, high, columns, wide, 3, -1).transpose(2, 3).flatten(3, 4).flatten(0, 2)
    x = attention(x, window)
    return x.view(-1, rows, columns, high, wide, x.shape[-1]).transpose(2, 3).flatten(1, 4)


class CSWinStage(Stage):
    """A convolution with overlapping windows makes the tokens: 7 x 7 in the first stage, then 3 x 3."""

    def __init__(self, channels: int, dim: int, is_first: bool, blocks: list[nn.Module]) -> None:
        super().__init__(blocks)
        self.conv = nn.Conv2d(channels, dim, 7, 4, padding=2) if is_first else nn.Conv2d(channels, dim, 3, 2, padding=1)
        self.norm = nn.LayerNorm(dim)

    def embed(self, x: Tensor) -> tuple[Tensor, Size]:
        x = self.conv(x)
        return self.norm(x.flatten(2).transpose(1, 2)), (x.shape[2], x.shape[3])


class CSWin(StagedNet):
    def __init__(
        self, dim: int = 64, depths: tuple[int, ...] = (), heads: tuple[int, ...] = (), **options: Any
    ) -> None:
        drop_paths = iter(calculate_drop_path_rates(options.get("drop_path_rate", 0.0), sum(depths)))
        dims = tuple(dim << number for number in range(len(depths)))
        channels = (options.get("in_chans", 3), *dims)
        stages: list[Stage] = []
        for number, stripe in enumerate((*STRIPES, 0)):
            facts = (dims[number], heads[number], stripe)
            blocks: list[nn.Module] = [Block(*facts, next(drop_paths)) for _ in range(depths[number])]
            stages.append(CSWinStage(channels[number], dims[number], number == 0, blocks))
        super().__init__(stages, dims, "avg", nn.LayerNorm(dims[-1]), options)


def checkpoint_filter_fn(state_dict: dict[str, Any], model: CSWin) -> dict[str, Tensor]:
    """Renames the authors' parameters."""
    state_dict = state_dict.get("state_dict_ema", state_dict.get("state_dict", state_dict))
    renamed = {}
    for name, value in state_dict.items():
        name = re.sub(r"^stage1_conv_embed\.0", "stages.0.conv", name)
        name = re.sub(r"^stage1_conv_embed\.2", "stages.0.norm", name)
        name = re.sub(r"^merge(\d)", lambda match: f"stages.{match[1]}", name)
        name = re.sub(r"^stage(\d)\.", lambda match: f"stages.{int(match[1]) - 1}.blocks.", name)
        renamed[name] = value
    return renamed


_SIZES: dict[str, dict[str, Any]] = {
    "cswin_nano": {"dim": 32, "depths": (1, 1, 2, 1), "heads": (2, 4, 8, 8)},  # not in the paper
    "cswin_tiny": {"dim": 64, "depths": (1, 2, 21, 1), "heads": (2, 4, 8, 16)},
    "cswin_small": {"dim": 64, "depths": (2, 4, 32, 2), "heads": (2, 4, 8, 16)},
    "cswin_base": {"dim": 96, "depths": (2, 4, 32, 2), "heads": (4, 8, 16, 32)},
    "cswin_large": {"dim": 144, "depths": (2, 4, 32, 2), "heads": (6, 12, 24, 24)},
}
default_cfgs = generate_default_cfgs(
    {
        name: config(input_size=(3, 32, 32) if name == "cswin_nano" else (3, 224, 224), first_conv="stages.0.conv")
        for name in _SIZES
    }
)


def _create(name: str, pretrained: bool, **options: Any) -> CSWin:
    return build_model_with_cfg(
        CSWin,
        name,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": (0, 1, 2, 3), "feature_cls": "getter"},
        **{**_SIZES[name], **options},
    )


@register_model
def cswin_nano(pretrained: bool = False, **options: Any) -> CSWin:
    return _create("cswin_nano", pretrained, **options)


@register_model
def cswin_tiny(pretrained: bool = False, **options: Any) -> CSWin:
    return _create("cswin_tiny", pretrained, **options)


@register_model
def cswin_small(pretrained: bool = False, **options: Any) -> CSWin:
    return _create("cswin_small", pretrained, **options)


@register_model
def cswin_base(pretrained: bool = False, **options: Any) -> CSWin:
    return _create("cswin_base", pretrained, **options)


@register_model
def cswin_large(pretrained: bool = False, **options: Any) -> CSWin:
    return _create("cswin_large", pretrained, **options)
