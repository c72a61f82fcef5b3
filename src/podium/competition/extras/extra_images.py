"""Reads images from elsewhere: labelled ones that join the training images, and ones without labels.

    [[extra]]
    folder = "data/extra/wikiart"      below the project's folder; without a table, its folders are the classes
    table = "labels.csv"               in that folder: a column that names the images, and one of labels
    labels = { impressionism = "4", sketch = "" }      their words for the classes; "" leaves such images out
    weight = 0.5                       how often an epoch shows each, or what it weighs for a head
    licence = "CC BY 4.0"

    [[unlabelled]]
    folder = "data/extra/more.zip"     a folder, or an archive that `podium data` unpacks into the folder of its name
    licence = "CC BY 4.0"

None is ever held out or stands in folds.csv: runs with and without them can be compared and blended. `podium pretrain`
learns from all of them, `podium train` from those without labels with --pseudo only.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import command_for, did_you_mean, first_few, plural
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
OF_UNLABELLED = ("folder", "licence", "url")
COLUMNS = ["id", "target", "image", "weight"]
ZIP = ".zip"
LARGEST_WEIGHT = 100


class ExtraSource(NamedTuple):
    folder: str  # as in the card
    images: int
    weight: float | None  # None: they have no labels
    licence: str
    url: str

    def describe(self) -> str:
        times = f"{self.weight:g} times, " if self.weight is not None else ""
        return f"{plural(self.images, 'image')} of {self.folder} ({times}{self.licence or 'licence unknown'})"

    def as_json(self, images: int) -> dict[str, Any]:
        facts = self._replace(images=images)._asdict()
        return {name: value for name, value in facts.items() if value is not None}


@dataclass(frozen=True, eq=False)
class ExtraImages:
    rows: pd.DataFrame  # id, target ("" without labels), image (relative to the competition's folder), weight
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
        return [source.as_json(count) for source, count in zip(self.sources, counts, strict=True) if count]

    @cached_property
    def sha256(self) -> str:
        """Returns the hash of the ids, labels, weights and sizes of the files."""
        sizes = [os.path.getsize(f"{self.folder}/{image}") for image in self.rows["image"]]
        text = json.dumps([self.rows[["id", "target", "weight"]].to_numpy().tolist(), sizes])
        return hashlib.sha256(text.encode()).hexdigest()


def read_extra(card: Card, root: Path, folder: Path, task: Task, classes: Sequence[str]) -> ExtraImages:
    """Returns the extra images of a competition in `folder`, which the card names."""
    found = _Found(card, "extra", root, folder)
    for entry, files, place in found.entries(KEYS):
        named = _rows_of_table(entry, files, place) if "table" in entry else _rows_of_folders(files, place)
        known, note = _with_known_labels(named, entry, task, classes, place)
        found.add(entry, files, known, float(entry.get("weight", 1.0)), note)
    return found.images()


def read_unlabelled(card: Card, root: Path, folder: Path) -> ExtraImages:
    """Returns the images without labels, other than test images, which the card names."""
    found = _Found(card, "unlabelled", root, folder)
    for entry, files, place in found.entries(OF_UNLABELLED):
        if not files.images:
            raise PodiumError(f"{place}: {files.folder} has no images that can be read; correct `folder`")
        found.add(entry, files, pd.DataFrame({"image": files.images}).assign(target=""), None)
    return found.images()


def packed_folders(card: Card, root: Path) -> list[tuple[Path, Path]]:
    """Returns the archives that the card names as folders, each with the folder that it is unpacked to."""
    folders = [entry.get("folder") for entry in card.get("unlabelled", ()) if isinstance(entry, dict)]
    return [
        (root / name, root / unpacked(name)) for name in folders if isinstance(name, str) and unpacked(name) != name
    ]


def unpacked(folder: str) -> str:
    """Returns the folder that an entry names; an archive stands for the folder of its name."""
    return folder[: -len(ZIP)] if folder.lower().endswith(ZIP) else folder


class _Found:
    """The images of the entries of one key of the card."""

    def __init__(self, card: Card, key: str, root: Path, folder: Path) -> None:
        self.card, self.key, self.root, self.folder = card, key, root, folder
        self.parts = [pd.DataFrame({name: [] for name in COLUMNS[:-1]}, dtype=object).assign(weight=0.0)]
        self.sources: list[ExtraSource] = []
        self.notes: list[str] = []
        self.missing: list[str] = []

    def entries(self, keys: Collection[str]) -> Iterator[tuple[dict[str, Any], Files, str]]:
        """Yields the entries whose folder is there, with its files, and what messages call them."""
        for number, entry in enumerate(self.card[self.key], 1):
            place = f"{self.card.path}: [[{self.key}]] {number}"
            check_entry(entry, place, self.key, keys)
            own = self.root / unpacked(entry["folder"])
            if own.is_dir():
                yield entry, find_files(own), place
            elif (self.root / entry["folder"]).is_file():
                command = command_for("data", self.folder.name)
                self.missing.append(f"{place}: {own.name}.zip is not unpacked; run: {command}")
            else:  # prediction does without it
                self.missing.append(f"{place}: there is no folder {own}; correct `folder`, or delete this entry")

    def add(
        self, entry: Mapping[str, Any], files: Files, rows: pd.DataFrame, weight: float | None, note: str = ""
    ) -> None:
        """Adds images and their labels; their paths are relative to the entry's folder."""
        relative = os.path.relpath(files.folder, self.folder).replace(os.sep, "/")
        rows = rows.assign(
            id=[f"{entry['folder']}/{image}" for image in rows["image"]],
            image=[f"{relative}/{image}" for image in rows["image"]],
            weight=1.0 if weight is None else weight,
        )
        self.parts.append(rows[COLUMNS])
        self.notes += [f"{entry['folder']}: {note}"] if note else []
        source = ExtraSource(entry["folder"], len(rows), weight, entry.get("licence", ""), entry.get("url", ""))
        self.sources.append(source)

    def images(self) -> ExtraImages:
        rows = pd.concat(self.parts, ignore_index=True)
        repeated = rows["image"][rows["image"].duplicated()]
        if len(repeated):
            raise PodiumError(
                f"{self.card.path}: two [[{self.key}]] entries hold {repeated.iloc[0]}; delete one of them"
            )
        return ExtraImages(rows, tuple(self.sources), self.folder, tuple(self.notes), tuple(self.missing))


def check_entry(entry: Any, place: str, of: str, keys: Collection[str]) -> None:
    if not isinstance(entry, dict) or "folder" not in entry:
        raise PodiumError(f'{place}: it has no folder; write folder = "data/extra/NAME" below [[{of}]]')
    for key, value in entry.items():
        if key not in keys:
            raise PodiumError(f"{place}: no setting '{key}'; {did_you_mean(key, keys, otherwise=first_few(keys, 9))}")
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
