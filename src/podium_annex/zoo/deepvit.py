"""DeepViT (Zhou et al., 2021, arXiv 2103.11886): in the deeper blocks, learned mixing makes the heads differ again.

    podium train -c sample --model deepvit_nano --weights none --folds 0 --epochs 15 --level light \\
      --optimizer muon --lr 5e-3        (one minute on two cores, 0.98 held out)

In a plain ViT, the attention maps of deep blocks are nearly the same, so more blocks bring nothing. Re-attention mixes
the maps of all heads with a learned matrix Θ, then normalises them: Norm(Θᵀ softmax(QKᵀ / √d)) V.
"""

from functools import partial
from typing import Any

from timm.layers import PatchEmbed
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import Attention, Block, VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn

from podium_annex.zoo.config import config

BLOCK_SCALE = 0.5  # the authors' scale_adjustment: a block sees half of its input, and its output counts twice


class ReAttention(Attention):
    """Attention whose maps are mixed across the heads, so no fused kernel can compute it."""

    def __init__(self, dim: int, num_heads: int, **options: Any) -> None:
        super().__init__(dim, num_heads, **options)
        self.fused_attn = False
        self.reatten_matrix = nn.Conv2d(num_heads, num_heads, 1)
        self.var_norm = nn.BatchNorm2d(num_heads)
        self.map_scale = 1.0

    def forward(self, x: Tensor, attn_mask: None = None, is_causal: bool = False) -> Tensor:
        batch, tokens, dim = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        maps = self.attn_drop((q * self.scale @ k.transpose(-2, -1)).softmax(-1))
        maps = self.var_norm(self.reatten_matrix(maps)) * self.map_scale
        x = (maps @ v).transpose(1, 2).reshape(batch, tokens, dim)
        return self.proj_drop(self.proj(x))


class DeepBlock(Block):
    """A block of number `depth`: the first ones, `plain_blocks`, have plain attention."""

    def __init__(self, *args: Any, depth: int, plain_blocks: int, scale_maps: bool, **options: Any) -> None:
        is_plain = depth < plain_blocks
        super().__init__(*args, **{**options, "attn_layer": Attention if is_plain else ReAttention})
        if scale_maps and not is_plain:
            self.attn.map_scale = self.attn.scale

    def forward(self, x: Tensor, attn_mask: None = None, is_causal: bool = False) -> Tensor:
        x = x + self.drop_path1(self.attn(self.norm1(x * BLOCK_SCALE))) / BLOCK_SCALE
        return x + self.drop_path2(self.mlp(self.norm2(x * BLOCK_SCALE))) / BLOCK_SCALE


class ConvPatchEmbed(PatchEmbed):
    """Two convolutions before the patches are cut."""

    def __init__(self, img_size: int, patch_size: int, in_chans: int, embed_dim: int, **options: Any) -> None:
        super().__init__(img_size, patch_size, in_chans, embed_dim, **options)
        self.conv1 = nn.Conv2d(in_chans, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.conv2 = nn.Conv2d(64, 64, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(64)
        self.proj = nn.Conv2d(64, embed_dim, patch_size // 2, stride=patch_size // 2)

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[-2:]) != self.img_size:
            raise ValueError(f"images of {tuple(x.shape[-2:])} pixels, but the model is for {self.img_size}")
        x = self.bn1(self.conv1(x)).relu()
        x = self.bn2(self.conv2(x)).relu()
        return self.proj(x).flatten(2).transpose(1, 2)


_INPUTS: dict[str, Any] = {
    "mean": (0.5,) * 3,
    "std": (0.5,) * 3,
    "first_conv": "patch_embed.conv1",
    "fixed_input_size": True,
}
default_cfgs = generate_default_cfgs(
    {
        "deepvit_nano": config(input_size=(3, 32, 32), **_INPUTS),
        "deepvit_small": config(**_INPUTS),
        "deepvit_large": config(**_INPUTS),
        "deepvit_large_384": config(input_size=(3, 384, 384), crop_pct=1.0, **_INPUTS),
    }
)


def _create(name: str, pretrained: bool, plain_blocks: int, scale_maps: bool, **options: Any) -> VisionTransformer:
    return build_model_with_cfg(
        VisionTransformer,
        name,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": 3, "feature_cls": "getter"},
        block_fn=partial(DeepBlock, plain_blocks=plain_blocks, scale_maps=scale_maps),
        embed_layer=ConvPatchEmbed,
        norm_layer=partial(nn.LayerNorm, eps=1e-6),
        mlp_ratio=3,
        **options,
    )


@register_model
def deepvit_nano(pretrained: bool = False, **options: Any) -> VisionTransformer:
    """For images of 32 px on a CPU; not in the paper."""
    size = {"img_size": 32, "patch_size": 8, "embed_dim": 96, "depth": 6, "num_heads": 6, **options}
    return _create("deepvit_nano", pretrained, plain_blocks=3, scale_maps=True, **size)


@register_model
def deepvit_small(pretrained: bool = False, **options: Any) -> VisionTransformer:
    size = {"patch_size": 16, "embed_dim": 396, "depth": 16, "num_heads": 12, **options}
    return _create("deepvit_small", pretrained, plain_blocks=11, scale_maps=True, **size)


@register_model
def deepvit_large(pretrained: bool = False, **options: Any) -> VisionTransformer:
    size = {"patch_size": 16, "embed_dim": 420, "depth": 32, "num_heads": 12, **options}
    return _create("deepvit_large", pretrained, plain_blocks=20, scale_maps=False, **size)


@register_model
def deepvit_large_384(pretrained: bool = False, **options: Any) -> VisionTransformer:
    size = {"img_size": 384, "patch_size": 16, "embed_dim": 420, "depth": 32, "num_heads": 12, **options}
    return _create("deepvit_large_384", pretrained, plain_blocks=20, scale_maps=False, **size)
