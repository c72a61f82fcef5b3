"""A vision transformer to read (Dosovitskiy et al., 2020, arXiv 2010.11929), with the choices that its paper compares.

    podium train -c sample --model teaching_vit_nano --weights none --folds 0 --epochs 15 --level light \\
      --optimizer muon --lr 5e-3        (one minute on two cores, 0.97 held out)
    teaching_vit_nano_2d, _relative, _nopos: other positions; _mean: the mean of the tokens, no class token

Every line of the network is here; timm's layers are not needed. The parameters have timm's names, so the weights of
timm's vit_small_patch32_224 fit (`--model teaching_vit_small_patch32 --weights FILE`) and give the same logits.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from timm.models import build_model_with_cfg, checkpoint, generate_default_cfgs, register_model
from timm.models.vision_transformer import checkpoint_filter_fn
from torch import Tensor, nn

from podium_annex.zoo.config import config
from podium_annex.zoo.intermediates import as_map, collect


class PatchEmbed(nn.Module):
    """Cuts the image into patches and maps each of them to a token, with the same matrix: a strided convolution."""

    def __init__(self, img_size: int, patch_size: int, channels: int, dim: int) -> None:
        super().__init__()
        side = img_size // patch_size
        self.grid_size = (side, side)
        self.proj = nn.Conv2d(channels, dim, patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.proj(images)  # [n, dim, rows, columns]
        if patches.shape[2:] != self.grid_size:
            raise ValueError(f"{tuple(patches.shape[2:])} patches, but the positions are for {self.grid_size}")
        return patches.flatten(2).transpose(1, 2)  # [n, rows * columns, dim]


class RelativePositions(nn.Module):
    """One learned vector for each distance between two patches; queries compare themselves with it as with a key."""

    index: Tensor

    def __init__(self, grid_size: tuple[int, int], head_dim: int, has_class_token: bool) -> None:
        super().__init__()
        rows, columns = grid_size
        row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        row, column = row.flatten(), column.flatten()
        down = row[None] - row[:, None] + rows - 1  # 0 to 2 * rows - 2
        across = column[None] - column[:, None] + columns - 1
        index = down * (2 * columns - 1) + across
        count = (2 * rows - 1) * (2 * columns - 1)
        if has_class_token:  # it has no place: one more vector, for all pairs with it
            index = F.pad(index, (1, 0, 1, 0), value=count)
            count += 1
        self.register_buffer("index", index, persistent=False)
        self.vectors = nn.Parameter(torch.randn(count, head_dim) * 0.02)

    def forward(self, q: Tensor) -> Tensor:
        """Returns what to add to the products of queries [n, heads, tokens, head_dim] and keys."""
        products = q @ self.vectors.T  # with every distance
        return products.gather(-1, self.index.expand(*q.shape[:2], -1, -1))


class Attention(nn.Module):
    """softmax(Q Kᵀ / √d) V, with several heads: each has its own queries, keys and values."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.fused_attn = True
        self.qkv = nn.Linear(dim, 3 * dim)
        self.attn_drop = nn.Identity()  # the attention maps pass through it, if not fused
        self.proj = nn.Linear(dim, dim)
        self.relative: RelativePositions | None = None

    def forward(self, x: Tensor) -> Tensor:
        images, tokens, dim = x.shape
        q, k, v = self.qkv(x).view(images, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q = q * q.shape[-1] ** -0.5
        bias = self.relative(q) if self.relative is not None else None
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        else:
            products = q @ k.transpose(-2, -1)
            maps = (products if bias is None else products + bias).softmax(-1)
            x = self.attn_drop(maps) @ v
        return self.proj(x.transpose(1, 2).reshape(images, tokens, dim))


class Mlp(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Block(nn.Module):
    """Tokens exchange information (attention), then each works on its own (MLP); both are added to what was there."""

    def __init__(self, dim: int, num_heads: int, drop_path: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim)
        self.drop_path = drop_path

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.sometimes_zero(self.attn(self.norm1(x)))
        return x + self.sometimes_zero(self.mlp(self.norm2(x)))

    def sometimes_zero(self, x: Tensor) -> Tensor:
        """Stochastic depth: in training, some images skip the layer."""
        if not self.training or not self.drop_path:
            return x
        keep = 1 - self.drop_path
        return x * x.new_empty(len(x), 1, 1).bernoulli_(keep).div_(keep)


class TeachingViT(nn.Module):
    """`positions` is 1d (a vector for each place), 2d (for each row and each column), relative or none."""

    def __init__(
        self,
        img_size: int | tuple[int, int] = 224,
        patch_size: int = 32,
        dim: int = 384,
        depth: int = 12,
        num_heads: int = 6,
        **options: Any,
    ) -> None:
        super().__init__()
        img_size = img_size if isinstance(img_size, int) else img_size[0]
        self.positions, self.global_pool = options.get("positions", "1d"), options.get("global_pool", "token")
        self.num_classes, self.in_chans = options.get("num_classes", 1000), options.get("in_chans", 3)
        self.num_features = self.head_hidden_size = self.embed_dim = dim
        self.num_prefix_tokens = 1 if self.global_pool == "token" else 0
        self.grad_checkpointing = False
        self.feature_info = [
            {"num_chs": dim, "reduction": patch_size, "module": f"blocks.{number}"} for number in range(depth)
        ]
        self.patch_embed = PatchEmbed(img_size, patch_size, self.in_chans, dim)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 1e-6) if self.num_prefix_tokens else None
        most = options.get("drop_path_rate") or 0.0  # in the last block, none in the first
        self.blocks = nn.ModuleList(Block(dim, num_heads, most * n / max(depth - 1, 1)) for n in range(depth))
        self.add_positions(dim, num_heads)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head: nn.Module
        self.reset_classifier(self.num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def add_positions(self, dim: int, num_heads: int) -> None:
        rows, columns = self.patch_embed.grid_size
        self.pos_embed = self.row_embed = self.column_embed = None
        if self.positions == "1d":
            self.pos_embed = nn.Parameter(torch.randn(1, rows * columns + self.num_prefix_tokens, dim) * 0.02)
        elif self.positions == "2d":  # half of the numbers say the row, half the column
            self.row_embed = nn.Parameter(torch.randn(rows, 1, dim // 2) * 0.02)
            self.column_embed = nn.Parameter(torch.randn(1, columns, dim // 2) * 0.02)
        elif self.positions == "relative":
            attentions = (module for module in self.blocks.modules() if isinstance(module, Attention))
            for attention in attentions:
                attention.relative = RelativePositions((rows, columns), dim // num_heads, bool(self.num_prefix_tokens))

    def embed(self, images: Tensor) -> Tensor:
        """Returns the tokens: patches with their positions, after the class token."""
        x = self.patch_embed(images)
        if self.row_embed is not None and self.column_embed is not None:
            grid = self.patch_embed.grid_size
            halves = self.row_embed.expand(*grid, -1), self.column_embed.expand(*grid, -1)
            x = x + torch.cat(halves, dim=-1).flatten(0, 1)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        return x if self.pos_embed is None else x + self.pos_embed

    def outputs(self, images: Tensor) -> Iterator[Tensor]:
        """Yields the tokens after every block."""
        x = self.embed(images)
        for block in self.blocks:
            x = checkpoint(block, x) if self.grad_checkpointing else block(x)
            yield x

    def forward_features(self, x: Tensor) -> Tensor:
        *_, x = self.outputs(x)
        return self.norm(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The class token, or the mean of all tokens, says what the image is."""
        x = x[:, 0] if self.global_pool == "token" else x.mean(1)
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    # --- what timm asks of a model ---------------------------------------------------------------------

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.endswith(("_embed", "cls_token", "vectors"))}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        stem = r"^cls_token|^pos_embed|^row_embed|^column_embed|^patch_embed"
        return {"stem": stem, "blocks": [(r"^blocks\.(\d+)", None), (r"^norm", (99999,))]}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.grad_checkpointing = enable

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        self.num_classes = num_classes
        self.global_pool = global_pool or self.global_pool
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        last, kept = collect(self.outputs(x), len(self.blocks), indices, stop_early)
        kept = [(self.norm(tokens) if norm else tokens)[:, self.num_prefix_tokens :] for tokens in kept]
        if output_fmt == "NCHW":
            kept = [as_map(tokens, *self.patch_embed.grid_size) for tokens in kept]
        return kept if intermediates_only else (self.norm(last), kept)


_CHOICES: dict[str, dict[str, Any]] = {
    "": {},
    "_mean": {"global_pool": "avg"},
    "_2d": {"positions": "2d"},
    "_relative": {"positions": "relative"},
    "_nopos": {"positions": "none"},
}
_SIZES: dict[str, dict[str, Any]] = {
    "teaching_vit_nano": {"patch_size": 4, "dim": 96, "depth": 6, "num_heads": 3},
    "teaching_vit_small_patch32": {},
}
default_cfgs = generate_default_cfgs(
    {
        size + choice: config(
            input_size=(3, 32, 32) if "nano" in size else (3, 224, 224),
            mean=(0.5,) * 3,
            std=(0.5,) * 3,
            fixed_input_size=True,
        )
        for size in _SIZES
        for choice in _CHOICES
    }
)


def _create(size: str, choice: str, pretrained: bool, **options: Any) -> TeachingViT:
    return build_model_with_cfg(
        TeachingViT,
        size + choice,
        pretrained,
        pretrained_filter_fn=checkpoint_filter_fn,
        feature_cfg={"out_indices": 3, "feature_cls": "getter"},
        **{**_SIZES[size], **_CHOICES[choice], **options},
    )


@register_model
def teaching_vit_nano(pretrained: bool = False, **options: Any) -> TeachingViT:
    return _create("teaching_vit_nano", "", pretrained, **options)


@register_model
def teaching_vit_nano_mean(pretrained: bool = False, **options: Any) -> TeachingViT:
    return _create("teaching_vit_nano", "_mean", pretrained, **options)


@register_model
def teaching_vit_nano_2d(pretrained: bool = False, **options: Any) -> TeachingViT:
    return _create("teaching_vit_nano", "_2d", pretrained, **options)


@register_model
def teaching_vit_nano_relative(pretrained: bool = False, **options: Any) -> TeachingViT:
    return _create("teaching_vit_nano", "_relative", pretrained, **options)


@register_model
def teaching_vit_nano_nopos(pretrained: bool = False, **options: Any) -> TeachingViT:
    return _create("teaching_vit_nano", "_nopos", pretrained, **options)


@register_model
def teaching_vit_small_patch32(pretrained: bool = False, **options: Any) -> TeachingViT:
    return _create("teaching_vit_small_patch32", "", pretrained, **options)


@register_model
def teaching_vit_small_patch32_mean(pretrained: bool = False, **options: Any) -> TeachingViT:
    return _create("teaching_vit_small_patch32", "_mean", pretrained, **options)


@register_model
def teaching_vit_small_patch32_2d(pretrained: bool = False, **options: Any) -> TeachingViT:
    return _create("teaching_vit_small_patch32", "_2d", pretrained, **options)


@register_model
def teaching_vit_small_patch32_relative(pretrained: bool = False, **options: Any) -> TeachingViT:
    return _create("teaching_vit_small_patch32", "_relative", pretrained, **options)


@register_model
def teaching_vit_small_patch32_nopos(pretrained: bool = False, **options: Any) -> TeachingViT:
    return _create("teaching_vit_small_patch32", "_nopos", pretrained, **options)
