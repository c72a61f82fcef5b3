"""Reads a JSON list of radar images, as of Statoil's icebergs: two bands of decibels for each, as lists of numbers.

An image becomes RGB: band 1, band 2 and their mean. LOWEST decibels become 0, HIGHEST become 255.
"""

import json
import mmap
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.competition.containers.pixel_names import names_of, shape_of

LOWEST, HIGHEST = -40.0, 10.0  # decibels: the sea is near -25, the brightest ships and icebergs reach 10 and more
BANDS = ("band_1", "band_2")
BAND = re.compile(rb'"band_[12]"\s*:\s*\[[^\]]*\]\s*,?')


def has_bands(path: Path) -> bool:
    """Returns whether a JSON file starts with an image of two bands."""
    try:
        with path.open("rb") as file:
            return re.match(rb'\s*\[\s*\{[^}]{0,500}"band_[12]"\s*:\s*\[', file.read(1000)) is not None
    except OSError:
        return False  # whoever reads the file reports it


class RadarBands:
    def __init__(self, path: Path, shape: str) -> None:
        self.path, self.shape = path, shape
        self.spans: list[tuple[int, int]] = []  # where each image starts and ends; the objects are not nested
        rows: list[dict[str, str]] = []
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            start = data.find(b"{")
            while start >= 0:
                stop = data.find(b"}", start) + 1
                row = self._parse(BAND.sub(b"", data[start:stop]), len(rows) + 1)
                rows.append({name: str(value) for name, value in row.items()})
                self.spans.append((start, stop))
                start = data.find(b"{", stop)
        self.rows = pd.DataFrame(rows, index=range(1, len(rows) + 1), dtype=object).fillna("")
        self.names, self.has_ids = names_of(self.rows, len(rows))
        self.keys = [str(number) for number in range(1, len(rows) + 1)]
        try:
            height, width = self.read("1").shape[:2]
        except ValueError as error:
            raise PodiumError(f"{path}: {error}; download it again") from None
        self.pixels = f"{height} x {width} pixels, two radar bands"

    def _parse(self, text: bytes, number: int) -> dict[str, Any]:
        try:
            return dict(json.loads(re.sub(rb",\s*}$", b"}", text)))
        except ValueError:
            raise PodiumError(f"{self.path}, image {number}: not a JSON object; download it again") from None

    def read(self, key: str) -> NDArray[np.uint8]:
        number = int(key)
        if not 1 <= number <= len(self.spans):
            raise ValueError(f"the file has {len(self.spans):,} images")
        start, stop = self.spans[number - 1]
        with self.path.open("rb") as file:
            file.seek(start)
            row = self._parse(file.read(stop - start), number)
        bands = [np.array(row.get(band, ()), np.float64) for band in BANDS]
        if bands[0].size != bands[1].size or not bands[0].size or not all(np.isfinite(band).all() for band in bands):
            raise ValueError(f"image {number} has no two bands of equally many numbers")
        height, width = shape_of(bands[0].size, self.shape, f"{self.path}, image {number}")
        decibels = np.stack([*bands, (bands[0] + bands[1]) / 2], axis=1).reshape(height, width, 3)
        scaled = (decibels - LOWEST) / (HIGHEST - LOWEST) * 255
        return scaled.round().clip(0, 255).astype(np.uint8)
