"""Rates of layers: those near the image learn more slowly (--layer-decay), or not at all (--freeze).

Clark et al., 2020, and the recipes of BEiT and MAE, from which the values of ViTs come. With EfficientNet-Lite, a
decay of 0.9 scores as none, 0.8 lower; freezing 0.3 of the layers scores slightly lower and is 40 % faster
(docs/benchmarks.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from podium.basics.terminal import say
from podium.options.knob import ALWAYS_RECORDED, knob
from podium.options.moves.move import Move
from podium.options.search_values import Between, Searched

if TYPE_CHECKING:
    import torch
    from torch import nn

DECAYED_LAYERS = 12  # over which the layer decay is spread, as in the ViT-Base of the papers


@dataclass(frozen=True)
class LayerRates(Move):
    tried = {"layer_decay": 0.8, "freeze": 0.3}
    neutral = {"layer_decay": 1.0}
    layer_decay: float = knob(
        "learning rate of a layer relative to the layer above it",
        0.01,
        1,
        off=ALWAYS_RECORDED,
        also_called=("llrd", "layerwise-lr-decay", "discriminative-lr"),
        searched=Searched(Between(0.6, 1), closed_at=1),
    )
    freeze: float = knob(
        "share of the backbone's layers, from the image on, that stay as they are",
        0,
        1,
        off=0.0,
        default=0.0,
        why="whatever was tried: a quarter faster, and lower scores",
    )

    @property
    def is_on(self) -> bool:
        return True

    def of_learning(self) -> str:
        words = [f"layer decay {self.layer_decay:g}"] if self.layer_decay != 1 else []
        return ", ".join(words + ([f"freeze {self.freeze:g}"] if self.freeze else []))

    def learns(self, model: nn.Module, name: str, key: tuple[int, ...]) -> None:
        from podium.options.layers.frozen import freeze_layers

        if self.freeze:
            freeze_layers(model, self.freeze)

    def optimizer_options(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**options, "layer_decay": self.layer_decay}

    def rates(self, optimizer: torch.optim.Optimizer, model: nn.Module, name: str) -> None:
        if self.layer_decay != 1 and all(group.get("lr_scale", 1.0) == 1 for group in optimizer.param_groups):
            _note_useless_decay(name)
        _limit_layer_decay(optimizer, self.layer_decay)


@cache  # once, not in each fold
def _note_useless_decay(name: str) -> None:
    say(f"podium: note: --layer-decay has no effect: {name} lacks timm's group_matcher, which tells its layers; add it")


def _limit_layer_decay(optimizer: torch.optim.Optimizer, decay: float) -> None:
    """Spreads the decay over DECAYED_LAYERS, because published values assume about that many layers.

    timm counts 38 layers in convnext_small; 0.8 to that power would freeze the stem.
    """
    lowest = min(group.get("lr_scale", 1.0) for group in optimizer.param_groups)
    if lowest < decay**DECAYED_LAYERS:
        depth = math.log(lowest) / math.log(decay)
        for group in optimizer.param_groups:
            group["lr_scale"] **= DECAYED_LAYERS / depth
