"""Guesses the range of the values in arrays of NumPy, from a sample of the training images, where the card has none.

The guess stands for the card's `range` everywhere: in the store, in a run's models, in their predictions and exports.
So all images are seen in one range. Also notes how the planes, frames or slices of a file become one picture.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.terminal import plural
from podium.competition.card import Card
from podium.competition.containers.image_place import files_of
from podium.competition.containers.number_files import describe, read_start, reader_of
from podium.competition.find.image_names import number_suffixes

MOST_IMAGES = 64
MOST_BYTES = 200_000_000  # of all that are read
VALUES = 20_000  # of an image
ENDS = (0.5, 99.5)  # percentiles: a few extreme values do not darken all others


def guess_range(card: Card, folder: Path, train: pd.DataFrame) -> tuple[Card, list[str]]:
    """Returns the card, with a range if it has none and the training images need one; and notes."""
    suffixes = number_suffixes()
    files = (file for image in train["image"] for file in files_of(image))
    names = sorted(file for file in files if file.lower().endswith(suffixes))
    values, words = list[NDArray[np.float64]](), dict[str, str]()
    for name in _spread(names, folder):
        start = read_start(folder / name)
        if text := describe(start):
            words.setdefault(text, name)
        values += _some_values(folder / name, start)
    notes = [f"{name} and the like become one picture each: {text}" for text, name in list(words.items())[:1]]
    ends = _ends_of(values) if values and "range" not in card else None
    if ends is None:
        return card, notes
    low, high = ends
    where = f"{ENDS[0]} % to {ENDS[1]} % of the values of {plural(len(values), 'training image')}"
    guess = card.with_guess("range", [low, high], f"a guess: {where}")
    advice = card.advise(f"range = [{low:g}, {high:g}]")
    return guess, [
        *notes,
        f"values from {low:g} (black) to {high:g} (white) are shown, a guess: {where}; to fix or change it, {advice}",
    ]


def _spread(names: list[str], folder: Path) -> list[str]:
    """Returns some of the names, at equal distances: as many as may be read."""
    if not names:
        return []
    try:
        size = max(1, (folder / names[0]).stat().st_size)
    except OSError:
        size = 1
    count = min(MOST_IMAGES, len(names), max(1, MOST_BYTES // size))
    return [names[number] for number in np.linspace(0, len(names) - 1, count).round().astype(int)]


def _some_values(path: Path, start: bytes) -> list[NDArray[np.float64]]:
    """Returns some values of an image; none if it says its own range, is of 8 bits, or is broken."""
    reader = reader_of(start)
    if reader is None or not reader.has_one_range:
        return []
    try:
        values = reader.read(path.read_bytes()).values
    except (OSError, ValueError):
        return []  # whoever decodes the image reports it
    if values.dtype == np.uint8 or values.dtype == np.bool_:
        return []
    flat = values.reshape(-1)
    step = flat.size // VALUES | 1  # an odd one meets all columns of a picture whose width is even
    return [flat[::step].astype(np.float64)]


def _ends_of(values: list[NDArray[np.float64]]) -> tuple[float, float] | None:
    """Returns the lower and the upper end, of four digits; None if all values are alike."""
    finite = np.concatenate(values)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        return None
    for low, high in (np.percentile(finite, ENDS), (finite.min(), finite.max())):
        low, high = float(f"{low:.4g}"), float(f"{high:.4g}")
        if low < high:
            return low, high
    return None
