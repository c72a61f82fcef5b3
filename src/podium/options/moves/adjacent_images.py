"""Adjacent images: the net sees an image of a series between those before and after it, as further channels (2.5D).

As in winning solutions for CT and MR slices, and for frames of films. Whether it gains is found in
docs/benchmarks.md. training/series.py finds the series, images/adjacent.py reads the images.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podium.basics.errors import PodiumError
from podium.options.knob import knob
from podium.options.moves.move import Core, Move

MOST = 15


@dataclass(frozen=True)
class AdjacentImages(Move):
    with_head = True
    topic = "images"
    tried = {"adjacent": 3}

    adjacent: int = knob(
        "how many images of a series (slices, frames) the net sees at once, as channels: 3 for an image, the one before"
        " it and the one after it (2.5D), 5 for two on each side; answers are still for each image",
        1,
        MOST,
        off=1,
        default=1,
        why="each image alone, unless the tables say which images belong together",
        is_move=True,
        against={
            "region": "do not go together: parts of images have no neighbours",
            "start": "do not go together: the first layers differ",
        },
    )
    order_column: str = knob(
        "the column of the tables with the place of an image in its series; without it, the natural order of the file"
        " names (2 before 10)",
        off="",
        default="",
        why="slices and frames are usually numbered in their names",
        is_move=True,
    )

    def check(self, core: Core) -> None:
        if self.adjacent % 2 == 0:
            raise PodiumError(f"--adjacent {self.adjacent}: the image is in the middle, so take an odd number, as in 3")
        if "+" in core.model:
            raise PodiumError(f"--adjacent and --model {core.model} do not go together; name one model")

    def settled(self, core: Core) -> Mapping[str, Any]:
        return {"order_column": ""} if self.order_column and not self.is_on else {}

    def why_settled(self, core: Core) -> str:
        return (
            "--order-column is the order of a series, which only --adjacent looks at; add --adjacent 3, or leave it out"
        )

    def of_images(self) -> str:
        return f"{self.adjacent} images of a series at once"

    @property
    def can_be_drawn(self) -> bool:
        return False


def adjacent_images(recorded: Mapping[str, Any]) -> AdjacentImages:
    """Returns what a run sees beside each image; its recipe may be older than the option."""
    return AdjacentImages.recorded(recorded)
