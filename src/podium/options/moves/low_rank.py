"""Low-rank updates: attention keeps its pretrained weights and learns an update of a low rank (LoRA).

Hu et al., 2021. For models whose weights, moments and gradients do not fit into memory; it has not been measured here
on models of such a size. options/layers/low_rank_layers.py has the layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.options.knob import knob
from podium.options.moves.move import Move

if TYPE_CHECKING:
    import torch
    from torch import nn

# Of the updates, times --lr: the best rate of LoRA is about ten times that of all weights, whatever the rank ("LoRA
# Without Regret", Schulman et al., 2025). Head and norms, which learn as always, keep --lr.
RATE = 10.0


@dataclass(frozen=True)
class LowRank(Move):
    tried = {"lora": 2, "model": "test_vit"}
    lora: int = knob(
        "rank of the updates that the linear layers of attention learn in place of their weights (LoRA); of the rest of"
        " the backbone, only the norms learn; 0: off",
        0,
        1024,
        off=0,
        default=0,
        why="all weights of a model of the usual size fit into memory and learn more",
        for_heads=False,
        is_move=True,
        against={"freeze": "hold the same layers: --lora freezes the whole backbone but its norms"},
    )

    def of_learning(self) -> str:
        return f"lora {self.lora}"

    def learns(self, model: nn.Module, name: str, key: tuple[int, ...]) -> None:
        from podium.basics.randomness import LOW_RANK, generator
        from podium.options.layers.low_rank_layers import add_low_rank_updates

        add_low_rank_updates(model, self.lora, generator(LOW_RANK, *key), name)

    def rates(self, optimizer: torch.optim.Optimizer, model: nn.Module, name: str) -> None:
        from podium.options.layers.low_rank_layers import low_rank_parameters

        updates = set(low_rank_parameters(model))
        for group in list(optimizer.param_groups):
            own = [parameter for parameter in group["params"] if parameter in updates]
            rest = [parameter for parameter in group["params"] if parameter not in updates]
            scaled: dict[str, Any] = {"lr_scale": group.get("lr_scale", 1.0) * RATE}
            if own and rest:
                group["params"] = rest
                optimizer.add_param_group({**group, **scaled, "params": own})
            elif own:
                group |= scaled
