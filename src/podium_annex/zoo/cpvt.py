"""CPVT (Chu et al., 2021, arXiv 2102.10882): a convolution makes the positions from the tokens themselves.

    podium train -c sample --model cpvt_nano --weights none --folds 0 --epochs 15 --level light \\
      --optimizer muon --lr 5e-3        (one minute on two cores, 0.98 held out)
    cpvt_nano_gap: the mean of the tokens, no class token

The convolution follows the first block. Its zeros around the image tell the tokens where the edges are. It takes any
number of tokens, so the model takes any size of image, and a shifted image gives shifted features.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from timm.models import build_model_with_cfg, checkpoint, generate_default_cfgs, register_model
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import Tensor, nn

from podium_annex.zoo.config import config
from podium_annex.zoo.intermediates import as_map, collect


class PositionGenerator(nn.Module):
    """Adds a depthwise convolution of the patch tokens to them; the class token has no place and stays as it is."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)

    def forward(self, x: Tensor, height: int, width: int) -> Tensor:
        class_token, patches = x.tensor_split([x.shape[1] - height * width], dim=1)
        patches = as_map(patches, height, width)
        patches = patches + self.proj(patches)
        return torch.cat([class_token, patches.flatten(2).transpose(1, 2)], dim=1)


class CPVT(VisionTransformer):
    def __init__(self, **options: Any) -> None:
        super().__init__(pos_embed="none", dynamic_img_size=True, **options)
        self.pos_block = PositionGenerator(self.embed_dim)

    def outputs(self, images: Tensor) -> Iterator[Tensor]:
        """Yields the tokens after every block."""
        patches = self.patch_embed(images)
        height, width = patches.shape[1:3]
        x = self.pos_drop(self._pos_embed(patches))  # which only adds the class token
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x) if self.grad_checkpointing else block(x)
            if number == 0:
                x = self.pos_block(x, height, width)
            yield x

    def forward_features(self, x: Tensor, attn_mask: None = None, is_causal: bool = False) -> Tensor:
        *_, x = self.outputs(x)
        return self.norm(x)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        height, width = self.patch_embed.dynamic_feat_size(x.shape[-2:])
        last, kept = collect(self.outputs(x), len(self.blocks), indices, stop_early)
        kept = [(self.norm(tokens) if norm else tokens)[:, self.num_prefix_tokens :] for tokens in kept]
        kept = [as_map(tokens, height, width) if output_fmt == "NCHW" else tokens for tokens in kept]
        return kept if intermediates_only else (self.norm(last), kept)


_SIZES = ("nano", "tiny", "small", "base")
default_cfgs = generate_default_cfgs(
    {
        f"cpvt_{size}{pool}": config(input_size=(3, 32, 32) if size == "nano" else (3, 224, 224))
        for size in _SIZES
        for pool in ("", "_gap")
    }
)


def _create(name: str, pretrained: bool, **options: Any) -> CPVT:
    if name.endswith("_gap"):
        options = {"class_token": False, "global_pool": "avg", "fc_norm": False, **options}
    return build_model_with_cfg(
        CPVT,
        name,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": 3, "feature_cls": "getter"},
        norm_layer=partial(nn.LayerNorm, eps=1e-6),
        **options,
    )


_NANO = {"img_size": 32, "patch_size": 4, "embed_dim": 96, "depth": 6, "num_heads": 3}  # for a CPU; not in the paper
_TINY = {"embed_dim": 192, "num_heads": 3}
_SMALL = {"embed_dim": 384, "num_heads": 6}
_BASE = {"embed_dim": 768, "num_heads": 12}


@register_model
def cpvt_nano(pretrained: bool = False, **options: Any) -> CPVT:
    return _create("cpvt_nano", pretrained, **{**_NANO, **options})


@register_model
def cpvt_nano_gap(pretrained: bool = False, **options: Any) -> CPVT:
    return _create("cpvt_nano_gap", pretrained, **{**_NANO, **options})


@register_model
def cpvt_tiny(pretrained: bool = False, **options: Any) -> CPVT:
    return _create("cpvt_tiny", pretrained, **{**_TINY, **options})


@register_model
def cpvt_tiny_gap(pretrained: bool = False, **options: Any) -> CPVT:
    return _create("cpvt_tiny_gap", pretrained, **{**_TINY, **options})


@register_model
def cpvt_small(pretrained: bool = False, **options: Any) -> CPVT:
    return _create("cpvt_small", pretrained, **{**_SMALL, **options})


@register_model
def cpvt_small_gap(pretrained: bool = False, **options: Any) -> CPVT:
    return _create("cpvt_small_gap", pretrained, **{**_SMALL, **options})


@register_model
def cpvt_base(pretrained: bool = False, **options: Any) -> CPVT:
    return _create("cpvt_base", pretrained, **{**_BASE, **options})


@register_model
def cpvt_base_gap(pretrained: bool = False, **options: Any) -> CPVT:
    return _create("cpvt_base_gap", pretrained, **{**_BASE, **options})
