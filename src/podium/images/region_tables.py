"""Reads boxes of images: from a CSV file, or from a column of the training and test tables (`--region`).

A file has a column `id` or `image`, and four of a box: x, y, width, height, or x_min, y_min, x_max, y_max. An image may
have several rows; a row without numbers says that its image has no box. A cell of a column holds the four numbers of
COCO, `[x, y, width, height]`, of one box or of several. All are in pixels of the upright image, from its upper left
corner, or all are shares of its sides, from 0 to 1.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.find.csv_files import read_table
from podium.competition.load import Competition

# Names of columns, in lower case and without underscores.
IDS, IMAGES = ("id", "imageid"), ("image", "path", "file", "filename")
WITH_SIDES = (("x", "y", "width", "height"), ("x", "y", "w", "h"))
WITH_CORNERS = (("xmin", "ymin", "xmax", "ymax"), ("x0", "y0", "x1", "y1"), ("left", "top", "right", "bottom"))
NO_BOX = ("", "nan", "none", "null", "[]")  # cells, in lower case
Row = tuple[str, str]  # id and image


class ReadBox(NamedTuple):
    x: float
    y: float
    width: float
    height: float
    where: str  # for an error: the file and the line, or the column and the id


@dataclass(frozen=True)
class ReadBoxes:
    source: str  # the file, or the column
    of_row: dict[Row, list[ReadBox]]

    @property
    def are_shares(self) -> bool:
        """Returns whether the numbers are shares of an image's sides: a box of a single pixel is no use to anybody."""
        return all(map(_is_share, self.all_boxes))

    @property
    def all_boxes(self) -> list[ReadBox]:
        return [box for boxes in self.of_row.values() for box in boxes]

    def refuse_mixed_units(self) -> None:
        """Raises if some boxes are shares and some are pixels, and names the first of those that are fewer."""
        shares = [box for box in self.all_boxes if _is_share(box)]
        pixels = [box for box in self.all_boxes if not _is_share(box)]
        if not shares or not pixels:
            return
        few, kind, others = (
            (pixels, "pixels", "shares of the sides")
            if len(pixels) < len(shares)
            else (shares, "shares of the sides", "pixels")
        )
        raise PodiumError(
            f"{few[0].where}: {first_few(f'{number:g}' for number in few[0][:4])} are {kind}, as in {len(few):,} of"
            f" {len(self.all_boxes):,} boxes, and the others are {others}; write all in the same unit"
        )


def _is_share(box: ReadBox) -> bool:
    return max(box[:4]) <= 1


def read_boxes_of_file(path: Path, competition: Competition) -> ReadBoxes:
    return read_boxes(path, (competition.train_in_files, competition.test), competition.slug)


def read_boxes(path: Path, parts: Sequence[pd.DataFrame], whose: str) -> ReadBoxes:
    """Returns the boxes of the images in these tables, id and image."""
    rows = read_table(path, "write it again")
    names = {re.sub("[ _-]", "", str(column).strip().lower()): column for column in rows.columns}
    keys = [name for name in (*IMAGES, *IDS) if name in names]
    forms = [form for form in (*WITH_SIDES, *WITH_CORNERS) if set(form) <= names.keys()]
    if not keys or not forms:
        raise PodiumError(
            f"{path}: its columns are {first_few(rows.columns)}; a table of boxes has id or image, and x, y, width,"
            " height or x_min, y_min, x_max, y_max: rename them"
        )
    find = _by_id(parts) | (_by_image(parts) if keys[0] in IMAGES else {})
    of_row: dict[Row, list[ReadBox]] = {}
    for line, key, *cells in rows[[names[keys[0]], *(names[name] for name in forms[0])]].itertuples(name=None):
        where = f"{path}, line {line}"
        found = find.get(key.strip(), [])
        if len({image for _, image in found}) != 1:
            problem = "the id of several images; name images by their paths, in a column image" if found else ""
            raise PodiumError(f"{where}: '{key}' is {problem or f'no image of {whose}; correct or remove that line'}")
        if all(cell.strip().lower() in NO_BOX for cell in cells):
            continue
        box = _box_of(cells, where, has_corners=forms[0] in WITH_CORNERS)
        for row in found:
            of_row.setdefault(row, []).append(box)
    return _checked(ReadBoxes(str(path), of_row))


def read_boxes_of_column(column: str, competition: Competition) -> ReadBoxes:
    """Reads a column of the training table and the test table, with which the competition was loaded."""
    features = competition.features
    if features is None or column not in features.names:
        raise PodiumError(
            f"--region {column}: there is no such file, and the tables of {competition.slug} do not both have such a"
            " column; correct that, or give a CSV file of boxes"
        )
    of_row: dict[Row, list[ReadBox]] = {}
    parts = ((features.train[column], competition.train_in_files), (features.test[column], competition.test))
    for cells, rows in parts:
        cell_of = dict(zip(cells.index, cells, strict=True))
        for row in rows_in(rows):
            where = f"column {column} of {competition.slug}, id {row[0]}"
            if boxes := list(_boxes_in_cell(cell_of.get(row[0], ""), where)):
                of_row[row] = boxes
    return _checked(ReadBoxes(f"column {column}", of_row))


def _checked(boxes: ReadBoxes) -> ReadBoxes:
    if not boxes.of_row:
        raise PodiumError(f"--region: {boxes.source} has no box; leave it out, or correct that")
    boxes.refuse_mixed_units()
    return boxes


def _by_id(parts: Sequence[pd.DataFrame]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for rows in parts:
        for row in rows_in(rows):
            found.setdefault(row[0], []).append(row)
    return found


def _by_image(parts: Sequence[pd.DataFrame]) -> dict[str, list[Row]]:
    """Finds rows by the path of their image in the competition's folder, or by its file name if no other has it."""
    rows = [row for part in parts for row in rows_in(part)]
    by_path: dict[str, list[Row]] = {}
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_path.setdefault(row[1], []).append(row)
        by_name.setdefault(row[1].rpartition("/")[2], []).append(row)
    return {name: found for name, found in by_name.items() if len({row[1] for row in found}) == 1} | by_path


def rows_in(rows: pd.DataFrame) -> Iterator[Row]:
    return zip(rows["id"], rows["image"], strict=True)


def _boxes_in_cell(cell: str, where: str) -> Iterator[ReadBox]:
    if cell.strip().lower() in NO_BOX:
        return
    cells = [part for part in re.split(r"[\s,;]+", re.sub(r"[\[\](){}]", " ", cell)) if part]
    if len(cells) % 4 or not cells:
        raise PodiumError(f"{where}: '{cell}' is no box; write [x, y, width, height], or nothing for no box")
    for start in range(0, len(cells), 4):
        yield _box_of(cells[start : start + 4], where)


def _box_of(cells: Iterable[str], where: str, has_corners: bool = False) -> ReadBox:
    """Returns a box of these texts; raises if they are no numbers or its sides are not positive."""
    try:
        x, y, width, height = map(float, cells)
    except ValueError as error:
        raise PodiumError(f"{where}: a box has four numbers ({error}); correct that line") from None
    if has_corners:
        width, height = width - x, height - y
    if not all(map(math.isfinite, (x, y, width, height))) or min(width, height) <= 0:
        raise PodiumError(f"{where}: a box {width:g} wide and {height:g} high at {x:g}, {y:g} is empty; correct that")
    return ReadBox(x, y, width, height, where)
