"""T2T-ViT (Yuan et al., 2021, arXiv 2101.11986): neighbouring tokens are merged step by step into one.

    podium train -c sample --model t2t_vit_nano --weights none --folds 0 --epochs 15 --level light \\
      --optimizer muon --lr 5e-3        (one minute on two cores, 0.99 held out)

ViT cuts patches that do not overlap, and loses edges and lines between them. Here a soft split takes overlapping
windows: each window of 7 x 7 pixels, then of 3 x 3 tokens, becomes one token. Between the splits, a narrow transformer
layer looks at all tokens: t2t_vit_t_* with softmax attention, the others with the Performer's, whose cost is linear.
"""

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from timm.layers import Mlp, PatchEmbed, use_fused_attn
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model, vision_transformer
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from podium_annex.zoo.config import config
from podium_annex.zoo.intermediates import as_map

TOKEN_DIM = 64  # of the layers between the splits


class WideAttention(nn.Module):
    """One head that maps wide windows to narrow tokens; the values take the place of the skip connection."""

    def __init__(self, dim: int, dim_out: int) -> None:
        super().__init__()
        self.fused_attn = use_fused_attn()
        self.scale = dim**-0.5  # as the authors do, although keys have dim_out numbers
        self.qkv = nn.Linear(dim, 3 * dim_out, bias=False)
        self.attn_drop = nn.Dropout(0.0)
        self.proj = nn.Linear(dim_out, dim_out)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, dim=-1)
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        else:
            x = self.attn_drop((q * self.scale @ k.transpose(-2, -1)).softmax(-1)) @ v
        return (v + self.proj(x)).squeeze(1)


