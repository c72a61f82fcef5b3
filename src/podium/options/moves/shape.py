"""The shape of images: how an oblong image gets the shape that a model sees, in training and in prediction.

A crop of the centre loses what lies outside, squashing changes the shapes, padding the scale. Where images are oblong,
squashing is the default; what each gains has not been measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.options.knob import knob
from podium.options.moves.move import Move

CROP = "crop"


@dataclass(frozen=True)
class Shape(Move):
    with_head = True
    topic = "images"
    tried = {"fit": "pad"}

    fit: str = knob(
        "how an image gets the shape of --image-size: crop (its centre), squash (all of it) or pad (all of it, with"
        " borders of the mean colour)",
        off=CROP,
        default=CROP,
        why="as the weights were trained; oblong images are squashed",
        choices=(CROP, "squash", "pad"),
    )

    def of_images(self) -> str:
        return f"fit {self.fit}"

    def spec(self) -> Mapping[str, Any]:
        return {"fit": self.fit}
