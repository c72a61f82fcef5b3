"""Augmentations: training sees a random part of an image, mirrored or not, in another light, with a hole, or moved.

Crops as in Szegedy et al., 2015; erasing: Zhong et al., 2020; operations as in RandAugment (Cubuk et al., 2020), with
AugReg's strengths (Steiner et al., 2021). --level sets several at once: a model from scratch wants light ones, a
fine-tuned one the default (docs/benchmarks.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium.options.knob import ALWAYS_RECORDED, knob
from podium.options.moves.move import Move
from podium.options.option_kinds import NAMES
from podium.options.recipe_options import AUGMENTATIONS

if TYPE_CHECKING:
    from podium.options.moves.augmenter import Augmenter

NONE = "none"


@dataclass(frozen=True)
class Augmentations(Move):
    topic = "images"
    tried = {"crop": 0.5, "mirror": 0.5, "colour": 0.2, "erase": 0.5, "ops": 1}
    neutral = {"crop": 1.0, "mirror": 0.0, "colour": 0.0, "erase": 0.0}
    crop: float = knob(
        "smallest share of the image that a random crop keeps; 1: all of it",
        0.01,
        1,
        off=ALWAYS_RECORDED,
        default=0.6,
        why="milder than ImageNet's 0.08: an object that fills its image must stay recognisable",
        also_called=("scale", "random-resized-crop"),
    )
    mirror: float = knob(
        "probability of a left-right flip",
        0,
        1,
        off=ALWAYS_RECORDED,
        default=0.5,
        why="most objects keep their class when mirrored; letters and digits do not",
        also_called=("hflip", "horizontal-flip"),
    )
    colour: float = knob(
        "strength of the changes of brightness, contrast and saturation",
        0,
        0.95,
        off=ALWAYS_RECORDED,
        default=0.2,
        why="imitates another light, not another colour: the colour often depends on the class",
        also_called=("color", "color-jitter", "jitter"),
    )
    erase: float = knob(
        "probability that a rectangle is erased",
        0,
        1,
        off=ALWAYS_RECORDED,
        default=0.1,
        why="sometimes the model has to recognise an object without one of its parts",
        also_called=("reprob", "random-erasing", "cutout"),
    )
    ops: int = knob(
        "random operations per image, as in RandAugment: rotation, shear, shift, tones",
        0,
        9,
        off=0,
        default=0,
        why="whether a rotated image keeps its class depends on the competition",
    )
    strength: float = knob(
        "strength of these operations", 0, 1, off=0.5, default=0.5, why="AugReg's medium level: magnitude 15 of 30"
    )
    augment: str = knob(
        "your own augmentations (docs/extend.md), joined by +, or none",
        off="none",
        default="none",
        why="none is built in",
        choices=AUGMENTATIONS,
        kind=NAMES,
        for_heads=False,
    )

    @property
    def is_on(self) -> bool:
        return True

    def of_images(self) -> str:
        values = {"crop": self.crop, "mirror": self.mirror, "colour": self.colour, "erase": self.erase, "ops": self.ops}
        off = {"crop": 1.0}  # of the others: 0
        words = [f"{name} {value:g}" for name, value in values.items() if value != off.get(name, 0.0)]
        return ", ".join(words + ([f"augment {self.augment}"] if self.augment != NONE else []))

    @property
    def can_be_drawn(self) -> bool:
        return not self.ops and self.augment == NONE

    def augmenter(self, made: Augmenter | None) -> Augmenter:
        from podium.options.moves.augmenter import Augmenter

        own = self.augment.split("+") if self.augment != NONE else []
        return Augmenter(self.crop, self.mirror, self.colour, self.erase, (self.ops, self.strength), own)
