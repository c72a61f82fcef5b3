"""A model of several backbones side by side: one head sees the features of all of them.

    podium train --model tf_efficientnet_lite0+vit_small_patch32_224 --linear

Backbones that were pretrained in different ways know different things of an image. The images are prepared for the
first one; each of the others gets them in the colours that its own weights expect.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Colours = tuple[Sequence[float], Sequence[float]]  # mean and deviation that weights expect


class SeveralBackbones(nn.Module):
    scale: Tensor  # of the first one's inputs, to each one's: [backbones, channels]
    shift: Tensor

    def __init__(self, backbones: Sequence[nn.Module], colours: Sequence[Colours], features: int, classes: int) -> None:
        super().__init__()
        self.backbones = nn.ModuleList(backbones)
        self.head = nn.Linear(features, classes)
        mean, deviation = torch.tensor(colours, dtype=torch.float32).unbind(1)  # [backbones, channels]
        self.register_buffer("scale", deviation[0] / deviation)
        self.register_buffer("shift", (mean[0] - mean) / deviation)
        self.pretrained_cfg: dict[str, Any] = dict(getattr(backbones[0], "pretrained_cfg", None) or {})

    def forward_features(self, images: Tensor) -> tuple[Tensor, ...]:
        """Returns the last map, or the last tokens, of each backbone."""
        scale, shift = (numbers.to(images.dtype)[:, None, :, None, None] for numbers in (self.scale, self.shift))
        own: list[Any] = list(self.backbones)
        return tuple(
            backbone.forward_features(images if not number else images * scale[number] + shift[number])
            for number, backbone in enumerate(own)
        )

    def forward_head(self, features: tuple[Tensor, ...], pre_logits: bool = False) -> Tensor:
        own: list[Any] = list(self.backbones)
        pooled = [backbone.forward_head(part, pre_logits=True) for backbone, part in zip(own, features, strict=True)]
        joined = torch.cat(pooled, 1)
        return joined if pre_logits else self.head(joined)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def get_classifier(self) -> nn.Module:
        return self.head
