"""What transformers with stages of falling map size share: blocks, head, pooling, intermediate maps."""

from collections.abc import Iterator
from typing import Any

import torch
from timm.layers import global_pool_nlc, trunc_normal_
from timm.models import checkpoint
from torch import Tensor, nn

from podium_annex.zoo.intermediates import as_map, collect

Size = tuple[int, int]  # height and width of a map


class Stage(nn.Module):
    """Makes tokens of a map, then runs blocks on them; a subclass has `embed`."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.grad_checkpointing = False

    def embed(self, x: Tensor) -> tuple[Tensor, Size]:
        raise NotImplementedError

    def forward(self, x: Tensor) -> tuple[Tensor, Size]:
        tokens, size = self.embed(x)
        for block in self.blocks:
            tokens = checkpoint(block, tokens, size) if self.grad_checkpointing else block(tokens, size)
        return tokens, size


class StagedNet(nn.Module):
    """Stages, one after the other; the head sees the class token or the mean of the last stage's tokens."""

    def __init__(
        self, stages: list[Stage], dims: tuple[int, ...], pool: str, norm: nn.Module, options: dict[str, Any]
    ) -> None:
        super().__init__()
        self.num_classes, self.in_chans = options.get("num_classes", 1000), options.get("in_chans", 3)
        self.global_pool, self.num_features = pool, dims[-1]
        self.head_hidden_size = dims[-1]
        self.num_prefix_tokens = 1 if pool == "token" else 0  # in the last stage
        self.feature_info = [
            {"num_chs": dim, "reduction": 4 << number, "module": f"stages.{number}"} for number, dim in enumerate(dims)
        ]
        self.stages = nn.ModuleList(stages)
        self.norm = norm
        self.head_drop = nn.Dropout(options.get("drop_rate", 0.0))
        self.reset_classifier(self.num_classes)
        self.apply(init_linear)

    @torch.jit.ignore
    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.endswith(("pos_embed", "cls_token"))}

    @torch.jit.ignore
    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layers for the layer decay: each block is one; what makes the tokens belongs to the stage's first block."""
        if coarse:
            return {"stem": r"^stages\.0\.embed", "blocks": [(r"^stages\.(\d+)", None), (r"^norm", (99999,))]}
        blocks = [(r"^stages\.(\d+)\.blocks\.(\d+)", None), (r"^stages\.(\d+)", (0,)), (r"^norm", (99999,))]
        return {"stem": r"^stages\.0\.(?!blocks)", "blocks": blocks}

    @torch.jit.ignore
    def set_grad_checkpointing(self, enable: bool = True) -> None:
        for stage in self.stages.children():
            stage.grad_checkpointing = enable  # type: ignore[assignment]  # a flag, not a tensor or a module

    def get_classifier(self) -> nn.Module:
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        self.num_classes = num_classes
        self.global_pool = self.global_pool if global_pool is None else global_pool
        self.head = nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()

    def outputs(self, images: Tensor) -> Iterator[tuple[Tensor, Size]]:
        """Yields each stage's tokens, and the size of their map."""
        x = images
        for stage in self.stages:
            tokens, size = stage(x)
            yield tokens, size
            x = patch_map(tokens, size)

    def forward_features(self, x: Tensor) -> Tensor:
        *_, (tokens, _) = self.outputs(x)
        return self.norm(tokens)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Returns maps of different sizes. `norm` changes nothing: the only norm belongs to the head."""
        if output_fmt != "NCHW":
            raise ValueError("the stages have maps of different sizes, which only NCHW can show")
        (last, _), kept = collect(self.outputs(x), len(self.stages), indices, stop_early)
        maps = [patch_map(tokens, size) for tokens, size in kept]
        return maps if intermediates_only else (self.norm(last), maps)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.head_drop(global_pool_nlc(x, self.global_pool, self.num_prefix_tokens))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def patch_map(tokens: Tensor, size: Size) -> Tensor:
    """Returns the tokens as a map, without a class token."""
    height, width = size
    return as_map(tokens[:, -height * width :], height, width)


def init_linear(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
