"""Reads labelled images from elsewhere that join the training images: the card's [[extra]].

    [[extra]]
    folder = "data/extra/wikiart"      below the project's folder; without a table, its folders are the classes
    table = "labels.csv"               in that folder: a column that names the images, and one of labels
    labels = { impressionism = "4", sketch = "" }      their words for the classes; "" leaves such images out
    weight = 0.5                       how often an epoch shows each, or what it weighs for a head
    licence = "CC BY 4.0"

They are never held out, and stand in no folds.csv: runs with and without them can be compared and blended.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean, first_few, plural
from podium.competition.card import Card
from podium.competition.find.csv_files import read_table
from podium.competition.find.find_files import Files, find_files
from podium.tasks.task import Task

KEYS: dict[str, Any] = {
    "folder": str,
    "table": str,
    "image_column": str,
    "label_column": str,
    "labels": dict,
    "weight": (int, float),
    "licence": str,
    "url": str,
}
LARGEST_WEIGHT = 100


class ExtraSource(NamedTuple):
    folder: str  # as in the card
    images: int
    weight: float
    licence: str
    url: str

    def describe(self) -> str:
        licence = f", {self.licence}" if self.licence else ", licence unknown"
        return f"{plural(self.images, 'image')} of {self.folder} ({self.weight:g} times{licence})"


@dataclass(frozen=True, eq=False)
class ExtraImages:
    rows: pd.DataFrame  # id, target, image (relative to the competition's folder), weight
    sources: tuple[ExtraSource, ...]
    folder: Path  # of the competition
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # what is wrong with entries whose folder is not there

    def describe(self) -> str:
        found = first_few(source.describe() for source in self.sources)
        return "; ".join(filter(None, [found, *self.missing]))

    def as_json(self, used: pd.DataFrame) -> list[dict[str, Any]]:
        """Returns where the images that are used come from, for the recipe and the lineage."""
        folders = sorted((source.folder for source in self.sources), key=len, reverse=True)  # one may lie in another
        owners = [next(folder for folder in folders if image.startswith(f"{folder}/")) for image in used["id"]]
        counts = [owners.count(source.folder) for source in self.sources]
        return [
            source._replace(images=count)._asdict() for source, count in zip(self.sources, counts, strict=True) if count
        ]

    @cached_property
    def sha256(self) -> str:
        """Returns the hash of the ids, labels, weights and sizes of the files."""
        sizes = [os.path.getsize(f"{self.folder}/{image}") for image in self.rows["image"]]
        text = json.dumps([self.rows[["id", "target", "weight"]].to_numpy().tolist(), sizes])
        return hashlib.sha256(text.encode()).hexdigest()


def read_extra(card: Card, root: Path, folder: Path, task: Task, classes: Sequence[str]) -> ExtraImages:
    """Returns the extra images of a competition in `folder`, which the card names."""
    parts = [pd.DataFrame({name: [] for name in ("id", "target", "image")}, dtype=object).assign(weight=0.0)]
    missing: list[str] = []
    sources: list[ExtraSource] = []
    notes: list[str] = []
    for number, entry in enumerate(card["extra"], 1):
        place = f"{card.path}: [[extra]] {number}"
        check_entry(entry, place)
        own = root / entry["folder"]
        if not own.is_dir():  # prediction does without it
            missing.append(f"{place}: there is no folder {own}; correct `folder`, or delete this entry")
            continue
        files = find_files(own)
        named = _rows_of_table(entry, files, place) if "table" in entry else _rows_of_folders(files, place)
        known, note = _with_known_labels(named, entry, task, classes, place)
        notes += [f"{entry['folder']}: {note}"] if note else []
        relative = os.path.relpath(own, folder).replace(os.sep, "/")
        weight = float(entry.get("weight", 1.0))
        known = known.assign(
            id=[f"{entry['folder']}/{image}" for image in known["image"]],
            image=[f"{relative}/{image}" for image in known["image"]],
            weight=weight,
        )
        parts.append(known[["id", "target", "image", "weight"]])
        source = ExtraSource(entry["folder"], len(known), weight, entry.get("licence", ""), entry.get("url", ""))
        sources.append(source)
    rows = pd.concat(parts, ignore_index=True)
    repeated = rows["image"][rows["image"].duplicated()]
    if len(repeated):
        raise PodiumError(f"{card.path}: two [[extra]] entries hold {repeated.iloc[0]}; delete one of them")
    return ExtraImages(rows, tuple(sources), folder, tuple(notes), tuple(missing))


def check_entry(entry: Any, place: str) -> None:
    if not isinstance(entry, dict) or "folder" not in entry:
        raise PodiumError(f'{place}: it has no folder; write folder = "data/extra/NAME" below [[extra]]')
    for key, value in entry.items():
        if key not in KEYS:
            raise PodiumError(f"{place}: no setting '{key}'; {did_you_mean(key, KEYS, otherwise=first_few(KEYS, 9))}")
        if not isinstance(value, KEYS[key]) or isinstance(value, bool):
            kinds = {"labels": "a table of texts", "weight": "a number"}
            raise PodiumError(f"{place}: {key} must be {kinds.get(key, 'text')}, not {value!r}")
    weight = entry.get("weight", 1.0)
    if not 0 < weight <= LARGEST_WEIGHT:
        raise PodiumError(f"{place}: weight must be above 0 and at most {LARGEST_WEIGHT}, not {weight}")
    if not all(isinstance(text, str) for text in entry.get("labels", {}).values()):
        raise PodiumError(f"{place}: labels must name classes as texts; write them in quotes")


# --- their labels ------------------------------------------------------------------------------------


def _rows_of_folders(files: Files, place: str) -> pd.DataFrame:
    """Returns image and target of the images in folders, whose names are the labels."""
    images = [image for image in files.images if "/" in image]
    if not images:
        raise PodiumError(
            f"{place}: {files.folder} has no images in folders of their classes; move them there, or name a `table`"
        )
    return pd.DataFrame({"image": images, "target": [PurePosixPath(image).parent.name for image in images]})


def _rows_of_table(entry: Mapping[str, Any], files: Files, place: str) -> pd.DataFrame:
    path = files.folder / entry["table"]
    if not path.is_file():
        raise PodiumError(f"{place}: there is no table {path}; correct `table`")
    table = read_table(path, "correct that file")
    image_column, label_column = entry.get("image_column"), entry.get("label_column")
    for key, column in (("image_column", image_column), ("label_column", label_column)):
        if column is not None and column not in table:
            columns = first_few(table.columns)
            raise PodiumError(f"{place}: {path} has no column '{column}', which {key} names; its columns are {columns}")
    by_name = _images_by_name(files)
    image_column = image_column or max(table, key=lambda column: table[column].isin(list(by_name)).sum())
    others = [column for column in table if column != image_column]
    if label_column is None and len(others) != 1:
        raise PodiumError(
            f'{place}: it is not clear which column of {path} holds the labels; write label_column = "NAME", one of'
            f" {first_few(others)}"
        )
    names, labels = table[image_column], table[label_column or others[0]]
    missing = names[~names.isin(list(by_name))]
    if len(missing):
        raise PodiumError(
            f"{path}, line {missing.index[0]}: no image '{missing.iloc[0]}' below {files.folder}; correct or delete"
            f" that line ({plural(len(missing), 'line')} like it)"
        )
    unclear = names[[not by_name[name] for name in names]]
    if len(unclear):
        raise PodiumError(
            f"{path}, line {unclear.index[0]}: several images below {files.folder} are called '{unclear.iloc[0]}'; name"
            f" them by their paths ({plural(len(unclear), 'line')} like it)"
        )
    rows = pd.DataFrame({"image": [by_name[name] for name in names], "target": labels.str.strip().to_numpy()})
    repeated = rows.drop_duplicates()["image"].duplicated()
    if repeated.any():
        image = rows.drop_duplicates()["image"][repeated].iloc[0]
        raise PodiumError(f"{path}: {image} has two labels; delete one of its lines")
    return rows.drop_duplicates()


def _images_by_name(files: Files) -> dict[str, str]:
    """Finds images by their path, and by their file name with or without its ending; "": several have that name."""
    found: dict[str, str] = {}
    for image in files.images:
        for name in {PurePosixPath(image).stem, PurePosixPath(image).name}:
            found[name] = "" if name in found else image
    return found | {image: image for image in files.images}


def _with_known_labels(
    rows: pd.DataFrame, entry: Mapping[str, Any], task: Task, classes: Sequence[str], place: str
) -> tuple[pd.DataFrame, str]:
    """Returns the images whose label is a class, in the competition's words, and a note on the others."""
    words = entry.get("labels", {})
    wrong = sorted({text for text in words.values() if text and not _is_known(text, task, classes)})
    if wrong:
        hint = did_you_mean(wrong[0], classes, otherwise=f"the classes are {first_few(classes)}")
        raise PodiumError(f"{place}: labels: '{wrong[0]}' is no class of this competition; {hint}")
    targets = rows["target"].map(lambda text: words.get(text, text))
    is_known = targets.map(lambda text: text != "" and _is_known(text, task, classes))
    if not is_known.any():
        theirs = first_few(dict.fromkeys(rows["target"]))
        raise PodiumError(
            f"{place}: none of its labels ({theirs}) is a class ({first_few(classes)}); map them with `labels`"
        )
    unknown = rows["target"][~is_known & (targets != "")]
    note = ""
    if len(unknown):
        theirs = first_few(dict.fromkeys(unknown))
        note = f"{plural(len(unknown), 'image')} left out, whose labels are no classes: {theirs}"
    in_order = [task.sort_labels(text, classes) for text in targets[is_known]]
    return rows[is_known].assign(target=in_order), note


def _is_known(text: str, task: Task, classes: Sequence[str]) -> bool:
    """Returns whether a target of our own form is one that this task can have."""
    if task.are_labels:
        labels = task.labels_of(text)
        return bool(labels) and set(labels) <= set(classes)
    try:
        return len([float(cell or "nan") for cell in text.split("|")]) == len(classes)
    except ValueError:
        return False
