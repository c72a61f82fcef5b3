"""Certifies what a split into folds guarantees. The split may come from Podium or from elsewhere.

    podium folds --verify [FILE]

The certificate is computed from the audit and the folds file. `podium folds` computes the same for its own split. Both
print it; folds.json, beside folds.csv, keeps it.
"""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.disk import sha256
from podium.basics.errors import PodiumError
from podium.basics.terminal import busy_with, first_few
from podium.competition.load import Competition
from podium.folds.folds import Folds, Ints, Mask
from podium.folds.sites import Sites
from podium.folds.split import Labels, cells_of, labels_of
from podium.folds.time_order import TimeOrder
from podium.images.audit_report import find_leaked_test_images
from podium.images.duplicates import merge_groupings


@dataclass(frozen=True)
class UnseenImages:
    """The images that a fold validates, whose class its model has never seen."""

    scored_as: str  # the class that no training image has
    classes_held_out_whole: list[str]
    images: int


@dataclass(frozen=True)
class SiteFacts:
    """The sites that folds leave out."""

    source: str  # in words
    sites: int
    across_folds: list[str]  # sites that a fold trains on and validates


@dataclass(frozen=True)
class Certificate:
    """What a split guarantees and leaves open. The fields are the keys of folds.json."""

    folds: int
    is_rolling: bool  # a fold trains on some of the other images only, such as earlier ones
    images: int
    trained_in_every_fold: int  # images of fold -1
    bad_images: int  # that cannot be read
    duplicate_groups: int  # groups of duplicates
    duplicates_across_folds: list[str]  # groups that a fold trains on and validates, by the name of their first image
    group_column: str | None
    groups_across_folds: list[str]  # groups of that column that a fold trains on and validates
    time_column: str | None
    gap: float  # between training and validation
    gap_unit: str  # "days"; "" for the unit of that column
    late_folds: list[str]  # that train on images which are not earlier than those they validate, by the gap
    largest_difference: int  # between two folds, in the images of a class
    uneven_classes: list[str]  # whose folds differ by more than their largest group and their mixed groups explain
    classes_never_validated: list[str]
    classes_left_out: list[str]  # those of them that could be validated
    images_validated: int
    images_that_could_be: int  # validated, in a split by `podium folds`
    classes_partly_validated: list[str]
    classes_not_trained: list[str]  # by a fold, whose model never sees the class
    sites: SiteFacts | None  # None: the folds leave no sites out
    unknown: UnseenImages | None  # None: the competition has no class that training images lack
    test_images: int
    test_copies: int  # test images with a duplicate among the training images
    test_copies_validated: int  # those of them whose duplicate some fold validates
    data_sha256: str  # of ids, labels and files
    folds_sha256: str

    @property
    def broken(self) -> list[str]:
        """Returns the leaks, in words: what a fold's model learns of the images that it is scored on."""
        leaks = [
            (f"duplicates of one image are {self._apart}", self.duplicates_across_folds),
            (f"groups of {self.group_column} are {self._apart}", self.groups_across_folds),
            (f"folds train on {self._late_images}", self.late_folds),
            (f"images of one site are {self._apart}", self.sites.across_folds if self.sites else []),
        ]
        return [f"{leak}: {first_few(names)}" for leak, names in leaks if names]

    @property
    def question(self) -> dict[str, object]:
        """Returns what was asked: the columns of groups and times, and the gap."""
        return {"group_column": self.group_column, "time_column": self.time_column, "gap": self.gap}

    @property
    def _apart(self) -> str:
        return "on both sides of a split" if self.is_rolling else "in different folds"

    @property
    def _late_images(self) -> str:
        gap = f", or within {self.gap:g} {self.gap_unit}".rstrip() + " before" if self.gap else ""
        return f"images as late as those that they validate{gap} ({self.time_column})"

    def describe(self, verbose: bool = False) -> str:
        """Returns the verdict, a line for each guarantee, and the facts that say something; `verbose`: all facts."""
        verdict = "NOT CERTIFIED" if self.broken else "certified: no leak"
        facts = [f"         {fact}: {value}" for fact, value in self._facts() if verbose or not self._is_usual(value)]
        return "\n".join([verdict, *self._guarantee_lines(), *facts])

    def _is_usual(self, value: str) -> bool:
        """Returns whether a fact says that there is nothing to tell of: none of something, or all images validated."""
        return value.partition(" of ")[0] == "0" or value == self._validated(self.images_that_could_be)

    def _validated(self, images: int) -> str:
        return f"{images:,} of {self.images_that_could_be:,}"

    def _guarantee_lines(self) -> list[str]:
        groups = [(self.groups_across_folds, f"groups of {self.group_column} {self._apart}")]
        late = [(self.late_folds, f"folds that train on {self._late_images}")]
        sites = (
            [(self.sites.across_folds, f"images of one site {self._apart} ({self.sites.source})")] if self.sites else []
        )
        guarantees = [
            (self.duplicates_across_folds, f"duplicates of one image {self._apart}"),
            *(groups if self.group_column else []),
            *(late if self.time_column else []),
            *sites,
        ]
        return [f"  {'FAILS' if names else 'holds'}  {text}: {len(names):,}" for names, text in guarantees]

    def _facts(self) -> list[tuple[str, str]]:
        """Balance and coverage are no guarantees: a split by time or by site has reasons to be uneven."""
        return [
            ("groups of duplicates among the training images", f"{self.duplicate_groups:,}"),
            ("test images with a duplicate among the training images", f"{self.test_copies:,} of {self.test_images:,}"),
            ("images trained on in every fold and never validated", f"{self.trained_in_every_fold:,}"),
            ("files that are not readable images and are in no fold", f"{self.bad_images:,}"),
            ("images validated, of those that could be", self._validated(self.images_validated)),
            ("largest difference between folds in the images of a class", f"{self.largest_difference:,}"),
            ("classes less even than their groups allow", _count_and_names(self.uneven_classes)),
            ("classes that no fold validates", _count_and_names(self.classes_never_validated)),
            ("classes that could be validated and are in no fold", _count_and_names(self.classes_left_out)),
            ("classes that only some folds validate", _count_and_names(self.classes_partly_validated)),
            ("classes missing from a fold's training images", _count_and_names(self.classes_not_trained)),
            *self._unknown_facts(),
        ]

    def _unknown_facts(self) -> list[tuple[str, str]]:
        if self.unknown is None:
            return []
        classes, images = _count_and_names(self.unknown.classes_held_out_whole), self.unknown.images
        share = f"{images:,} ({images / max(1, self.images_validated):.1%})"
        return [
            ("classes held out whole, which the model of their fold never sees", classes),
            (f"images validated of these classes, scored as {self.unknown.scored_as}", share),
        ]

    def as_json(self) -> dict[str, object]:
        """Returns the fields; those of sites and of the unknown class only where there are such."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("sites", "unknown") or value}
        return {**fields, "holds": not self.broken}


@busy_with("checking the folds for leaks")
def certify(
    competition: Competition,
    rows: pd.DataFrame,
    folds: Folds,
    path: Path,
    possible: Ints,
    times: TimeOrder | None,
    sites: Sites | None = None,
) -> Certificate:
    """Checks `folds`, the folds of the training images as read from `path`.

    `rows` are the audit's. `possible` is a split that shows what these images and groups allow.
    """
    train, is_good = readable_train_images(competition, rows)
    labels = labels_of(list(train["target"]), competition.task)
    classes, readable = np.array(labels.classes, dtype=object), labels.of_images(is_good)
    k, good_folds = folds.count, folds.some(is_good)
    validated = _images_per_fold(readable, good_folds.of_image, k)
    could_be_validated = _images_per_fold(readable, possible[is_good], k)
    is_validated: Mask = validated.sum(1) > 0
    unknown, is_unseen = _unseen_images(competition, readable, good_folds)
    difference = np.where(is_unseen, 0, np.ptp(validated, axis=1))
    largest_group, is_mixed = _groups_of_classes(readable, fold_groups(competition, train, sites)[is_good])
    names = partial(_names_in, classes)
    # If classes share groups, a split that is more even for one class is less even for another.
    allowed = largest_group + 2 * np.maximum(np.ptp(could_be_validated, axis=1), 1) * is_mixed

    return Certificate(
        folds=k,
        is_rolling=folds.is_rolling,
        images=len(train),
        trained_in_every_fold=int(((good_folds.of_image == -1) & (good_folds.trained_from == 0)).sum()),
        bad_images=int((~is_good).sum()),
        duplicate_groups=int(train["group"][train["group"].duplicated() & (train["group"] != "")].nunique()),
        duplicates_across_folds=_groups_across_folds(train["group"], is_good, folds),
        group_column=None if competition.groups is None else str(competition.groups.name),
        groups_across_folds=_groups_across_folds(competition.groups, is_good, folds),
        time_column=None if times is None else times.column,
        gap=0.0 if times is None else times.gap,
        gap_unit="days" if times is not None and times.has_dates else "",
        late_folds=[] if times is None else times.late_folds(folds, is_good),
        largest_difference=int(difference.max()),
        uneven_classes=names(difference > allowed),
        classes_never_validated=names(~is_validated),
        classes_left_out=names(~is_validated & (could_be_validated.sum(1) > 0)),
        images_validated=int((good_folds.of_image >= 0).sum()),
        images_that_could_be=int((possible[is_good] >= 0).sum()),
        classes_partly_validated=names(is_validated & (validated == 0).any(1) & ~is_unseen),
        classes_not_trained=names(_is_missing_somewhere(readable, good_folds) & ~is_unseen),
        sites=None if sites is None else _facts_of_sites(sites, is_good, folds),
        unknown=unknown,
        test_images=int((rows["role"] == "test").sum()),
        test_copies=len(find_leaked_test_images(rows)),
        test_copies_validated=len(find_leaked_test_images(rows.drop(train.index[folds.of_image < 0]))),
        data_sha256=competition.train_hash,
        folds_sha256=sha256(path),
    )


def readable_train_images(competition: Competition, rows: pd.DataFrame) -> tuple[pd.DataFrame, Mask]:
    """Returns the audit's rows of the training images, and a mask of those that can be read; raises if none can."""
    train = rows[rows["role"] == "train"]
    is_good: Mask = (train["reason"] == "").to_numpy()
    if not is_good.any():
        raise PodiumError(f"{competition.folder}: none of the training images can be read; download it again")
    return train, is_good


