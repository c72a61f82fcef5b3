"""What the tables say of an image, for a model that gets it beside the image (--columns): the card's `features`."""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.competition.decide.features import Features
from podium.competition.load import Competition

if TYPE_CHECKING:
    from podium.models.build import ModelSpec

Columns = NDArray[np.float32]


def columns_of_train(competition: Competition, ids: Iterable[str]) -> Columns:
    """Returns a row of numbers for each of these training images."""
    return refuse_without_features(competition).of_train(list(ids)).astype(np.float32)


def columns_of_test(competition: Competition) -> Columns:
    """Returns a row of numbers for each test image, in their order."""
    return refuse_without_features(competition).of_test.astype(np.float32)


def check_columns(spec: "ModelSpec", columns: Columns) -> None:
    """Refuses columns that are not those which a model has learned from."""
    if columns.shape[1] != spec.column_count:
        raise PodiumError(
            f"a model with --columns learned from {spec.column_count} numbers of the card's `features`, which are"
            f" {columns.shape[1]} now; restore that line of the card and the tables, or train under another --name"
        )


def sha256_of_train(competition: Competition) -> str:
    """Returns the hash of the numbers of all training images."""
    features = refuse_without_features(competition)
    numbers = columns_of_train(competition, features.train.index)
    digest = hashlib.sha256("\0".join([*features.names, *map(str, features.train.index)]).encode())
    digest.update(np.ascontiguousarray(numbers).tobytes())
    return digest.hexdigest()


def refuse_without_features(competition: Competition) -> Features:
    """Returns the columns; refuses a competition that has none."""
    if competition.features is None:
        raise PodiumError(
            f"{competition.card.path}: --columns learns from columns of the tables, and the card names none; add, for"
            ' example, features = ["age", "site"], or leave it out'
        )
    return competition.features
