"""Corrects training labels: reads, checks, merges and applies data/competitions/<slug>.corrections.csv.

    podium folds --corrections FILE          podium train --corrections FILE

The table has the columns id, label (a class, or `drop` for an image that training leaves out) and why (free text, may
be missing). `load` applies the competition's own file, so every command sees it; --corrections adds the lines of
another one to it. To undo a correction, delete its line. The files in data/raw/ never change, nor do the classes.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from podium.basics.disk import write_text
from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean, first_few, plural
from podium.competition.card import card_path, read_card
from podium.competition.find.csv_files import csv_text, read_table
from podium.options.extensions.extension_files import PROJECT_FILE, loaded_extensions
from podium.tasks.task import ONE_LABEL, SEPARATOR, Task

COLUMNS = ("id", "label", "why")
DROP, OTHER_DROP = "drop", "(drop)"  # the second where a class is called drop: a label always means the class


class Correction(NamedTuple):
    label: str
    why: str


@dataclass(frozen=True, eq=False)
class Corrections:
    """The corrections of a competition. A line that repeats the label of the files changes nothing: it confirms it."""

    path: Path  # the competition's own file, which may not exist
    lines: Mapping[str, Correction]  # by id
    train_in_files: pd.DataFrame  # the training rows without corrections
    classes: Sequence[str]
    task: Task = ONE_LABEL
    added: dict[Path, int] = field(default_factory=dict)  # files, and how many of their lines are not saved yet

    @cached_property
    def new_labels(self) -> dict[str, str]:
        """Returns the label of each image whose label changes, by id."""
        before = dict(zip(self.train_in_files["id"], self.train_in_files["target"], strict=True))
        dropped = self.dropped_ids
        return {
            name: line.label for name, line in self.lines.items() if name not in dropped and line.label != before[name]
        }

    @cached_property
    def dropped_ids(self) -> set[str]:
        word = drop_word(self.classes)
        return {name for name, line in self.lines.items() if line.label == word}

    @property
    def sha256(self) -> str | None:
        """Returns a hash of what changes, whatever the order and the reasons; None if nothing changes."""
        if not self.new_labels and not self.dropped_ids:
            return None
        content = [sorted(self.new_labels.items()), sorted(self.dropped_ids)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def apply(self, groups: "pd.Series[str] | None") -> "tuple[pd.DataFrame, pd.Series[str] | None]":
        """Returns the corrected training rows and their groups."""
        if self.sha256 is None:
            return self.train_in_files, groups
        ids, before = self.train_in_files["id"], self.train_in_files["target"]
        target = [self.new_labels.get(name, label) for name, label in zip(ids, before, strict=True)]
        is_kept = ~ids.isin(self.dropped_ids)
        train = self.train_in_files.assign(target=target)[is_kept].reset_index(drop=True)
        if train["target"].nunique() < 2:
            files = " and ".join(str(path) for path in (self.path, *self.added) if path.exists())
            raise PodiumError(f"{files}: fewer than two classes have images after these corrections; delete some lines")
        return train, None if groups is None else groups[is_kept].reset_index(drop=True)

    def describe(self) -> str:
        """Returns what changes, in words: `9 labels changed, 3 images dropped`."""
        changed, dropped = len(self.new_labels), len(self.dropped_ids)
        confirmed = len(self.lines) - changed - dropped
        counts = [f"{plural(changed, 'label')} changed", f"{plural(dropped, 'image')} dropped"]
        return ", ".join([*counts, *([f"{plural(confirmed, 'label')} confirmed"] if confirmed else [])])

    def note(self) -> list[str]:
        new = "".join(f", {count:,} new from {path}" for path, count in self.added.items())
        lines = f"{plural(len(self.lines), 'line')}{new}"
        return [f"{self.path} corrects the training images: {self.describe()} ({lines})"] if self.lines else []

    def with_file(self, path: Path | None) -> "Corrections":
        """Returns these corrections with the lines of another file, if any, which replace those of the same images."""
        if path is None:
            return self
        if not path.exists():
            raise PodiumError(f"{path} does not exist; correct the path of --corrections")
        lines = read_lines(path, self.train_in_files, self.classes, self.task)
        if not lines:
            raise PodiumError(f"{path} holds no corrections; add lines of id and label, or leave out --corrections")
        new_count = sum(self.lines.get(name) != line for name, line in lines.items())
        added = {**self.added, path: new_count}
        return replace(self, lines={**self.lines, **lines}, added=added)

    def dropping(self, reasons: Mapping[str, str]) -> "Corrections":
        """Returns these corrections with lines that leave images out; `reasons` are by id."""
        word = drop_word(self.classes)
        return replace(self, lines={**self.lines, **{name: Correction(word, why) for name, why in reasons.items()}})

    def save(self) -> None:
        """Writes the lines that other files have added into the competition's own file, once."""
        if any(self.added.values()):
            self.write(self.path)
            self.added.clear()

    def write(self, path: Path) -> None:
        write_text(path, corrections_csv((name, *line) for name, line in self.lines.items()))


def corrections_path(slug: str, root: Path) -> Path:
    return card_path(slug, root).with_name(f"{slug}.corrections.csv")


