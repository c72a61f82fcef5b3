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
from podium.audit import leaked
from podium.competition import Competition
from podium.disk import sha256
from podium.duplicates import joined
from podium.files import few


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
    classes_left_out: list[str]  # those of them that have images and groups enough
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
            ("classes with images enough are validated in no fold", self.classes_left_out),
            ("classes are missing from a fold's training images", self.classes_not_trained),
        ]
        return [f"{what}: {few(names)}" for what, names in said if names]

    def __str__(self) -> str:
        column = f"groups of {self.group_column} in different folds"
        guaranteed: list[tuple[list[str], str, int]] = [
            (
                self.duplicates_across_folds,
                "copies of one picture in different folds",
                len(self.duplicates_across_folds),
            ),
            *([(self.groups_across_folds, column, len(self.groups_across_folds))] if self.group_column else []),
            (self.uneven_classes, "largest difference between folds in images of a class", self.largest_difference),
            (self.classes_left_out, "classes with images enough that no fold validates", len(self.classes_left_out)),
            (self.classes_not_trained, "classes missing from a fold's training images", len(self.classes_not_trained)),
        ]
        known: list[tuple[str, object]] = [
            ("groups of copies among the training images", f"{self.duplicate_groups:,}"),
            ("test images with a copy among the training images", f"{self.test_copies:,} of {self.test_images:,}"),
            (
                "images trained on in every fold and never validated",
                f"{self.trained_in_every_fold:,} of {self.images - self.bad_images:,}",
            ),
            ("files that are no images, which are left out", f"{self.bad_images:,}"),
            ("classes that no fold validates", _names(self.classes_never_validated)),
            ("classes that only some folds validate", _names(self.classes_partly_validated)),
            ("hashes of the data and of these folds", f"{self.data_sha256[:16]}, {self.folds_sha256[:16]}"),
        ]
        return "\n".join(
            [f"  {'FAILS' if fails else 'holds'}  {what}: {number:,}" for fails, what, number in guaranteed]
            + [f"         {what}: {value}" for what, value in known]
        )

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "holds": not self.broken}


def certify(competition: Competition, rows: pd.DataFrame, folds: NDArray[np.int64], path: Path) -> Certificate:
    """`rows` are the audit's; `folds` those of the training images, as read from `path`."""
    train, test = rows[rows["role"] == "train"], rows[rows["role"] == "test"]
    label, classes = pd.factorize(train["target"])
    k = int(folds.max()) + 1
    good = (train["reason"] == "").to_numpy()
    if not good.any():
        raise PodiumError(f"{competition.folder}: not one training image can be read; download it again")
    counts = np.zeros((len(classes), k + 1), dtype=np.int64)
    np.add.at(counts, (label[good], folds[good]), 1)  # fold -1 is the last column
    validated = counts[:, :k]
    difference = np.ptp(validated, axis=1)
    difference[validated.sum(1) == 0] = 0
    groups = competition.groups if competition.groups is not None else pd.Series("", index=range(len(train)))
    group = joined([train["group"], groups])
    largest, mixed, could = _of_groups(label[good], group[good], len(classes), k)
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
        uneven_classes=[str(classes[i]) for i in np.flatnonzero(difference > largest + mixed)],
        classes_never_validated=[str(classes[i]) for i in np.flatnonzero(validated.sum(1) == 0)],
        classes_left_out=[str(classes[i]) for i in np.flatnonzero((validated.sum(1) == 0) & could)],
        classes_partly_validated=[
            str(classes[i]) for i in np.flatnonzero((validated.sum(1) > 0) & (validated == 0).any(1))
        ],
        classes_not_trained=[str(classes[i]) for i in np.flatnonzero(only)],
        test_images=len(test),
        test_copies=len(leaked(rows)),
        data_sha256=competition.train_hash,
        folds_sha256=sha256(path),
    )


def _of_groups(
    label: NDArray[np.int64], group: NDArray[np.int64], classes: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Of each class: the images in its largest group, those in groups that hold other classes too, and whether its
    other groups alone could be spread over the folds."""
    both, images = np.unique(group * classes + label, return_counts=True)
    held, groups = both % classes, both // classes
    largest = np.zeros(classes, dtype=np.int64)
    np.maximum.at(largest, held, images)
    amid_others = np.bincount(groups)[groups] > 1
    mixed, own = (np.bincount(held[some], images[some], classes) for some in (amid_others, ~amid_others))
    could = (own >= k) & (np.bincount(held[~amid_others], minlength=classes) > 1)
    return largest, mixed.astype(np.int64), could


def _torn(groups: "pd.Series[str]", folds: NDArray[np.int64]) -> list[str]:
    """The groups that have images in more than one fold; -1 counts as one, since its images train all others."""
    named = (groups != "").to_numpy()
    several = pd.Series(folds[named]).groupby(groups[named].to_numpy()).nunique() > 1
    return [str(name) for name in several.index[several]]


def _names(names: list[str]) -> str:
    return f"{len(names)} ({few(names)})" if names else "0"
