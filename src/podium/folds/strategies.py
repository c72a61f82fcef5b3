"""Splits the training images in the way that the user asks for: stratified, by time, by site, or by an own splitter.

extend.py registers splitters; docs/extend.md has an example. With `folds = "val"` in the card, the images for
validation are the only fold.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean, plural, say
from podium.competition.load import Competition
from podium.folds.folds import Folds, Ints, Mask
from podium.folds.sites import Sites, site_folds
from podium.folds.split import assign_folds, labels_of, strata_of, validation_fold
from podium.folds.time_order import TimeOrder, read_times
from podium.folds.unseen_classes import assign_with_unseen
from podium.options.extensions.extend import SPLITTERS, file_of

MAX_FOLDS = 100


@dataclass(frozen=True)
class Split:
    """What the user asks for."""

    k: int = 5
    seed: int = 0
    by_time: str | None = None  # a column of the training table
    gap: float = 0.0
    strategy: str | None = None  # the name of a splitter
    sites: Sites | None = None  # each of which stays in one fold

    def check(self) -> None:
        if not isinstance(self.k, (int, np.integer)):
            raise PodiumError(f"k must be a whole number of folds, such as 5, not {self.k!r}")
        if self.k < 2 and not (self.k == 1 and self.sites is None and self.needs_columns):
            raise PodiumError(f"--k {self.k}: at least two folds are needed, one to train on and one to validate on")
        if self.k > MAX_FOLDS:
            raise PodiumError(f"--k {self.k}: every fold is a model to train; use at most {MAX_FOLDS}")
        if self.by_time is not None and self.strategy is not None:
            raise PodiumError("--by-time and --strategy are two ways to split; leave out one of them")
        if self.sites is not None and (self.by_time is not None or self.strategy is not None):
            other = "--strategy" if self.by_time is None else "--by-time"
            raise PodiumError(f"--by-site and {other} are two ways to split; leave out one of them")
        if self.gap and self.by_time is None:
            raise PodiumError("--gap is a time between training and validation; add --by-time COLUMN, or leave it out")
        if not self.gap >= 0 or self.gap == np.inf:
            raise PodiumError(f"--gap {self.gap:g} must be a number of at least 0")
        if self.strategy is not None and self.strategy not in SPLITTERS:
            there_are = f"there are {', '.join(SPLITTERS)}" if SPLITTERS else "docs/extend.md shows how to register one"
            hint = did_you_mean(self.strategy, SPLITTERS, otherwise=there_are)
            raise PodiumError(f"--strategy {self.strategy}: no splitter of this name; {hint}")

    @property
    def needs_columns(self) -> bool:
        """Whether more than labels and groups decides: columns of the training table, or sites."""
        return self.by_time is not None or self.strategy is not None or self.sites is not None

    def refuse_validation(self, competition: Competition) -> None:
        """Refuses a second way to split where the card names the images for validation."""
        if competition.validation and self.needs_columns:
            ways = {"--by-time": self.by_time, "--strategy": self.strategy, "--by-site": self.sites}
            flag = next(flag for flag, way in ways.items() if way is not None)
            raise PodiumError(
                f'{competition.card.path}: folds = "val" decides the folds; delete that line, or leave out {flag}'
            )

    def times(self, competition: Competition) -> TimeOrder | None:
        return None if self.by_time is None else read_times(competition, self.by_time, self.gap)


def split_images(
    competition: Competition, train: pd.DataFrame, is_good: Mask, groups: Ints, split: Split, times: TimeOrder | None
) -> Folds:
    """Assigns folds to the images that can be read; `train` are the audit's rows, `groups` those of duplicates too."""
    if times is not None:
        return times.rolling_folds(is_good, groups, split.k)
    if split.strategy is not None:
        return _ask_splitter(competition, train, is_good, groups, split)
    if split.sites is not None:
        labels = labels_of(list(train["target"]), competition.task)
        return site_folds(labels, is_good, groups, split.sites, split.k, split.seed)
    return Folds.of(stratified_folds(competition, train, is_good, groups, split))


def stratified_folds(competition: Competition, train: pd.DataFrame, is_good: Mask, groups: Ints, split: Split) -> Ints:
    """Returns the fold of each image; those that cannot be read get fold -1."""
    folds = np.full(len(train), -1, dtype=np.int64)
    targets, task = strata_of(list(train["target"]), competition.task)
    if competition.validation:
        labels = labels_of(targets, task).of_images(is_good)
        is_validation = train["id"].isin(competition.validation).to_numpy()
        has_unknown = competition.unknown is not None
        folds[is_good] = validation_fold(is_validation[is_good], labels, groups[is_good], has_unknown)
        return folds
    chosen = np.array(targets, dtype=object)[is_good].tolist()
    if unknown := competition.unknown:
        folds[is_good] = assign_with_unseen(chosen, split.k, split.seed, groups[is_good], unknown.share)
        return folds
    folds[is_good] = assign_folds(chosen, split.k, split.seed, groups[is_good], task)
    return folds


def _ask_splitter(competition: Competition, train: pd.DataFrame, is_good: Mask, groups: Ints, split: Split) -> Folds:
    """Returns the folds that a splitter of the project gives to the images that can be read."""
    name = str(split.strategy)
    splitter = SPLITTERS[name]
    ids = train["id"].to_numpy()
    own = pd.DataFrame({"id": ids, "target": train["target"].to_numpy(), "group": ids[groups]})
    assert competition.columns is not None
    columns = competition.columns.drop(columns=list(own), errors="ignore").reindex(ids).reset_index(drop=True)
    images = pd.concat([own, columns], axis=1)[is_good].reset_index(drop=True)
    numbers = _whole_numbers(splitter(images, split.k, split.seed), len(images))
    who = f"{file_of(splitter)}: the splitter {name}"
    if numbers is None:
        raise PodiumError(f"{who} must return a fold (-1, 0, 1, ...) for each of the {len(images):,} images; mend it")
    of_image = np.full(len(train), -1, dtype=np.int64)
    of_image[is_good] = numbers
    folds = Folds.of(of_image)
    if fault := folds.fault():
        raise PodiumError(f"{who} is wrong: {fault}")
    if folds.count != split.k:
        say(f"podium: note: {who} returned {plural(folds.count, 'fold')}, not {split.k} (--k)")
    return folds


def _whole_numbers(result: Any, count: int) -> Ints | None:
    """Returns the folds as an array; None if they are not whole numbers from -1, one for each image."""
    try:
        numbers = np.asarray(result, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if numbers.shape != (count,) or not np.isfinite(numbers).all():
        return None
    folds = numbers.astype(np.int64)
    return folds if (folds == numbers).all() and (folds >= -1).all() else None
