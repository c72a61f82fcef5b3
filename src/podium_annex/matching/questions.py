"""What a row of the submission asks: how similar two images are, or which cluster an image is in."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.competition.find.csv_files import CsvStyle, csv_text
from podium.competition.load import Competition
from podium.saved_runs.run_folder import Run
from podium.tasks.task import ONE_LABEL
from podium_annex.matching.choose_way import Choice
from podium_annex.matching.clusters import names_of_images
from podium_annex.matching.compared_features import Looker
from podium_annex.matching.galleries import are_nobody
from podium_annex.matching.similarities import Array, Way, scaled

DIGITS = 7  # of a similarity: more would differ between machines
Models = Mapping[Run, Sequence[int]]


class Question(ABC):
    """The rows of a submission: their ids, in its order, and what is to be answered."""

    kind: ClassVar[str]  # in the lineage

    def __init__(self, competition: Competition, ids: list[str], header: tuple[str, ...], style: CsvStyle) -> None:
        self.competition, self.ids, self.header, self.style = competition, ids, header, style

    @abstractmethod
    def describe(self) -> str: ...

    @abstractmethod
    def asked(self) -> list[Any]:
        """Returns what must stay the same for a CSV to be rebuilt."""

    @abstractmethod
    def answers(self, models: Models, choice: Choice, looker: Looker) -> list[str]:
        """Returns the cell of each row."""

    @abstractmethod
    def are_wrong(self, cells: "pd.Series[str]") -> "pd.Series[bool]":
        """Marks cells that no submission may hold."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps([self.kind, self.header, self.ids, *self.asked()]).encode()).hexdigest()

    def render(self, cells: Sequence[str]) -> str:
        rows = zip(self.ids, cells, strict=True)
        return f"{self.style.header}{self.style.newline}{csv_text(rows, self.style.newline, self.style.delimiter)}"


class PairQuestion(Question):
    """How similar the images of each pair are."""

    kind = "pairs"

    def __init__(self, competition: Competition) -> None:
        pairs = competition.pairs
        assert pairs is not None
        super().__init__(competition, pairs.ids, pairs.header, pairs.style)
        self.first, self.second = pairs.first, pairs.second

    def describe(self) -> str:
        return f"{len(self.ids):,} pairs of {len(self.competition.test):,} test images"

    def asked(self) -> list[Any]:
        return [self.first, self.second]

    def answers(self, models: Models, choice: Choice, looker: Looker) -> list[str]:
        features = looker.features(models, self.competition.test)
        place = {one: number for number, one in enumerate(self.competition.test["id"])}
        first, second = (np.array([place[one] for one in ids], np.int64) for ids in (self.first, self.second))
        values = scaled(similarities_of(features, choice.way, first, second), choice.threshold)
        return [f"{value:.{DIGITS}f}" for value in values]

    def are_wrong(self, cells: "pd.Series[str]") -> "pd.Series[bool]":
        return ~pd.to_numeric(cells, errors="coerce").between(0, 1)


class ClusterQuestion(Question):
    """Which images show the same individual."""

    kind = "clusters"

    def __init__(self, competition: Competition) -> None:
        form = competition.submission_format
        if len(form.header) != 2 or form.id_position or form.long or competition.answers or not len(competition.test):
            raise PodiumError(
                f"{competition.folder}: clusters need test images, and a sample submission with a row for each: an id,"
                f" then a name; its columns are {', '.join(form.header)}"
            )
        super().__init__(competition, list(form.ids) or competition.answer_ids, form.header, form.line_style)

    def describe(self) -> str:
        return f"clusters of {len(self.competition.test):,} test images"

    def asked(self) -> list[Any]:
        return []

    def answers(self, models: Models, choice: Choice, looker: Looker) -> list[str]:
        columns, train = ["id", "image"], self.competition.train
        images = pd.concat([self.competition.test[columns], train[columns]], ignore_index=True)
        known = train["target"].where(~are_nobody(self.competition), None).tolist()
        names = names_of_images(looker.features(models, images), choice.way, choice.border, known)
        name_of = dict(zip(self.competition.test["id"], names, strict=False))
        return [name_of[one] for one in self.ids]

    def are_wrong(self, cells: "pd.Series[str]") -> "pd.Series[bool]":
        return cells.str.strip() == ""


def question_of(competition: Competition, wants_clusters: bool) -> Question:
    """Returns what is asked; refuses competitions whose rows ask something else."""
    if competition.task is not ONE_LABEL:
        raise PodiumError(f"podium match compares individuals, one for each image; here are {competition.task.words}")
    if competition.pairs is None and not wants_clusters:
        raise PodiumError(
            f"{competition.folder}: no row of the test table is a pair of images; if two of its columns name them, "
            + competition.card.advise('pairs = ["QUERY", "GALLERY"]')
            + "; to answer clusters of single images, add --clusters; labels of them: podium submit"
        )
    if competition.pairs is not None and wants_clusters:
        raise PodiumError(
            f"{competition.folder}: each row of the submission is a pair of images; leave out --clusters, or "
            + competition.card.advise("pairs = []")
        )
    return ClusterQuestion(competition) if wants_clusters else PairQuestion(competition)


def similarities_of(features: Array, way: Way, first: NDArray[Any], second: NDArray[Any]) -> Array:
    """Returns the similarities of these pairs of rows."""
    order, found = np.argsort(first, kind="stable"), np.empty(len(first), np.float32)
    for start, rows in way.rows(features):
        begin, end = np.searchsorted(first[order], (start, start + len(rows)))
        asked = order[begin:end]
        found[asked] = rows[first[asked] - start, second[asked]]
    return found