def drop_word(classes: Iterable[str]) -> str:
    """Returns the label of an image that is left out."""
    return OTHER_DROP if DROP in classes else DROP


def corrections_csv(lines: Iterable[tuple[str, str, str]]) -> str:
    """Returns the text of a file of corrections; `lines` are ids, labels and reasons."""
    return csv_text([COLUMNS, *lines])


def read_corrections(
    slug: str, root: Path, train: pd.DataFrame, classes: Sequence[str], task: Task = ONE_LABEL
) -> Corrections:
    """Returns the competition's corrections; `train` are its training rows as in its files."""
    path = corrections_path(slug, root)
    lines = read_lines(path, train, classes, task) if path.exists() else {}
    return Corrections(path, lines, train, classes, task)


# --- reading a table ---------------------------------------------------------------------------------


def read_lines(path: Path, train: pd.DataFrame, classes: Sequence[str], task: Task) -> dict[str, Correction]:
    """Returns the corrections of a table by id; an empty file holds none."""
    rows = read_table(path, "correct it or delete it", may_be_empty=True)
    if rows.empty:
        return {}
    for column in COLUMNS[:2]:
        if column not in rows.columns:
            names = ", ".join(rows.columns)
            raise PodiumError(f"{path}: no column '{column}'; its columns are {names}; add or rename one")
    _refuse_unknown_ids(path, rows["id"], train["id"])
    _refuse_unknown_labels(path, rows["label"], classes, task)
    labels = rows[["id", "label"]].drop_duplicates()
    repeated = labels[labels["id"].duplicated()]
    if len(repeated):
        raise PodiumError(
            f"{path}, line {repeated.index[0]}: id '{repeated['id'].iloc[0]}' has another label above; delete one of"
            " its lines"
        )
    reasons = rows["why"] if "why" in rows.columns else [""] * len(rows)
    word = drop_word(classes)
    ordered = [label if label == word else task.sort_labels(label, classes) for label in rows["label"]]
    return {name: Correction(label, why) for name, label, why in zip(rows["id"], ordered, reasons, strict=True)}


def _refuse_unknown_ids(path: Path, ids: "pd.Series[str]", train_ids: "pd.Series[str]") -> None:
    unknown = ids[~ids.isin(train_ids)]
    if len(unknown):
        with_zeros = train_ids[train_ids.str.lstrip("0") == unknown.iloc[0]]  # spreadsheets write 7 for 007
        hint = f"did you mean {with_zeros.iloc[0]}?" if len(with_zeros) else "correct or delete these lines"
        raise PodiumError(
            f"{path}, line {unknown.index[0]}: no training image has the id {first_few(unknown.unique())}; {hint}"
        )


def _are_numbers(label: str, count: int) -> bool:
    """Returns whether these are so many numbers, of which some, but not all, may be blank."""
    cells = label.split(SEPARATOR)
    try:
        values = [float(cell) for cell in cells if cell]
    except ValueError:
        return False
    return len(cells) == count and len(values) > 0 and all(map(math.isfinite, values))


def _refuse_unknown_labels(path: Path, labels: "pd.Series[str]", classes: Sequence[str], task: Task) -> None:
    word = drop_word(classes)
    if not task.are_labels:
        wrong = labels[[label != word and not _are_numbers(label, len(classes)) for label in labels]]
        if len(wrong):
            form = SEPARATOR.join(classes)
            raise PodiumError(
                f"{path}, line {wrong.index[0]}: '{wrong.iloc[0]}' is not {form}; write numbers in this form"
                f" ({word} leaves the image out)"
            )
        return
    known = {*classes, word}
    unknown = labels[[not known.issuperset(task.labels_of(label)) for label in labels]]
    if task.has_columns and not len(unknown):
        number_of = dict(zip(classes, task.columns_of(classes), strict=True))
        columns = sorted(set(number_of.values()))
        wrong = labels[
            [label != word and sorted(number_of[name] for name in task.labels_of(label)) != columns for label in labels]
        ]
        if len(wrong):
            raise PodiumError(
                f"{path}, line {wrong.index[0]}: '{wrong.iloc[0]}' is not one label for each of {len(columns)} columns;"
                f" write it as in folds.csv ({word} leaves the image out)"
            )
    if len(unknown):
        line, label = unknown.index[0], next(name for name in task.labels_of(unknown.iloc[0]) if name not in known)
        hint = did_you_mean(label, [*classes, word], otherwise=f"the classes are {first_few(classes)}")
        joined = "" if task is ONE_LABEL else f"; {SEPARATOR} stands between several labels"
        raise PodiumError(f"{path}, line {line}: no class '{label}'; {hint} ({word} leaves the image out{joined})")


def find_project_files(slug: str, root: Path) -> list[Path]:
    """Returns the card, the corrections, podium.toml and the extensions, as far as they exist."""
    read_card(slug, root)  # loads the extensions
    paths = [card_path(slug, root), corrections_path(slug, root), root / PROJECT_FILE]
    paths += [root / extension.name for extension in loaded_extensions() if not extension.is_cell]
    return [path for path in paths if path.is_file()]
