"""Puts small pictures into rows on a white sheet, with a title, names of columns, and text beside the rows."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from podium.basics.disk import write_bytes
from podium_annex.explain.lettering import width_of, write_line

Tile = NDArray[np.uint8]  # height x width x 3
GAP, MARGIN = 4, 12  # pixels between the tiles, and around everything
TEXT, TITLE, LINE = 13, 15, 19  # pixels: size of letters, of a title's letters, height of a line
SMALLEST_WIDTH = 480  # so that a title has room


@dataclass(frozen=True)
class Sheet:
    title: str
    rows: Sequence[Sequence[Tile]]
    column_names: Sequence[str] = ()
    row_texts: Sequence[Sequence[str]] = ()  # lines of text beside each row
    notes: Sequence[str] = ()  # below all rows


def write_sheet(path: Path, sheet: Sheet) -> None:
    """Writes a PNG."""
    file = io.BytesIO()
    draw_sheet(sheet).save(file, "PNG", optimize=True)
    write_bytes(path, file.getvalue())


def draw_sheet(sheet: Sheet) -> Image.Image:
    widths = [max(row[number].shape[1] for row in sheet.rows) for number in range(len(sheet.rows[0]))]
    texts = [width_of(line, TEXT) for lines in sheet.row_texts for line in lines]
    left = MARGIN + (round(max(texts)) + 2 * GAP if texts else 0)
    width = max(left + sum(widths) + GAP * (len(widths) - 1) + MARGIN, SMALLEST_WIDTH)
    title = _wrap(sheet.title, TITLE, width - 2 * MARGIN)
    notes = [line for note in sheet.notes for line in _wrap(note, TEXT, width - 2 * MARGIN)]
    heights = [max(tile.shape[0] for tile in row) for row in sheet.rows]
    top = MARGIN + LINE * len(title) + GAP + (LINE if sheet.column_names else 0)
    bottom = top + sum(heights) + GAP * len(heights)
    picture = Image.new("RGB", (width, bottom + GAP + LINE * len(notes) + MARGIN), "white")
    pen = ImageDraw.Draw(picture)
    for number, line in enumerate(title):
        write_line(pen, (MARGIN, MARGIN + LINE * number), line, "black", TITLE)
    starts = [left + sum(widths[:number]) + GAP * number for number in range(len(widths))]
    for start, name, room in zip(starts, sheet.column_names, widths, strict=False):
        write_line(pen, (start, top - LINE), shorten(name, room), "#444444", TEXT)
    y = top
    for number, row in enumerate(sheet.rows):
        for start, tile in zip(starts, row, strict=False):
            picture.paste(Image.fromarray(tile), (start, y))
        if sheet.row_texts:
            for place, line in enumerate(sheet.row_texts[number]):
                write_line(pen, (MARGIN, y + GAP + LINE * place), line, "#222222", TEXT)
        y += heights[number] + GAP
    for number, line in enumerate(notes):
        write_line(pen, (MARGIN, bottom + GAP + LINE * number), line, "#444444", TEXT)
    return picture


def shorten(text: str, width: float) -> str:
    """Returns the text, or as much of its beginning as there is room for."""
    if width_of(text, TEXT) <= width:
        return text
    while text and width_of(text + "...", TEXT) > width:
        text = text[:-1]
    return text + "..."


def colours_of(levels: NDArray[Any]) -> Tile:
    """Returns levels from 0 to 1 as colours, from dark blue to yellow."""
    grey = (np.clip(levels, 0, 1) * 255).round().astype(np.uint8)
    return np.asarray(cv2.cvtColor(cv2.applyColorMap(grey, cv2.COLORMAP_VIRIDIS), cv2.COLOR_BGR2RGB), np.uint8)


def enlarge(tile: NDArray[Any], side: int, smooth: bool = True) -> Any:
    """Returns the tile with its longer side of this length."""
    factor = side / max(tile.shape[:2])
    size = tuple(max(round(length * factor), 1) for length in tile.shape[1::-1])
    return cv2.resize(tile, size, interpolation=cv2.INTER_CUBIC if smooth else cv2.INTER_NEAREST)


def _wrap(text: str, size: int, width: float) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and width_of(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
