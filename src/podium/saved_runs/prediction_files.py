"""Predictions on disk: ids, probabilities and targets in one .npz archive, never a pickle."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.disk import atomic
from podium.basics.errors import PodiumError
from podium.tasks.scored_labels import OWN_LABELS, ScoredLabels
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, Targets, labels_in

POOLED = "pooled_"  # begins the names of arrays


@dataclass(frozen=True)
class Predictions:
    """A row of probabilities per id; the values of `target`, by which they are scored, are -1 where unknown."""

    id: NDArray[np.str_]
    probs: NDArray[np.float32]
    target: Targets
    classes: tuple[str, ...]
    key: str = ""  # names what they were computed from: weights, images, views
    made_on: str = ""  # device and precision
    scored: ScoredLabels = OWN_LABELS  # which labels score held-out images
    pooled: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # by another way than the mean of the parts

    def in_order_of(self, classes: tuple[str, ...]) -> "Predictions":
        """Returns the same predictions with the classes in this order, which a sample submission may have changed."""
        if classes == self.classes:
            return self
        if set(classes) != set(self.classes):
            raise PodiumError("these runs were trained on different classes; choose runs that agree with --runs")
        place = {name: number for number, name in enumerate(self.classes)}
        order = np.array([place[name] for name in classes])
        values = self.target.values
        values = values[:, order] if values.ndim > 1 else np.where(values < 0, -1, order.argsort()[values])
        votes = None if self.target.votes is None else self.target.votes[:, order]
        target = replace(self.target, values=values, columns=self.target.task.columns_of(classes), votes=votes)
        pooled = {way: probs[:, order] for way, probs in self.pooled.items()}
        return replace(self, probs=self.probs[:, order], target=target, classes=classes, pooled=pooled)

    def pooled_by(self, way: str) -> "Predictions":
        """Returns the predictions with those pooled in this way, and in no other."""
        if way not in self.pooled:
            return replace(self, pooled={}) if self.pooled else self
        return replace(self, probs=self.pooled[way], pooled={}, key=f"{self.key} pooled by {way}")

    def in_order_if_same(self, classes: tuple[str, ...]) -> "Predictions":
        """Returns the predictions in this order of the classes; those of other classes as they are."""
        return self.in_order_of(classes) if set(classes) == set(self.classes) else self

    def with_labels(self, labels: Mapping[str, str] | None) -> "Predictions":
        """Returns the predictions with these labels by image id; images without one are left out.

        An image of a class that its model was not taught counts as unknown (scored_labels.py). Without labels, or if
        they are of other classes, nothing changes.
        """
        task = self.target.task
        if labels is None or not labels_in(task, labels.values()) <= set(self.classes):
            return self
        known = np.array([str(image_id) in labels for image_id in self.id], bool)
        own = [labels[str(image_id)] for image_id in self.id[known]]
        target = task.encode(self.scored.of(own), self.classes)
        if self.target.votes is not None:
            target = target.with_votes(self.target.votes[known])
        if known.all():  # without a copy of the probabilities
            return replace(self, target=target)
        return replace(self, id=self.id[known], probs=self.probs[known], target=target)

    def facts(self) -> dict[str, str]:
        """Returns what a lineage records of them."""
        digest = hashlib.sha256(self.probs.tobytes()).hexdigest()
        return {"predicted_on": self.made_on, "predicted_from": self.key, "predictions_sha256": digest}

    def check(self, is_labelled: bool) -> None:
        """Raises ValueError unless the arrays fit together; anybody may have written them."""
        images, classes, labels = self.id.size, len(self.classes), self.target.values
        if self.id.ndim != 1 or self.id.dtype.kind != "U" or len(np.unique(self.id)) < images:
            raise ValueError("its ids are not different texts")
        if len(set(self.classes)) < classes:
            raise ValueError("two of its classes have one name")
        for probs in (self.probs, *self.pooled.values()):
            if probs.shape != (images, classes) or probs.dtype.kind != "f" or not np.isfinite(probs).all():
                raise ValueError(f"its probabilities are not {images:,} rows of {classes:,} finite numbers")
        if self.scored.unknown and self.scored.unknown not in self.classes:
            raise ValueError("its unknown class is none of its classes")
        shapes = {1: (images,), 2: (images, classes)}
        if labels.dtype.kind not in "if" or shapes.get(labels.ndim) != labels.shape:
            raise ValueError(f"its targets are not those of {images:,} images")
        votes = self.target.votes
        if votes is not None and (votes.shape != (images, classes) or not (votes >= 0).all()):
            raise ValueError(f"its votes are not those of {images:,} images")
        lowest = 0 if is_labelled else -1
        if labels.ndim == 1 and not (labels.dtype.kind == "i" and ((labels >= lowest) & (labels < classes)).all()):
            raise ValueError(f"its targets are not numbers of its {classes:,} classes")

    def save(self, path: Path) -> None:
        further: dict[str, Any] = {}  # other files keep their bits
        if self.scored.unknown:
            further = {"unknown": np.array(self.scored.unknown), "unseen": np.array(sorted(self.scored.unseen), str)}
        if self.target.votes is not None:
            further["votes"] = self.target.votes
        further |= {f"{POOLED}{way}": probs for way, probs in self.pooled.items()}
        with atomic(path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                id=self.id,
                probs=self.probs,
                target=_as_in_file(self.target),
                classes=np.array(self.classes),
                key=np.array(self.key),
                made_on=np.array(self.made_on),
                **further,
            )

    @staticmethod
    def load(path: Path, remedy: str, is_labelled: bool = False) -> "Predictions":
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                classes = _names_in(file["classes"])
                key, made_on = str(file["key"]), str(file["made_on"])
                target = _from_file(file["target"], classes)
                target = replace(target, votes=file["votes"] if "votes" in file.files else None)
                scored = OWN_LABELS
                if "unknown" in file.files:
                    scored = ScoredLabels(str(file["unknown"]), frozenset(map(str, file["unseen"])))
                pooled = {name[len(POOLED) :]: file[name] for name in file.files if name.startswith(POOLED)}
                predictions = Predictions(file["id"], file["probs"], target, classes, key, made_on, scored, pooled)
            predictions.check(is_labelled)
            return predictions
        except Exception as error:  # a damaged archive makes numpy and zipfile raise nearly anything
            # numpy's own advice, to allow pickles, would be unsafe.
            problem = "it is not an archive of arrays" if "pickle" in str(error) else error
            raise PodiumError(f"{path}: cannot be read ({problem}); {remedy}") from None


def _names_in(array: NDArray[Any]) -> tuple[str, ...]:
    if array.ndim != 1 or array.dtype.kind != "U":
        raise ValueError("its classes are not a list of texts")
    return tuple(map(str, array))


def _as_in_file(targets: Targets) -> NDArray[Any]:
    """Returns the array of a file. For several targets, the classes of the first column are 1 and -1, the true one 1.

    Those of the second column are 2 and -2, and so on: so the array says which classes belong together.
    """
    if not targets.columns:
        return targets.values
    numbers = np.array(targets.columns, np.int8)
    return np.where(targets.values > 0, numbers, -numbers)


def _from_file(array: NDArray[Any], classes: Sequence[str]) -> Targets:
    """Returns the targets of a file, whose type says which task they are of."""
    if array.ndim == 1:
        return Targets(ONE_LABEL, array)
    if array.dtype == np.int8:
        if not all("=" in name for name in classes):
            raise ValueError("its targets are those of columns, and its classes are not")
        return Targets(SEVERAL_TARGETS, (array > 0).astype(np.int8), SEVERAL_TARGETS.columns_of(classes))
    return Targets(NUMBERS if array.dtype == np.float64 else SEVERAL_LABELS, array)