def fold_groups(competition: Competition, train: pd.DataFrame, sites: Sites | None = None) -> Ints:
    """Returns, for each training image, the first image of the group that must share a fold.

    That is its group of duplicates, its group in the column that the card names, its site, or a chain of these.
    """
    of_card = [] if competition.groups is None else [competition.groups]
    return merge_groupings([train["group"], *of_card, *([] if sites is None else [sites.of_image])])


def _images_per_fold(labels: Labels, folds: Ints, k: int) -> Ints:
    """Counts the images of each class that each fold validates."""
    counts = np.zeros((len(labels.classes), k + 1), dtype=np.int64)
    np.add.at(counts, (labels.label, folds[labels.image]), 1)
    return counts[:, :k]  # the last column is fold -1


def _is_missing_somewhere(labels: Labels, folds: Folds) -> Mask:
    """Marks the classes of which some fold trains on no image, although there are some."""
    class_count = len(labels.classes)
    is_missing = np.zeros(class_count, dtype=np.bool_)
    for fold in range(folds.count):
        is_missing |= np.bincount(labels.label[folds.trains(fold)[labels.image]], minlength=class_count) == 0
    return np.asarray(is_missing & (np.bincount(labels.label, minlength=class_count) > 0))


def _names_in(classes: NDArray[Any], mask: Mask) -> list[str]:
    return [str(name) for name in classes[mask]]


