"""Parts of images: a run sees boxes, or all but the borders, in training and in prediction.

Boxes by hand or from a detector, what an earlier run's models look at, or tiles of large images. Where objects took a
third of the sides, boxes gained 15 points (clothes) to 66 (digits), and --region border as much where the background
was of one colour (docs/benchmarks.md). training/open_regions.py reads the boxes.
"""

from dataclasses import dataclass
from pathlib import Path

from podium.basics.errors import PodiumError
from podium.basics.image_size import BORDER
from podium.options.knob import knob
from podium.options.moves.move import Core, Move

FOUND_BY = "attention:"  # a run
PREDICTED = "box:"  # by a run of another competition on the same images, SLUG/RUN
TILES = "tiles:"  # how many along the shorter side
MOST_TILES = 8


@dataclass(frozen=True)
class SeenParts(Move):
    with_head = True
    topic = "images"
    tried = {"region": "border"}

    region: str = knob(
        "what a run sees of each image: a CSV file of boxes, a column that holds them, attention:RUN"
        " (what the models of an earlier run look at), box:SLUG/RUN (a box or point that a run of numbers predicts),"
        " tiles:3 (three along its shorter side) or border (all but borders of one colour); of several boxes, training"
        " draws one and prediction pools all",
        off="",
        default="",
        why="whole images, unless somebody knows where the objects are",
        is_move=True,
        recorded_as="boxes",
        may_be_file=True,
    )

    @property
    def are_inside_borders(self) -> bool:
        return self.region == BORDER

    @property
    def are_boxes(self) -> bool:
        """Whether they are boxes, which other images than the competition's do not have."""
        return self.is_on and not self.are_inside_borders

    @property
    def run(self) -> str:
        """The run whose models have found the boxes; "" for boxes from elsewhere."""
        return self.region.removeprefix(FOUND_BY) if self.region.startswith(FOUND_BY) else ""

    @property
    def finder(self) -> str:
        """The run that predicts the boxes, SLUG/RUN; "" for boxes from elsewhere."""
        return self.region.removeprefix(PREDICTED) if self.region.startswith(PREDICTED) else ""

    @property
    def tiles(self) -> int:
        """How many tiles are along the shorter side of an image; 0 where there are none."""
        return int(self.region.removeprefix(TILES)) if self.region.startswith(TILES) else 0

    def check(self, core: Core) -> None:
        if self.region.startswith(TILES):
            number = self.region.removeprefix(TILES)
            if not (number.isdecimal() and 2 <= int(number) <= MOST_TILES):
                raise PodiumError(f"--region {self.region}: write tiles:2 to tiles:{MOST_TILES}, the tiles of a side")

    @property
    def file(self) -> Path | None:
        """The file that holds the boxes, if it is one."""
        is_file = self.region.lower().endswith(".csv") or "/" in self.region
        return Path(self.region) if is_file and not self.run and not self.finder else None

    @property
    def column(self) -> str:
        """The column that holds the boxes; "" for boxes from elsewhere."""
        is_else = self.run or self.file or self.region.startswith((TILES, PREDICTED))
        return self.region if self.are_boxes and not is_else else ""

    def of_images(self) -> str:
        return f"region {self.region}"

    @property
    def can_be_drawn(self) -> bool:
        return False

    def refuse_missing_file(self) -> None:
        if self.file and not self.file.is_file():
            raise PodiumError(
                f"--region {self.region}: there is no such file; give a CSV file of boxes, a column, or {BORDER}"
            )
