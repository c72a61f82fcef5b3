"""The parts of images that a run sees (`--region`): whole images, images without their borders, or boxes of them.

A run keeps its boxes in runs/<slug>/<run>/regions.csv, a row for each box, in pixels of the upright image, with its
margin.
Where each fold has boxes of its own, found by an earlier run's model of that fold, they are in the fold's folder.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from podium.basics.disk import write_text
from podium.basics.errors import PodiumError
from podium.basics.image_size import BORDER, Box, sides_of
from podium.basics.terminal import plural
from podium.competition.containers.image_place import place_of_part
from podium.competition.find.csv_files import csv_text, read_table
from podium.images.region_tables import ReadBox, ReadBoxes, Row
from podium.images.store_format import FileRecord

REGIONS = "regions.csv"
MARGIN = 0.1  # share of a box's sides that is added on each side: the centre crop takes about as much off again
LEAST_PIXELS = 4  # of a box's sides: less shows nothing
MOST_CLIPPED = 0.1  # of a box's area
MOST_OUTSIDE = 0.2  # of the boxes: if more leave their images and would fit as corners, they are corners
COLUMNS = ("id", "image", "x", "y", "width", "height")


@dataclass(frozen=True)
class Regions:
    """The same part of every image: all of it, or all but its borders."""

    part: str = ""

    @property
    def sha256(self) -> str:
        """Returns the hash of the boxes; "" if there are none."""
        return ""

    def places(self, rows: pd.DataFrame) -> list[list[str]]:
        """Returns the places of the images that show each row of a table (image_place.py)."""
        return [[place_of_part(image, self.part)] for image in rows["image"]]

    def of_fold(self, fold: int) -> "Regions":
        """Returns the parts that this fold's model sees."""
        return self

    def write(self, folder: Path) -> None:
        """Writes the boxes, if there are any, into the folder of a run."""


WHOLE, INSIDE_BORDERS = Regions(), Regions(BORDER)


@dataclass(frozen=True)
class Boxes(Regions):
    """Boxes of the rows of the tables, by id and image; a row without a box shows the whole image."""

    of_row: Mapping[Row, tuple[Box, ...]] = field(default_factory=dict)

    def places(self, rows: pd.DataFrame) -> list[list[str]]:
        return [self._places_of(row) for row in zip(rows["id"], rows["image"], strict=True)]

    def _places_of(self, row: Row) -> list[str]:
        return [place_of_part(row[1], box) for box in self.of_row.get(row, ())] or [row[1]]

    @cached_property
    def _text(self) -> str:
        rows = ((*row, *box) for row, boxes in sorted(self.of_row.items()) for box in boxes)
        return csv_text([COLUMNS, *rows])

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self._text.encode()).hexdigest()

    def write(self, folder: Path) -> None:
        write_text(folder / REGIONS, self._text)

    def without(self, rows: pd.DataFrame) -> int:
        """Returns how many of these rows have no box."""
        return sum(row not in self.of_row for row in zip(rows["id"], rows["image"], strict=True))


@dataclass(frozen=True)
class BoxesOfFolds(Regions):
    """Boxes that differ from fold to fold. A store holds those of all folds."""

    of_folds: Mapping[int, Boxes] = field(default_factory=dict)

    def places(self, rows: pd.DataFrame) -> list[list[str]]:
        of_folds = [boxes.places(rows) for boxes in self.of_folds.values()]
        return [list(dict.fromkeys(chain(*places))) for places in zip(*of_folds, strict=True)]

    def of_fold(self, fold: int) -> Regions:
        return self.of_folds[fold]

    @property
    def sha256(self) -> str:
        hashes = ",".join(f"{fold} {boxes.sha256}" for fold, boxes in self.of_folds.items())
        return hashlib.sha256(hashes.encode()).hexdigest()

    def write(self, folder: Path) -> None:
        for fold, boxes in self.of_folds.items():
            (folder / f"fold{fold}").mkdir(exist_ok=True)
            boxes.write(folder / f"fold{fold}")


def read_regions(path: Path) -> Boxes:
    """Reads the boxes that a run has kept."""
    of_row: dict[Row, tuple[Box, ...]] = {}
    table = read_table(path, "restore it")
    try:
        for row_id, image, *numbers in table[list(COLUMNS)].itertuples(index=False, name=None):
            of_row[row_id, image] = (*of_row.get((row_id, image), ()), Box(*map(int, numbers)))
    except (KeyError, ValueError) as error:
        raise PodiumError(f"{path}: it was changed ({error}); restore it") from None
    return Boxes(of_row=of_row)


