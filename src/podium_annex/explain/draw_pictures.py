"""Draws what the functions of this room return, as PNG."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from podium_annex.explain.canvas import Sheet, Tile, colours_of, enlarge, shorten, write_sheet
from podium_annex.explain.embeddings import PatchFilters
from podium_annex.explain.gradients import ReceptiveField

SIDE = 112  # pixels of an image in the picture
MOST_HEADS = 12  # drawn
FILTERS_IN_ROW, FILTER_SIDE = 7, 64
POSITIONS_SIDE = 720  # pixels that all small maps of the positions share
FIELD_SIDE = 300
SMALLEST_SHARE = 1e-3  # of the largest value: what is smaller has the darkest colour
TEXT_WIDTH = 180  # pixels beside a row


def draw_maps(
    path: Path, images: Sequence[NDArray[np.uint8]], maps: NDArray[Any], title: str, texts: Sequence[Sequence[str]] = ()
) -> None:
    """Draws a row per image: the image, and its maps in colours over it.

    `maps` are [images, rows, columns], or [images, heads, rows, columns]: then the mean of the heads comes first.
    `texts` are lines beside each row.
    """
    rows = []
    for image, map_or_heads in zip(images, maps, strict=True):
        several = [map_or_heads.mean(0), *map_or_heads[:MOST_HEADS]] if map_or_heads.ndim == 3 else [map_or_heads]
        large = enlarge(image, SIDE)
        rows.append([large, *(highlight(large, one) for one in several)])
    heads = maps.shape[1] if maps.ndim == 4 else 0
    names = ["mean of heads", *(f"head {number + 1}" for number in range(min(heads, MOST_HEADS)))] if heads else ["map"]
    notes = ["Yellow: the largest value of a map, dark blue: its smallest; every map has its own scale."]
    if heads > MOST_HEADS:
        notes.append(f"The first {MOST_HEADS} of {heads} heads are drawn.")
    short = [[shorten(line, TEXT_WIDTH) for line in lines] for lines in texts]
    write_sheet(path, Sheet(title, rows, ["image", *names], short, notes))


def highlight(image: NDArray[np.uint8], values: NDArray[Any]) -> Tile:
    """Returns the map in colours, over a grey copy of the image so that its shape shows through."""
    values = values.astype(np.float32)
    levels = (values - values.min()) / (float(np.ptp(values)) or 1.0)
    large = cv2.resize(levels, image.shape[1::-1], interpolation=cv2.INTER_CUBIC)
    grey = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    return np.asarray(cv2.addWeighted(colours_of(large), 0.75, grey, 0.25, 0), np.uint8)


def draw_filters(path: Path, filters: PatchFilters, name: str) -> None:
    """Draws the components, seven in a row; grey is 0."""
    tiles: list[Tile] = []
    for component in filters.components:
        colours = 0.5 + component / (2 * abs(component).max() or 1.0)
        tiles.append(enlarge((np.clip(colours, 0, 1) * 255).astype(np.uint8), FILTER_SIDE, smooth=False))
    empty = np.full_like(tiles[0], 255)
    tiles += [empty] * (-len(tiles) % FILTERS_IN_ROW)
    rows = [tiles[start : start + FILTERS_IN_ROW] for start in range(0, len(tiles), FILTERS_IN_ROW)]
    height, width = filters.components.shape[1:3]
    count = len(filters.components)
    title = f"{name}: principal components of its filters for patches of {height} x {width} pixels"
    share = f"{100 * filters.variance.sum():.0f} %"
    note = f"The first {count}, row by row; they hold {share} of the filters' variance. Grey is 0."
    write_sheet(
        path, Sheet(title, rows, notes=[note, "Every component has its own scale, and its sign has no meaning."])
    )


def draw_positions(path: Path, similarity: NDArray[np.float32], name: str) -> None:
    """Draws a small map for each patch, at the place of the patch."""
    rows, columns = similarity.shape[:2]
    cell = max(POSITIONS_SIDE // max(rows * rows, columns * columns), 1)
    tiles = [
        [colours_of((one.repeat(cell, 0).repeat(cell, 1) + 1) / 2) for one in maps_of_row] for maps_of_row in similarity
    ]
    title = f"{name}: cosine similarity of the position embeddings, {rows} x {columns} patches"
    notes = [
        "One small map for each patch, at the place of the patch: its similarity to all patches.",
        "Yellow: 1 (the same), green: 0, dark blue: -1 (opposite).",
    ]
    write_sheet(path, Sheet(title, tiles, notes=notes))


def draw_receptive_fields(path: Path, fields: Mapping[str, ReceptiveField]) -> None:
    """Draws effective receptive fields side by side, by the names of their models."""
    tiles, names = [], []
    for name, field in fields.items():
        levels = 1 - np.log10(np.maximum(field.shares / field.shares.max(), SMALLEST_SHARE)) / np.log10(SMALLEST_SHARE)
        tile = enlarge(colours_of(levels), FIELD_SIDE, smooth=False)
        scale = tile.shape[0] / field.shares.shape[0]
        (down, across), half = field.centre, field.side / 2
        corners = [(round((across + sign * half) * scale), round((down + sign * half) * scale)) for sign in (-1, 1)]
        tiles.append(cv2.rectangle(tile, corners[0], corners[1], (255, 255, 255), 1))
        names.append(name)
    notes = [
        "How much every pixel changes the middle of the last feature map: yellow the most, dark blue a thousandth."
    ]
    notes += [
        f"{name}: the white square of {field.side:g} pixels holds half of it; images have"
        f" {field.shares.shape[0]} x {field.shares.shape[1]} pixels."
        for name, field in fields.items()
    ]
    write_sheet(path, Sheet("Effective receptive field", [tiles], names, notes=notes))
