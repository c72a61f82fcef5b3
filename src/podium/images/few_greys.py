"""Tells whether images of more than 8 bits become a handful of greys, because they use a small part of their range.

Reads the records of a store. The audit prints what it finds; training is refused where most images are like this.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import plural, say
from podium.competition.load import Competition
from podium.competition.value_range import ValueRange
from podium.images.decode import to_8_bits
from podium.images.store import Store
from podium.images.store_format import FileRecord

FEWEST = 16  # greys: with fewer, an image has lost most of what it shows


@dataclass(frozen=True)
class DeepImages:
    """The images of more than 8 bits among those of a store, without those of a single value, which show nothing."""

    records: Sequence[FileRecord]
    lowest: float  # of all their values
    highest: float

    @staticmethod
    def among(records: Sequence[FileRecord]) -> "DeepImages":
        deep = [record for record in records if record.values and record.values[0] < record.values[1]]
        bounds = [record.values for record in deep if record.values] or [(0.0, 0.0)]
        return DeepImages(deep, min(low for low, _ in bounds), max(high for _, high in bounds))

    def greys(self, value_range: ValueRange | None) -> NDArray[np.int64]:
        """Returns how many of the 256 greys lie between the darkest and the brightest one of each image."""
        ends = [
            to_8_bits(np.array(record.values, np.float32), record.mode, value_range).tolist() for record in self.records
        ]
        return np.array([high - low + 1 for low, high in ends], np.int64)

    def suggested_settings(self) -> list[str]:
        """Returns what the card may say: whole bits if they leave enough greys, else the values that are used."""
        bits = 2.0 ** np.arange(1, 33) - 1
        enough = bits[bits >= self.highest] if self.lowest >= 0 else bits[:0]
        for high in enough[:1]:
            if np.median(self.greys((0.0, float(high)))) >= FEWEST:
                return [f"range = [0, {high:.0f}]", 'range = "image"']
        if np.median(self.greys((self.lowest, self.highest))) >= FEWEST:
            return [f"range = [{self.lowest:.7g}, {self.highest:.7g}]", 'range = "image"']
        return ['range = "image"']


def describe_ranges(competition: Competition, store: Store) -> str:
    """Returns which part of their range the images of more than 8 bits use, for the audit; "" without such images."""
    deep, value_range = DeepImages.among(store.files), competition.card.value_range
    if not deep.records:
        return "the card's range changes nothing: no image has more than 8 bits" if value_range else ""
    greys = deep.greys(value_range)
    usual = int(np.median(greys))
    lines = [
        f"images of more than 8 bits: {len(deep.records):,}, with values from {deep.lowest:.7g} to {deep.highest:.7g}",
        f"  as 8 bits, an image has {usual} of 256 greys ({usual / 256:.1%} of the range; the median)",
    ]
    few = int((greys < FEWEST).sum())
    if few:
        advice = competition.card.advise(*deep.suggested_settings())
        lines.append(f"  warning: {plural(few, 'image')} with fewer than {FEWEST} greys; {advice}")
    return "\n".join(lines)


def refuse_few_greys(competition: Competition, store: Store, positions: NDArray[np.int64]) -> None:
    """Raises if most of these images have too few greys; warns if some have."""
    readable = positions[~store.bad(positions)]
    deep = DeepImages.among([store.files[position] for position in readable])
    few = np.flatnonzero(deep.greys(competition.card.value_range) < FEWEST)
    if not len(few):
        return
    problem = (
        f"{len(few):,} of {plural(len(readable), 'training image')} become fewer than {FEWEST} greys as 8 bits, because"
        f" their values use a small part of the range ({deep.lowest:.7g} to {deep.highest:.7g} in all)"
    )
    remedy = competition.card.advise(*deep.suggested_settings())
    if 2 * len(few) > len(readable):
        raise PodiumError(f"{competition.folder}: {problem}; {remedy}, where image means each image's own values")
    first = deep.records[few[0]].image
    say(f"podium: warning: {problem}, {competition.folder / first} first; {remedy}")