# --- from what was read to pixels --------------------------------------------------------------------


class Frame(NamedTuple):
    """How boxes are framed."""

    margin: float
    shape: float | None  # width in units of the height that boxes grow to; None: they keep their own


def frame_of(image_size: int | str, fit: str, margin: float = MARGIN) -> Frame:
    """With --fit crop a box grows to the shape of the images: else its own ends would be cut off."""
    height, width = sides_of(image_size)
    return Frame(margin, width / height if fit == "crop" else None)


def make_boxes(read: ReadBoxes, files: Mapping[str, FileRecord], frame: Frame) -> Boxes:
    """Returns the boxes in pixels, inside their images; refuses boxes beside their images.

    Images that cannot be read get none.
    """
    of_row = {}
    for row, boxes in read.of_row.items():
        file = files[row[1]]
        if not file.reason:
            of_row[row] = tuple(dict.fromkeys(_framed(boxes, file, read.are_shares, frame)))
    return Boxes(of_row=of_row)


def doubts_about(read: ReadBoxes, files: Mapping[str, FileRecord]) -> list[str]:
    """Returns warnings of boxes that are clipped or tiny, counted; raises if they seem to hold corners."""
    clipped, tiny, corners, count = list[ReadBox](), list[ReadBox](), 0, 0
    for (_, image), boxes in read.of_row.items():
        file = files[image]
        for box in () if file.reason else boxes:
            count += 1
            sides = (1.0, 1.0) if read.are_shares else (float(file.width), float(file.height))
            ends = [(box.x, box.width, sides[0]), (box.y, box.height, sides[1])]
            inside = [max(0.0, min(start + length, side) - max(0.0, start)) for start, length, side in ends]
            if inside[0] * inside[1] < (1 - MOST_CLIPPED) * box.width * box.height:
                clipped.append(box)
                corners += all(start < length <= side for start, length, side in ends)
            unit = (file.width, file.height) if read.are_shares else (1, 1)
            if min(inside[0] * unit[0], inside[1] * unit[1]) < LEAST_PIXELS:
                tiny.append(box)
    if corners == len(clipped) and len(clipped) > MOST_OUTSIDE * count:
        raise PodiumError(
            f"{clipped[0].where}: this box and {len(clipped) - 1:,} more of {count:,} leave their images, but would fit"
            " if the last two numbers were the lower right corner; if they are, call the columns x_min, y_min, x_max,"
            " y_max, and if not, correct the boxes"
        )
    doubts = [
        (
            clipped,
            f"{plural(len(clipped), 'box')} of {count:,} leave their images by more than a tenth, and are cut there",
        ),
        (tiny, f"{plural(len(tiny), 'box')} of {count:,} are less than {LEAST_PIXELS} pixels wide or high"),
    ]
    return [f"{text}; the first is {boxes[0].where}" for boxes, text in doubts if boxes]


def _framed(boxes: list[ReadBox], file: FileRecord, are_shares: bool, frame: Frame) -> Iterator[Box]:
    for box in boxes:
        sides = (file.width, file.height) if are_shares else (1, 1)
        ends = [(box.x * sides[0], box.width * sides[0]), (box.y * sides[1], box.height * sides[1])]
        clipped = [
            (max(0.0, start), min(start + length, side))
            for (start, length), side in zip(ends, (file.width, file.height), strict=True)
        ]
        if any(end <= start for start, end in clipped):
            raise PodiumError(
                f"{box.where}: the box lies outside of its image, {file.image}, which is {file.width} pixels wide and"
                f" {file.height} high; correct or remove it"
            )
        yield _with_margin(clipped, file, frame)


def _with_margin(ends: list[tuple[float, float]], file: FileRecord, frame: Frame) -> Box:
    """Returns the box with its margin, grown to the frame's shape as far as the image goes."""
    width, height = ((end - start) * (1 + 2 * frame.margin) for start, end in ends)
    if frame.shape is not None:
        width, height = max(width, height * frame.shape), max(height, width / frame.shape)
    left, right = _inside(ends[0], width, file.width)
    top, bottom = _inside(ends[1], height, file.height)
    return Box(left, top, right - left, bottom - top)


def _inside(ends: tuple[float, float], length: float, side: int) -> tuple[int, int]:
    """Returns the ends of a part of this length around these ends, moved where it would leave the image."""
    length = min(length, side)
    start = min(max(0.0, sum(ends) / 2 - length / 2), side - length)
    first = math.floor(start)
    return first, max(first + 1, min(side, math.ceil(start + length)))
