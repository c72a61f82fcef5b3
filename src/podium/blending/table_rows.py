"""Reads what the tables say of each image, for a stack: the card's features as numbers, and the image's group."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from podium.blending.stack_inputs import Ints, TableRows
from podium.competition.load import Competition


def rows_of_tables(competition: Competition, ids: Sequence[str] | None = None) -> TableRows | None:
    """Returns the rows of these training images, or of the submission's; None if the tables say nothing of them."""
    groups = _group_numbers(competition)
    if competition.features is None and groups is None:
        return None
    own_groups = None if groups is None else groups[0].loc[list(ids)].to_numpy() if ids is not None else groups[1]
    count = len(competition.test) if ids is None else len(ids)
    if competition.features is None:
        rows = TableRows(np.empty((count, 0)), np.empty((count, 0)), own_groups)
    else:
        features = competition.features
        of_features = None
        if groups is not None:  # an image that was dropped since has none
            known = groups[0].reindex(features.train.index, fill_value=-1).to_numpy()
            of_features = np.where(known < 0, len(groups[0]) + np.arange(len(known)), known), groups[1]
        train, test, sources = features.further(of_features)
        plain = features.of_test if ids is None else features.of_train(ids)
        further = test if ids is None else train.loc[list(ids)].to_numpy()
        rows = TableRows(plain, further, own_groups, (*features.sources, *sources))
    if ids is not None or competition.answers is None:
        return rows
    place = {name: number for number, name in enumerate(competition.answers.ids)}
    return rows.pooled(np.array([place[name] for name in competition.answers.test], np.int64), len(place))


def _group_numbers(competition: Competition) -> "tuple[pd.Series[int], Ints] | None":
    """Returns the numbers of the training images' groups by id, and of the test images'; None if one has none."""
    if competition.groups is None or competition.test_groups is None:
        return None
    numbers = []
    for groups, ids in (
        (competition.groups, competition.train["id"]),
        (competition.test_groups, competition.test["id"]),
    ):
        names = np.where(groups.to_numpy() == "", "image " + ids.to_numpy(), "group " + groups.to_numpy())
        numbers.append(np.unique(names.astype(str), return_inverse=True)[1].astype(np.int64))
    return pd.Series(numbers[0], competition.train["id"].to_numpy()), numbers[1]
