"""Held-out images of known individuals, with which similarities are judged.

Images of a fold are compared with one another by the models of this fold. Individuals that these have learned are told
apart more easily than new ones, so where folds hold out individuals whole, only their images are queries. A backbone
that has learned no label knows no individual: then all training images are one gallery.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.competition.build.unknown_class import UNKNOWN_NAMES
from podium.competition.load import Competition
from podium.saved_runs.run_folder import Run
from podium_annex.matching.compared_features import Looker, have_learned_no_label
from podium_annex.matching.scores import Ints
from podium_annex.matching.similarities import Array

MOST = 5_000  # images of a gallery: its matrix of similarities is in memory


@dataclass(frozen=True)
class Gallery:
    features: Array
    identity: Ints  # the number of the individual of each image; one without an individual has a number of its own
    is_query: NDArray[np.bool_]


@dataclass(frozen=True)
class Galleries:
    parts: list[Gallery]
    are_new: bool  # whether the models have not learned the individuals of the queries

    @property
    def who(self) -> str:
        return "that the models have not learned" if self.are_new else "that the models have learned from other images"

    @property
    def query_count(self) -> int:
        return sum(int(part.is_query.sum()) for part in self.parts)

    @property
    def image_count(self) -> int:
        """Returns how many images a query is compared with, on average."""
        return round(float(np.average([len(part.identity) for part in self.parts]))) if self.parts else 0


def open_galleries(competition: Competition, runs: Sequence[Run], looker: Looker) -> Galleries:
    """Returns the galleries; none if no individual has two held-out images."""
    numbers, train = _identities(competition), competition.train
    if have_learned_no_label(runs):
        rows = _sample(np.arange(len(train)), numbers)
        tables, models = [rows], [{run: run.finished()[:1] for run in runs}]
        queries = [_have_another(numbers[rows])]
        are_new = True
    else:
        folds = _folds_of(runs)
        place = {image_id: row for row, image_id in enumerate(train["id"])}
        held_out = [[place[str(one)] for one in runs[0].out_of_fold(fold).id if str(one) in place] for fold in folds]
        tables = [_sample(np.array(rows, np.int64), numbers) for rows in held_out]
        models = [{run: [fold] for run in runs} for fold in folds]
        with_another = [_have_another(numbers[rows]) for rows in tables]
        new = [_is_new(competition, numbers, rows) for rows in held_out]
        of_new = [own & is_new[numbers[rows]] for own, is_new, rows in zip(with_another, new, tables, strict=True)]
        are_new = any(own.any() for own in of_new)
        queries = of_new if are_new else with_another
    parts = [
        Gallery(looker.features(own, train.iloc[rows]), numbers[rows], is_query)
        for rows, own, is_query in zip(tables, models, queries, strict=True)
        if is_query.any()
    ]
    return Galleries(parts, are_new)


def _identities(competition: Competition) -> Ints:
    """Returns the number of the individual of each training image; images of unknown ones have different numbers."""
    labels = competition.train["target"]
    names = labels.where(~are_nobody(competition), "image " + competition.train["id"])
    return np.asarray(pd.factorize(names)[0], np.int64)


def are_nobody(competition: Competition) -> "pd.Series[bool]":
    """Marks the training images whose label is no individual: new_whale."""
    return competition.train["target"].isin({*UNKNOWN_NAMES, str(competition.card.get("unknown", ""))})


def _folds_of(runs: Sequence[Run]) -> list[int]:
    """Returns the finished folds of all runs, which must hold out the same images."""
    first, *others = runs
    for run in others:
        for key, what in (("folds_sha256", "folds"), ("data_sha256", "data")):
            if run.recipe.get(key) != first.recipe.get(key):
                raise PodiumError(f"{run.name} was trained on other {what} than {first.name}; name runs of the same")
    folds = sorted(set.intersection(*(set(run.finished()) for run in runs)))
    if not folds:
        raise PodiumError(f"{first.name} and {others[0].name} have no finished fold in common; train the others")
    return folds


def _is_new(competition: Competition, numbers: Ints, held_out: Sequence[int]) -> NDArray[np.bool_]:
    """Marks the individuals of whom no image outside the held-out ones could be learned."""
    is_learned = np.ones(len(numbers), bool)
    is_learned[list(held_out)] = False
    known = set(numbers[is_learned].tolist())
    if competition.extra is not None:
        labels = dict(zip(competition.train["target"], numbers.tolist(), strict=True))
        known |= {labels[name] for name in competition.extra.rows["target"] if name in labels}
    return np.array([number not in known for number in range(numbers.max() + 1)])


def _have_another(identity: Ints) -> NDArray[np.bool_]:
    return np.asarray(np.bincount(identity)[identity] > 1)


def _sample(rows: Ints, numbers: Ints) -> Ints:
    """Returns all images of as many individuals as a gallery may hold, drawn by chance."""
    if len(rows) <= MOST:
        return rows
    drawn = np.random.default_rng(0).permutation(numbers.max() + 1)
    order = rows[np.argsort(drawn[numbers[rows]], kind="stable")]
    return np.sort(order[:MOST])
