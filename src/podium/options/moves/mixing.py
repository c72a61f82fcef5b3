"""Mixup and cutmix: a step learns mixtures of two images, with the same mixture of their labels.

Zhang et al., 2018 (mixup); Yun et al., 2019 (cutmix). Either, in a share of the steps; the last part of the run sees
plain images. On 999 photographs of pets, half of the steps took the log loss from 0.249 to 0.141 at the same accuracy,
because a small set makes a model too sure; on 9,513 clothes it changed nothing beyond chance (docs/benchmarks.md). So
it is on where few images are fine-tuned and the metric is a loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium.basics.errors import PodiumError
from podium.options.knob import ALWAYS_RECORDED, knob
from podium.options.moves.move import Change, Core, Moment, Move
from podium.options.recipe_options import ARCFACE
from podium.options.search_values import Between, Searched

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


@dataclass(frozen=True)
class Mixing(Move):
    topic = "images"
    tried = {"mix": 1.0, "plain": 0.0}
    neutral = {"mix": 0.0}
    mix: float = knob(
        "share of the steps with mixup or cutmix, half of each",
        0,
        1,
        off=ALWAYS_RECORDED,
        default=0.5,
        why="the other half of the steps sees plain images",
        also_called=("mixup", "cutmix", "mixup-alpha", "cutmix-alpha", "mixup-prob"),
        searched=Searched(Between(0, 0.8)),
    )
    plain: float = knob(
        "share of the run, at its end, without mixup and cutmix",
        0,
        1,
        off=0.0,
        default=0.15,
        why="the last epochs see images as the test set has them",
    )

    @property
    def is_on(self) -> bool:
        return self.mix > 0

    def check(self, core: Core) -> None:
        if core.head == ARCFACE:
            raise PodiumError(
                f"--head {ARCFACE} needs images of one class each, and --mix {self.mix:g} mixes two; add --mix 0"
            )

    def of_images(self) -> str:
        return f"mix {self.mix:g}"

    def batch(self, change: Change) -> Change:
        from podium.basics.randomness import MIX, generator

        def mixed(images: Tensor, targets: Tensor, moment: Moment) -> tuple[Tensor, Tensor]:
            images, targets = change(images, targets, moment)
            rng = generator(MIX, moment.seed, moment.fold, moment.step)
            if rng.random() < self.mix and moment.step < moment.total_steps * (1 - self.plain):
                return mix_neighbours(images, targets, rng)
            return images, targets

        return mixed


def mix_neighbours(images: Tensor, targets: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Mixes neighbours of the batch by mixup or cutmix, with equal probability; returns images and soft targets."""
    import numpy as np
    import torch

    partner = torch.arange(len(images), device=images.device) ^ 1
    partner[-1] -= len(images) % 2  # the last of an odd number stays as it is
    if rng.random() < 0.5:
        keep = float(rng.beta(0.2, 0.2))  # mostly near 0 or 1: a light mixture
        images = images.lerp(images[partner], 1 - keep)
    else:
        height, width = images.shape[-2:]
        cut = (1 - rng.random()) ** 0.5  # beta(1, 1): the area of the box is uniform
        y, x = rng.integers(height), rng.integers(width)
        top, bottom = (int(np.clip(y + d * cut * height / 2, 0, height)) for d in (-1, 1))
        left, right = (int(np.clip(x + d * cut * width / 2, 0, width)) for d in (-1, 1))
        images = images.clone()
        images[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
        keep = 1 - (bottom - top) * (right - left) / (height * width)
    return images, targets.lerp(targets[partner], 1 - keep)
