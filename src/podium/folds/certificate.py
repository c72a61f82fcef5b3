"""What a split into folds guarantees, recomputed from the audit and the file, whoever made it.

    podium folds --verify [FILE]

`podium folds` prints the same and writes it beside folds.csv, as folds.json.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.load import Competition
from podium.disk import sha256
from podium.images.audit import test_images_with_copies
from podium.images.duplicates import merge_groupings
from podium.terminal import first_few


@dataclass(frozen=True)
class Certificate:
    folds: int
    images: int
    trained_in_every_fold: int  # fold -1
    bad_images: int
    duplicate_groups: int
    duplicates_across_folds: list[str]  # groups with images in several folds, by the name of their first image
    group_column: str | None
    groups_across_folds: list[str]
    largest_difference: int  # of a class's images between two folds
    uneven_classes: list[str]  # which differ by more than the largest group, and groups of several classes, explain
    classes_never_validated: list[str]
    classes_left_out: list[str]  # those of them that could be
    images_validated: int
    images_that_could_be: int  # validated, as `podium folds` would split them
    classes_partly_validated: list[str]
    classes_not_trained: list[str]  # all their images are in one fold, whose model never sees them
    test_images: int
    test_copies: int  # that have a copy among the training images
    data_sha256: str  # of ids, labels and files
    folds_sha256: str

    @property
    def broken(self) -> list[str]:
        """What is not guaranteed, in words."""
        said = [
            ("copies of one picture are in different folds", self.duplicates_across_folds),
            (f"groups of {self.group_column} are in different folds", self.groups_across_folds),
            ("the folds' images of a class differ by more than one group", self.uneven_classes),
            ("classes that could be validated are in no fold", self.classes_left_out),
            ("classes are missing from a fold's training images", self.classes_not_trained),
        ]
        few_images = (
            f"only {self.images_validated:,} of {self.images_that_could_be:,} images that could be are validated"
        )
        return [f"{what}: {first_few(names)}" for what, names in said if names] + [few_images] * self._validates_few

    @property
    def _validates_few(self) -> bool:
        return 2 * self.images_validated < self.images_that_could_be

    def __str__(self) -> str:
        column = f"groups of {self.group_column} in different folds"
        counts: list[tuple[list[str], str]] = [
            (self.duplicates_across_folds, "copies of one picture in different folds"),
            *([(self.groups_across_folds, column)] if self.group_column else []),
            (self.classes_left_out, "classes that could be validated and are in no fold"),
            (self.classes_not_trained, "classes missing from a fold's training images"),
        ]
        guaranteed: list[tuple[bool, str, str]] = [
            *((bool(names), what, f"{len(names):,}") for names, what in counts),
            (
                bool(self.uneven_classes),
                "largest difference between folds in images of a class",
                f"{self.largest_difference:,}",
            ),
            (
                self._validates_few,
                "images validated, of those that could be",
                f"{self.images_validated:,} of {self.images_that_could_be:,}",
            ),
        ]
        known: list[tuple[str, object]] = [
            ("groups of copies among the training images", f"{self.duplicate_groups:,}"),
            ("test images with a copy among the training images", f"{self.test_copies:,} of {self.test_images:,}"),
            ("images trained on in every fold and never validated", f"{self.trained_in_every_fold:,}"),
            ("files that are no images, which are left out", f"{self.bad_images:,}"),
            ("classes that no fold validates", _names(self.classes_never_validated)),
            ("classes that only some folds validate", _names(self.classes_partly_validated)),
            ("hashes of the data and of these folds", f"{self.data_sha256[:16]}, {self.folds_sha256[:16]}"),
        ]
        return "\n".join(
            [f"  {'FAILS' if fails else 'holds'}  {what}: {value}" for fails, what, value in guaranteed]
            + [f"         {what}: {value}" for what, value in known]
        )

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "holds": not self.broken}


def certify(
    competition: Competition, rows: pd.DataFrame, folds: NDArray[np.int64], path: Path, possible: NDArray[np.int64]
) -> Certificate:
    """`rows` are the audit's; `folds` those of the training images, as read from `path`; `possible` a split that
    shows what these images and groups allow."""
    train, test = rows[rows["role"] == "train"], rows[rows["role"] == "test"]
    label, classes = pd.factorize(train["target"])
    k = int(folds.max()) + 1
    good = (train["reason"] == "").to_numpy()
    if not good.any():
        raise PodiumError(f"{competition.folder}: not one training image can be read; download it again")
    counts, could = (_counted(label[good], some[good], len(classes), k) for some in (folds, possible))
    validated = counts[:, :k]
    difference, usual = np.ptp(validated, axis=1), np.ptp(could[:, :k], axis=1)
    groups = competition.groups if competition.groups is not None else pd.Series("", index=range(len(train)))
    group = merge_groupings([train["group"], groups])
    largest, mixed = _of_groups(label[good], group[good], len(classes))
    allowed = largest + 2 * np.maximum(usual, 1) * mixed  # where classes share groups, one split favours another one
    only = (validated == counts.sum(1, keepdims=True)).any(1) & counts.any(1)  # all in one fold
    return Certificate(
        folds=k,
        images=len(train),
        trained_in_every_fold=int(((folds == -1) & good).sum()),
        bad_images=int((~good).sum()),
        duplicate_groups=int(train["group"][train["group"].duplicated() & (train["group"] != "")].nunique()),
        duplicates_across_folds=_torn(train["group"][good], folds[good]),
        group_column=None if competition.groups is None else str(competition.groups.name),
        groups_across_folds=_torn(groups[good], folds[good]),
        largest_difference=int(difference.max()),
        uneven_classes=[str(classes[i]) for i in np.flatnonzero(difference > allowed)],
        classes_never_validated=[str(classes[i]) for i in np.flatnonzero(validated.sum(1) == 0)],
        classes_left_out=[str(classes[i]) for i in np.flatnonzero((validated.sum(1) == 0) & could[:, :k].any(1))],
        images_validated=int(validated.sum()),
        images_that_could_be=int(could[:, :k].sum()),
        classes_partly_validated=[
            str(classes[i]) for i in np.flatnonzero((validated.sum(1) > 0) & (validated == 0).any(1))
        ],
        classes_not_trained=[str(classes[i]) for i in np.flatnonzero(only)],
        test_images=len(test),
        test_copies=len(test_images_with_copies(rows)),
        data_sha256=competition.train_hash,
        folds_sha256=sha256(path),
    )


def _counted(label: NDArray[np.int64], folds: NDArray[np.int64], classes: int, k: int) -> NDArray[np.int64]:
    """How many images of each class are in each fold; -1 is the last column."""
    counts = np.zeros((classes, k + 1), dtype=np.int64)
    np.add.at(counts, (label, folds), 1)
    return counts


def _of_groups(
    label: NDArray[np.int64], group: NDArray[np.int64], classes: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Of each class: the images in its largest group, and whether other classes share any of its groups."""
    both, images = np.unique(group * classes + label, return_counts=True)
    held, groups = both % classes, both // classes
    largest, shared = np.zeros(classes, dtype=np.int64), np.zeros(classes, dtype=np.bool_)
    np.maximum.at(largest, held, images)
    shared[held[np.bincount(groups)[groups] > 1]] = True
    return largest, shared


def _torn(groups: "pd.Series[str]", folds: NDArray[np.int64]) -> list[str]:
    """The groups that have images in more than one fold; -1 counts as one, since its images train all others."""
    named = (groups != "").to_numpy()
    several = pd.Series(folds[named]).groupby(groups[named].to_numpy()).nunique() > 1
    return [str(name) for name in several.index[several]]


def _names(names: list[str]) -> str:
    return f"{len(names)} ({first_few(names)})" if names else "0"
