"""Names the test images whose values or sizes are others than those of the training images: a model knows no such.

Reads the records of a store, as the audit does. `podium submit` says what it finds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.terminal import plural
from podium.competition.load import Competition
from podium.competition.value_range import ValueRange
from podium.images.few_greys import DeepImages
from podium.images.regions import WHOLE
from podium.images.store import Store
from podium.images.store_format import FileRecord

ALL_GREYS = 256  # of an image of 8 bits, as far as is known
MUCH = 4  # times fewer greys than a training image usually has, or a larger or smaller area than all
OTHER_SHAPE = 1.5  # times as oblong as all


@dataclass(frozen=True)
class _Rows:
    """The images of a table that can be read."""

    ids: NDArray[np.object_]
    records: Sequence[FileRecord]

    @staticmethod
    def of(table: pd.DataFrame, store: Store) -> "_Rows":
        positions = store.examples(table).first
        is_good = ~store.bad(positions)
        return _Rows(table["id"].to_numpy(object)[is_good], [store.files[position] for position in positions[is_good]])

    def greys(self, value_range: ValueRange | None) -> NDArray[np.int64]:
        """Returns how many greys lie between the darkest and the brightest one of each image."""
        greys = np.full(len(self.records), ALL_GREYS, np.int64)
        is_deep = [record.values is not None and record.values[0] < record.values[1] for record in self.records]
        greys[is_deep] = DeepImages.among(self.records).greys(value_range)
        return greys

    def sizes(self) -> NDArray[np.float64]:
        return np.array([(record.width, record.height) for record in self.records], np.float64).reshape(-1, 2)


def describe_other_images(competition: Competition, store: Store) -> list[str]:
    """Returns a sentence for other values and one for other sizes, each with an image and the remedy."""
    train, test = (_Rows.of(table, store) for table in (competition.train, competition.test))
    if not len(train.records) or not len(test.records):
        return []
    found = [_other_values(competition, train, test)]
    if store.regions is WHOLE:  # parts of images have any size
        found.append(_other_sizes(train, test))
    return [sentence for sentence in found if sentence]


def _other_values(competition: Competition, train: _Rows, test: _Rows) -> str:
    value_range = competition.card.value_range
    usual, greys = train.greys(value_range), test.greys(value_range)
    other = np.flatnonzero((greys * MUCH < np.median(usual)) & (greys < usual.min()))
    if not len(other):
        return ""
    others = [test.records[position] for position in other.tolist()]
    first, deep = others[0], DeepImages.among(others)
    low, high = first.values or (0.0, 0.0)
    # A fixed range would change the training images of more than 8 bits, too.
    has_deep = any(record.values is not None for record in train.records)
    remedy = competition.card.advise(*(['range = "image"'] if has_deep else deep.suggested_settings()))
    return (
        f"{len(other):,} of {plural(len(test.records), 'test image')} use a smaller part of their range than the"
        f" training images do, id {test.ids[other[0]]} first ({first.image}: values {low:.7g} to {high:.7g} become"
        f" {greys[other[0]]} of 256 greys, those of a training image {np.median(usual):.0f}); {remedy}, and train again"
    )


def _other_sizes(train: _Rows, test: _Rows) -> str:
    known, sizes = train.sizes(), test.sizes()
    areas, shapes = known.prod(1), known[:, 0] / known[:, 1]
    area, shape = sizes.prod(1), sizes[:, 0] / sizes[:, 1]
    is_other = (area * MUCH < areas.min()) | (area > MUCH * areas.max())
    is_other |= (shape * OTHER_SHAPE < shapes.min()) | (shape > OTHER_SHAPE * shapes.max())
    if not (other := np.flatnonzero(is_other)).size:
        return ""
    first = test.records[int(other[0])]
    usual = pd.Series([f"{record.width} x {record.height}" for record in train.records]).mode()[0]
    return (
        f"{len(other):,} of {plural(len(test.records), 'test image')} have sizes or shapes that no training image has,"
        f" id {test.ids[other[0]]} first ({first.image}: {first.width} x {first.height} pixels; most training images:"
        f" {usual}); see whether they show as much of an object as the training images do, and cut them alike"
    )
