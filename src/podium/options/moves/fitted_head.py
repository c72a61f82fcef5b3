"""A fitted head: training starts from a head that is fitted to the frozen features, and keeps a share of that start.

Fitting first: Kumar et al., 2022 (linear probing, then fine-tuning), so that a new head does not spoil pretrained
features. Keeping: Wortsman et al., 2022 (WiSE-FT). Half of the start took pets at 128 px from an accuracy of 0.960 to
0.985 and a log loss of 0.163 to 0.063, and clothes from 0.964 to 0.960 and from 0.228 to 0.202 (docs/benchmarks.md).
kept_start.py has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from podium.options.knob import knob
from podium.options.moves.move import Core, Cost, Move
from podium.options.recipe_options import FITTED_HEADS
from podium.options.search_values import Between, Searched

if TYPE_CHECKING:
    from torch import nn

    from podium.options.moves.kept_start import KeptStart


@dataclass(frozen=True)
class FittedHead(Move):
    tried = {"head_first": True, "keep": 0.3}
    head_first: bool = knob(
        "start from a head that is fitted to the frozen features; without it, a new head starts from the shares of the"
        " classes",
        off=False,
        default=False,
        why="a model from scratch has no features to fit a head to; pretrained kinds switch it on",
        is_taken_over=False,
    )
    keep: float = knob(
        "share that the final weights keep of those that fine-tuning started from; with the fitted head, if the loss on"
        " training images allows it",
        0,
        0.95,
        off=0.0,
        default=0.0,
        why="without a fitted head there is nothing to keep; where one is fitted, the kind of model says how much",
        searched=Searched(Between(0, 0.7), closed_at=0),  # without a fitted head, there is nothing to keep
    )

    @property
    def is_on(self) -> bool:
        return self.head_first or self.keep > 0

    @property
    def cost(self) -> Cost:
        return Cost(copies=1, checks=2) if self.keep else Cost()  # by weights in between, and at the end

    @property
    def fits_head(self) -> bool:
        return self.head_first

    def of_learning(self) -> str:
        words = [f"keep {self.keep:g}"] if self.keep else []
        return ", ".join(words + (["from a fitted head"] if self.head_first else []))

    def settled(self, core: Core) -> Mapping[str, Any]:
        can_keep = self.head_first and not core.start and core.head in FITTED_HEADS
        return {} if can_keep or not self.keep else {"keep": 0.0}

    def why_settled(self, core: Core) -> str:
        remedy = "leave it out" if core.start or core.head not in FITTED_HEADS else "leave it out, or add --head-first"
        return f"--keep {self.keep:g} needs a fitted head to start from; {remedy}"

    def kept_start(self, model: nn.Module) -> KeptStart | None:
        from podium.options.moves.kept_start import KeptStart

        return KeptStart(model, self.keep) if self.keep else None
