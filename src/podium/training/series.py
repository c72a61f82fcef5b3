"""Finds the series of a competition's images, and lets a store show each image between its neighbours (--adjacent).

A series is the images of one answer (of a patient, a study), where a row of the submission is for several images; else
those of one group, where the card names a group column. Both keep a series in one fold, so no label leaks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.decide.further_columns import numbers_in
from podium.competition.find.composed_images import natural_order
from podium.competition.load import Competition, load
from podium.images.adjacent import Adjacent
from podium.images.store import Store
from podium.options.moves.adjacent_images import adjacent_images

Channels = tuple[int, ...]
CHUNK = 4096  # thumbnails that are in memory at once


def as_run_sees(store: Store, competition: Competition, recorded: Mapping[str, Any]) -> Store:
    """Returns the store of a run's images, each with its neighbours if the recipe says so."""
    own = adjacent_images(recorded)
    if not own.is_on:
        return store
    if store.channels != 3:
        raise PodiumError("--adjacent and the card's channels do not go together; leave out one of them")
    return with_adjacent(store, series_of(competition, own.order_column), own.adjacent)


def channels_of(store: Store, rows: pd.DataFrame) -> Channels:
    """Returns which channels a model gets, if not red, green and blue: those of the files that are one image.

    Of images that are seen at once, it gets all, or one of each if all images are grey.
    """
    if store.adjacent is None:
        return tuple(range(store.channels)) if store.channels != 3 else ()
    positions, count = store.examples(rows).first, store.adjacent.around.shape[1]
    is_grey = are_grey(store, positions[~store.bad(positions)])
    return tuple(range(0, 3 * count, 3 if is_grey else 1))


def with_adjacent(store: Store, series: Iterable[Sequence[str]], count: int) -> Store:
    """Returns the store whose images are read with those beside them in a series, `count` at once.

    Beyond the ends, the first and the last image of a series stand in; for one that cannot be read, the image itself.
    So does an image for those beside it where it belongs to no series.
    """
    own, reach = np.arange(len(store.names)), np.arange(count) - count // 2
    around = np.repeat(own[:, None], count, 1)
    for names in series:
        places = store.positions(list(names))
        beside = (np.arange(len(places))[:, None] + reach).clip(0, len(places) - 1)
        around[places] = places[beside]
    around = np.where(store.bad(around.ravel()).reshape(around.shape), own[:, None], around)
    return replace(store, adjacent=Adjacent(around))


def are_grey(store: Store, positions: NDArray[np.int64]) -> bool:
    """Returns whether these images show no colours, as far as their thumbnails tell."""
    for start in range(0, len(positions), CHUNK):
        thumbs = store.thumbs[positions[start : start + CHUNK]]
        if (thumbs != thumbs[..., :1]).any():
            return False
    return True


def series_of(competition: Competition, order_column: str) -> list[list[str]]:
    """Returns the images of each series, in their order; those that belong to none are left out."""
    tables = [competition.train, competition.test]
    owners = _owners(competition)
    orders = _orders(competition, order_column) if order_column else [np.zeros(len(table)) for table in tables]
    series: dict[tuple[int, str], dict[str, float]] = {}
    for number, (table, own, order) in enumerate(zip(tables, owners, orders, strict=True)):
        for image, owner, place in zip(table["image"], own, order, strict=True):
            if owner:
                series.setdefault((number, owner), {}).setdefault(str(image), float(place))
    if not any(len(places) > 1 for places in series.values()):
        raise PodiumError(f"{competition.folder}: --adjacent needs series of several images, and there are none")
    return [sorted(places, key=lambda image: (places[image], natural_order(image))) for places in series.values()]


def _owners(competition: Competition) -> list[Sequence[str]]:
    """Returns what each training image and each test image belongs to."""
    train, test, groups = competition.train, competition.test, competition.test_groups
    if answers := competition.answers:
        return [[answers.train[name] for name in train["id"]], answers.test]
    if competition.groups is None or (groups is None and len(test)):
        advice = competition.card.advise('group_column = "COLUMN"')
        raise PodiumError(
            f"{competition.folder}: --adjacent needs series: a row of the submission for several images, or a column of"
            f" both tables that says which images belong together; {advice}"
        )
    return [competition.groups.tolist(), [] if groups is None else groups.tolist()]


def _orders(competition: Competition, column: str) -> list[Sequence[float]]:
    """Returns the numbers of a column of both tables."""
    features = competition.features
    if features is None or column not in features.names:
        known = features.names if features and "features" in competition.card else ()
        competition = load(competition.slug, competition.root, features=[*known, column])
        features = competition.features
    if features is None or column not in features.names:
        raise PodiumError(f"--order-column {column}: both tables need this column")
    cells = [features.train[column].loc[competition.train["id"]], features.test[column]]
    numbers = [numbers_in(own) for own in cells]
    for own, text in zip(numbers, cells, strict=True):
        if not np.isfinite(own).all():
            wrong = first_few([str(cell) for cell in text[~np.isfinite(own)]])
            raise PodiumError(f"--order-column {column}: its cells must be numbers, not {wrong}; correct them")
    return [own.tolist() for own in numbers]