def _unseen_images(competition: Competition, labels: Labels, folds: Folds) -> tuple[UnseenImages | None, Mask]:
    """Returns the images that a fold validates without training on any of their class, and a mask of these classes."""
    class_count, images = len(labels.classes), 0
    is_unseen = np.zeros(class_count, dtype=np.bool_)
    if competition.unknown is None:
        return None, is_unseen
    for fold in range(folds.count):
        trained = np.bincount(labels.label[folds.trains(fold)[labels.image]], minlength=class_count)
        validated = np.bincount(labels.label[folds.validates(fold)[labels.image]], minlength=class_count)
        is_unseen |= (trained == 0) & (validated > 0)
        images += int(validated[trained == 0].sum())
    classes = _names_in(np.array(labels.classes, dtype=object), is_unseen)
    return UnseenImages(competition.unknown.name, classes, images), is_unseen


def _groups_of_classes(labels: Labels, group: Ints) -> tuple[Ints, Mask]:
    """Returns, for each class, its images in its largest group, and whether a group of it holds other classes too."""
    class_count = len(labels.classes)
    cells = cells_of(labels.label, group[labels.image], class_count)
    largest, is_mixed = np.zeros(class_count, dtype=np.int64), np.zeros(class_count, dtype=np.bool_)
    np.maximum.at(largest, cells.label, cells.images)
    is_mixed[cells.label[np.bincount(cells.group)[cells.group] > 1]] = True
    return largest, is_mixed


def _groups_across_folds(groups: "pd.Series[str] | None", is_good: Mask, folds: Folds) -> list[str]:
    """Returns the groups that some fold trains on and validates."""
    if groups is None:
        return []
    is_named = (groups != "").to_numpy() & is_good
    group, names = pd.factorize(groups[is_named], sort=True)
    named = folds.some(is_named)
    leaks = np.zeros(len(names), dtype=np.bool_)
    for fold in range(folds.count):
        is_trained, is_validated = (
            np.bincount(group[mask], minlength=len(names)) > 0 for mask in (named.trains(fold), named.validates(fold))
        )
        leaks |= is_trained & is_validated
    return [str(name) for name in names[leaks]]


def _facts_of_sites(sites: Sites, is_good: Mask, folds: Folds) -> SiteFacts:
    return SiteFacts(sites.source, sites.count, _groups_across_folds(sites.of_image, is_good, folds))


def _count_and_names(names: list[str]) -> str:
    return f"{len(names)} ({first_few(names)})" if names else "0"