class TokenTransformer(nn.Module):
    def __init__(self, dim: int, dim_out: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = WideAttention(dim, dim_out)
        self.norm2 = nn.LayerNorm(dim_out)
        self.mlp = Mlp(dim_out)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TokenPerformer(nn.Module):
    """The same with the attention of "Rethinking Attention with Performers" (arXiv 2009.14794): q and k become positive
    random features, whose products take the place of exp(q k); then (k v) comes first, and no map of all pairs."""

    w: Tensor

    def __init__(self, dim: int, dim_out: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.kqv = nn.Linear(dim, 3 * dim_out)
        self.proj = nn.Linear(dim_out, dim_out)
        self.dp = nn.Dropout(0.1)
        self.norm2 = nn.LayerNorm(dim_out)
        self.mlp = nn.Sequential(nn.Linear(dim_out, dim_out), nn.GELU(), nn.Linear(dim_out, dim_out), nn.Dropout(0.1))
        features = dim_out // 2
        self.register_buffer("w", nn.init.orthogonal_(torch.empty(features, dim_out)) * math.sqrt(features))

    def features(self, x: Tensor) -> Tensor:
        return (x @ self.w.float().T - x.square().sum(-1, keepdim=True) / 2).exp() / math.sqrt(len(self.w))

    def forward(self, x: Tensor) -> Tensor:
        k, q, v = self.kqv(self.norm1(x)).chunk(3, dim=-1)
        with torch.autocast(x.device.type, enabled=False):  # exponents need more digits than bfloat16 has
            k, q, values = self.features(k.float()), self.features(q.float()), v.float()
            attended = q @ (k.transpose(1, 2) @ values) / (q @ k.sum(1).unsqueeze(-1) + 1e-8)
        x = v + self.dp(self.proj(attended.to(v.dtype)))
        return x + self.mlp(self.norm2(x))


class TokensToToken(PatchEmbed):
    """Three soft splits, which make a token of 16 x 16 pixels."""

    def __init__(self, img_size: int, patch_size: int, in_chans: int, embed_dim: int, layer: Any, **_: Any) -> None:
        nn.Module.__init__(self)
        self.patch_size = (16, 16)
        self.img_size, self.grid_size, self.num_patches = self._init_img_size(img_size)
        self.attention1 = layer(in_chans * 7 * 7, TOKEN_DIM)
        self.attention2 = layer(TOKEN_DIM * 3 * 3, TOKEN_DIM)
        self.project = nn.Linear(TOKEN_DIM * 3 * 3, embed_dim)
        self.dynamic_img_pad = False

    def forward(self, x: Tensor) -> Tensor:
        if any(side % 16 for side in x.shape[-2:]):
            raise ValueError("the sides of images must be multiples of 16 pixels")
        if tuple(x.shape[-2:]) != self.img_size:
            raise ValueError(f"the model was built for images of {self.img_size} pixels")
        height, width = self.img_size
        x = self.attention1(soft_split(x, 7, 4))
        x = self.attention2(soft_split(as_map(x, height // 4, width // 4), 3, 2))
        return self.project(soft_split(as_map(x, height // 8, width // 8), 3, 2))


def soft_split(x: Tensor, window: int, stride: int) -> Tensor:
    """Returns overlapping windows as tokens."""
    return F.unfold(x, window, stride=stride, padding=(window - stride + 1) // 2).transpose(1, 2)


class T2TViT(VisionTransformer):
    """The positions are waves of different length, and not learned."""

    def __init__(self, **options: Any) -> None:
        super().__init__(qkv_bias=False, norm_layer=nn.LayerNorm, **options)
        learned: Tensor = self.get_parameter("pos_embed")
        self.pos_embed = nn.Parameter(sinusoids(*learned.shape[1:]), requires_grad=False)


def sinusoids(tokens: int, dim: int) -> Tensor:
    """Returns the position table of "Attention is all you need": sines at even places, cosines at odd ones."""
    frequencies = 10000 ** (-2 * (torch.arange(dim, dtype=torch.float64) // 2) / dim)
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * frequencies
    angles[:, 1::2] += math.pi / 2  # the sine becomes a cosine
    return angles.sin().float().unsqueeze(0)


def checkpoint_filter_fn(state_dict: dict[str, Tensor], model: T2TViT) -> dict[str, Tensor]:
    """Gives the soft splits timm's name for what makes tokens; timm resizes the positions."""
    renamed = {name.replace("tokens_to_token.", "patch_embed."): value for name, value in state_dict.items()}
    return vision_transformer.checkpoint_filter_fn(renamed, model)


_SIZES: dict[str, dict[str, Any]] = {
    "t2t_vit_nano": {"img_size": 64, "embed_dim": 96, "depth": 6, "num_heads": 3, "mlp_ratio": 2},  # not in the paper
    "t2t_vit_7": {"embed_dim": 256, "depth": 7, "num_heads": 4, "mlp_ratio": 2},
    "t2t_vit_10": {"embed_dim": 256, "depth": 10, "num_heads": 4, "mlp_ratio": 2},
    "t2t_vit_12": {"embed_dim": 256, "depth": 12, "num_heads": 4, "mlp_ratio": 2},
    "t2t_vit_14": {"embed_dim": 384, "depth": 14, "num_heads": 6, "mlp_ratio": 3},
    "t2t_vit_19": {"embed_dim": 448, "depth": 19, "num_heads": 7, "mlp_ratio": 3},
    "t2t_vit_24": {"embed_dim": 512, "depth": 24, "num_heads": 8, "mlp_ratio": 3},
    "t2t_vit_t_14": {"embed_dim": 384, "depth": 14, "num_heads": 6, "mlp_ratio": 3},
    "t2t_vit_t_19": {"embed_dim": 448, "depth": 19, "num_heads": 7, "mlp_ratio": 3},
    "t2t_vit_t_24": {"embed_dim": 512, "depth": 24, "num_heads": 8, "mlp_ratio": 3},
}
default_cfgs = generate_default_cfgs(
    {
        name: config(
            input_size=(3, size.get("img_size", 224), size.get("img_size", 224)),
            first_conv=None,
            fixed_input_size=True,
        )
        for name, size in _SIZES.items()
    }
)


def _create(name: str, pretrained: bool, **options: Any) -> T2TViT:
    layer = TokenTransformer if name.startswith("t2t_vit_t_") else TokenPerformer
    return build_model_with_cfg(
        T2TViT,
        name,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": 3, "feature_cls": "getter"},
        embed_layer=partial(TokensToToken, layer=layer),
        **{**_SIZES[name], **options},
    )


@register_model
def t2t_vit_nano(pretrained: bool = False, **options: Any) -> T2TViT:
    return _create("t2t_vit_nano", pretrained, **options)


@register_model
def t2t_vit_7(pretrained: bool = False, **options: Any) -> T2TViT:
    return _create("t2t_vit_7", pretrained, **options)


@register_model
def t2t_vit_10(pretrained: bool = False, **options: Any) -> T2TViT:
    return _create("t2t_vit_10", pretrained, **options)


@register_model
def t2t_vit_12(pretrained: bool = False, **options: Any) -> T2TViT:
    return _create("t2t_vit_12", pretrained, **options)


@register_model
def t2t_vit_14(pretrained: bool = False, **options: Any) -> T2TViT:
    return _create("t2t_vit_14", pretrained, **options)


@register_model
def t2t_vit_19(pretrained: bool = False, **options: Any) -> T2TViT:
    return _create("t2t_vit_19", pretrained, **options)


@register_model
def t2t_vit_24(pretrained: bool = False, **options: Any) -> T2TViT:
    return _create("t2t_vit_24", pretrained, **options)


@register_model
def t2t_vit_t_14(pretrained: bool = False, **options: Any) -> T2TViT:
    return _create("t2t_vit_t_14", pretrained, **options)


@register_model
def t2t_vit_t_19(pretrained: bool = False, **options: Any) -> T2TViT:
    return _create("t2t_vit_t_19", pretrained, **options)


@register_model
def t2t_vit_t_24(pretrained: bool = False, **options: Any) -> T2TViT:
    return _create("t2t_vit_t_24", pretrained, **options)
