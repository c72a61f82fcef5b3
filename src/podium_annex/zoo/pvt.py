"""PVT (Wang et al., 2021, arXiv 2102.12122): a transformer with four maps of falling size, as a ConvNet has them.

    podium train -c sample --model pvt_nano --weights none --folds 0 --epochs 15 --level light \\
      --optimizer muon --lr 5e-3        (one minute on two cores, 0.99 held out)

Attention over a large map costs too much, so its keys and values come from a smaller copy of the map. The class token
joins in the last stage. (timm has the second version, pvt_v2_*, with other patches and no class token.)
"""

import re
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import (
    DropPath,
    LayerNorm,
    Mlp,
    PatchEmbed,
    calculate_drop_path_rates,
    resample_abs_pos_embed,
    trunc_normal_,
    use_fused_attn,
)
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn

from podium_annex.zoo.config import config
from podium_annex.zoo.intermediates import as_map
from podium_annex.zoo.staged import Size, Stage, StagedNet

REDUCTIONS = (8, 4, 2, 1)  # of the map's sides, for keys and values
MLP_RATIOS = (8, 8, 4, 4)


class ReducedAttention(nn.Module):
    def __init__(self, dim: int, num_heads: int, reduction: int) -> None:
        super().__init__()
        self.num_heads, self.reduction = num_heads, reduction
        self.scale = (dim // num_heads) ** -0.5
        self.fused_attn = use_fused_attn()
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        if reduction > 1:
            self.sr = nn.Conv2d(dim, dim, reduction, stride=reduction)
            self.norm = nn.LayerNorm(dim)
        self.attn_drop = nn.Dropout(0.0)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, size: Size) -> Tensor:
        batch, tokens, dim = x.shape
        source = x
        if self.reduction > 1:
            source = self.norm(self.sr(as_map(x, *size)).flatten(2).transpose(1, 2))
        q = self.q(x).view(batch, tokens, self.num_heads, -1).transpose(1, 2)
        k, v = self.kv(source).view(batch, source.shape[1], 2, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v)
        else:
            x = self.attn_drop((q * self.scale @ k.transpose(-2, -1)).softmax(-1)) @ v
        return self.proj(x.transpose(1, 2).reshape(batch, tokens, dim))


class Block(nn.Module):
    def __init__(self, dim: int, num_heads: int, mlp_ratio: int, reduction: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = LayerNorm(dim)
        self.attn = ReducedAttention(dim, num_heads, reduction)
        self.norm2 = LayerNorm(dim)
        self.mlp = Mlp(dim, dim * mlp_ratio)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, size: Size) -> Tensor:
        x = x + self.drop_path(self.attn(self.norm1(x), size))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class PVTStage(Stage):
    """Patches with learned positions; in the last stage, a class token before them."""

    def __init__(self, patch_embed: PatchEmbed, blocks: list[nn.Module], is_last: bool) -> None:
        super().__init__(blocks)
        self.patch_embed = patch_embed
        dim, positions = patch_embed.proj.out_channels, patch_embed.num_patches + is_last
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if is_last else None
        self.pos_embed = nn.Parameter(torch.zeros(1, positions, dim))

    def embed(self, x: Tensor) -> tuple[Tensor, Size]:
        tokens = self.patch_embed(x)
        if self.cls_token is not None:
            tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), tokens], dim=1)
        return tokens + self.pos_embed, self.patch_embed.grid_size


class PVT(StagedNet):
    def __init__(
        self, img_size: int | Size = 224, depths: tuple[int, ...] = (), dims: tuple[int, ...] = (), **options: Any
    ) -> None:
        drop_paths = iter(calculate_drop_path_rates(options.get("drop_path_rate", 0.0), sum(depths)))
        stages: list[Stage] = []
        side, channels, patch = img_size, options.get("in_chans", 3), 4
        for number, (dim, depth) in enumerate(zip(dims, depths, strict=True)):
            patch_embed = PatchEmbed(side, patch, channels, dim, norm_layer=nn.LayerNorm)
            facts = (dim, max(dim // 64, 1), MLP_RATIOS[number], REDUCTIONS[number])
            blocks: list[nn.Module] = [Block(*facts, next(drop_paths)) for _ in range(depth)]
            stages.append(PVTStage(patch_embed, blocks, is_last=number == len(dims) - 1))
            side, channels, patch = patch_embed.grid_size, dim, 2
        super().__init__(stages, dims, "token", LayerNorm(dims[-1]), options)
        for name, parameter in self.named_parameters():
            if name.endswith(("pos_embed", "cls_token")):
                trunc_normal_(parameter, std=0.02)


def checkpoint_filter_fn(state_dict: dict[str, Tensor], model: PVT) -> dict[str, Tensor]:
    """Renames the authors' parameters, and resizes the positions to the model's maps."""
    renamed = {}
    for name, value in state_dict.items():
        name = re.sub(r"^block(\d)", lambda match: f"stages.{int(match[1]) - 1}.blocks", name)
        name = re.sub(r"^(patch_embed|pos_embed)(\d)", lambda match: f"stages.{int(match[2]) - 1}.{match[1]}", name)
        name = re.sub(r"^cls_token", f"stages.{len(model.stages) - 1}.cls_token", name)
        if name.endswith("pos_embed"):
            stage: Any = model.stages[int(name.split(".")[1])]
            prefix = stage.pos_embed.shape[1] - stage.patch_embed.num_patches
            value = resample_abs_pos_embed(value, stage.patch_embed.grid_size, num_prefix_tokens=prefix)
        renamed[name] = value
    return renamed


_DIMS = (64, 128, 320, 512)
_SIZES: dict[str, dict[str, Any]] = {
    "pvt_nano": {"img_size": 64, "depths": (1, 1, 2, 1), "dims": (32, 64, 128, 192)},  # not in the paper
    "pvt_tiny": {"depths": (2, 2, 2, 2), "dims": _DIMS},
    "pvt_small": {"depths": (3, 4, 6, 3), "dims": _DIMS},
    "pvt_medium": {"depths": (3, 4, 18, 3), "dims": _DIMS},
    "pvt_large": {"depths": (3, 8, 27, 3), "dims": _DIMS},
}
default_cfgs = generate_default_cfgs(
    {
        name: config(
            input_size=(3, size.get("img_size", 224), size.get("img_size", 224)),
            first_conv="stages.0.patch_embed.proj",
            fixed_input_size=True,
        )
        for name, size in _SIZES.items()
    }
)


def _create(name: str, pretrained: bool, **options: Any) -> PVT:
    return build_model_with_cfg(
        PVT,
        name,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": (0, 1, 2, 3), "feature_cls": "getter"},
        **{**_SIZES[name], **options},
    )


@register_model
def pvt_nano(pretrained: bool = False, **options: Any) -> PVT:
    return _create("pvt_nano", pretrained, **options)


@register_model
def pvt_tiny(pretrained: bool = False, **options: Any) -> PVT:
    return _create("pvt_tiny", pretrained, **options)


@register_model
def pvt_small(pretrained: bool = False, **options: Any) -> PVT:
    return _create("pvt_small", pretrained, **options)


@register_model
def pvt_medium(pretrained: bool = False, **options: Any) -> PVT:
    return _create("pvt_medium", pretrained, **options)


@register_model
def pvt_large(pretrained: bool = False, **options: Any) -> PVT:
    return _create("pvt_large", pretrained, **options)
