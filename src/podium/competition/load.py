"""What a competition's files say: ids, labels, classes, image paths, the metric, the submission's format.

    podium data -c SLUG          prints what was understood

Reads data/raw/<slug>/ as Kaggle delivers it, and the card data/competitions/<slug>.toml, which may
override any of it. Writes nothing.
"""

import hashlib
import os
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from podium import PodiumError
from podium.competition.card import read_card
from podium.competition.find_images import Files, common_folder, find_files
from podium.competition.ids_and_labels import Sources, note_unused_tables, read_sample_submission, test_rows, train_rows
from podium.competition.submission_format import SubmissionFormat, submission_format_of
from podium.metrics import METRICS
from podium.terminal import command_for, first_few, say

__all__ = ["Competition", "load", "raw_folder", "read_card"]

KAGGLE_INPUT = Path("/kaggle/input")


@dataclass(frozen=True)
class Competition:
    slug: str
    title: str
    folder: Path
    train: pd.DataFrame  # id, target (text), image (relative to folder)
    test: pd.DataFrame  # id, image; in the submission's order
    classes: tuple[str, ...]
    metric: str
    submission_format: SubmissionFormat
    recipe: dict[str, Any]
    groups: pd.Series | None  # of each training image, where the card names a column of them; "" for none
    copies: str  # which images count as one picture: "near" or "exact" ones
    notes: tuple[str, ...]

    @cached_property
    def train_hash(self) -> str:
        return self._hash(self.train)

    @cached_property
    def test_hash(self) -> str:
        return self._hash(self.test)

    def _hash(self, rows: pd.DataFrame) -> str:
        """Of ids, labels, file names and sizes: changes whenever the data does, 300,000 images a second."""
        digest = hashlib.sha256("\0".join(sorted(self.classes)).encode())
        for row in rows.itertuples(index=False, name=None):
            digest.update("\0".join((*row, _size(f"{self.folder}/{row[-1]}"), "\n")).encode())
        return digest.hexdigest()

    def describe(self) -> str:
        counts = Counter(self.train["target"])
        largest, smallest = counts.most_common(1)[0], counts.most_common()[-1]
        of = "each class" if len(self.submission_format.answer_columns) > 1 else f"'{self.classes[1]}'"
        wants = "one label" if self.submission_format.wants == "labels" else f"the probability of {of}"
        lines = [
            f"{self.title}  ({self.folder})",
            f"  train    {len(self.train):,} images in {common_folder(self.train['image'])}/",
            f"  test     {len(self.test):,} images in {common_folder(self.test['image'])}/",
            f"  classes  {len(self.classes)}, from {largest[1]:,} images ('{largest[0]}')"
            f" down to {smallest[1]:,} ('{smallest[0]}')",
            f"  submit   {first_few(self.submission_format.columns)}: {wants} a row, as in {self.submission_format.source}",
            f"  metric   {self.metric}",
            *(f"  note     {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def raw_folder(slug: str, root: Path) -> Path:
    """Where the competition's files lie; on Kaggle's own machines they are mounted elsewhere."""
    here = root / "data" / "raw" / slug
    if "KAGGLE_KERNEL_RUN_TYPE" in os.environ and not here.exists():
        for mounted in (KAGGLE_INPUT / slug, KAGGLE_INPUT / "competitions" / slug):
            if mounted.exists():
                return mounted
    return here


def load(slug: str, root: Path, **settings: str) -> Competition:
    """Everything above, from the files; an error says which file, what about it and how to go on. `settings` count
    as if they stood in the card."""
    folder = raw_folder(slug, root)
    card = {**read_card(slug, root), **settings}
    if not folder.is_dir():
        raise PodiumError(f"{folder} does not exist; get the competition's files with: {command_for('data', slug)}")
    files = find_files(folder)
    if not files.images:
        raise PodiumError(
            f"{folder}: no images below it; unpack the archives in it, or delete it and run: {command_for('data', slug)}"
        )
    given = Sources(card, files)
    given.sample = read_sample_submission(given)
    train, columns = train_rows(given)
    groups = train.pop("group").rename(card["group_column"]) if "group" in train else None
    seen = sort_labels(set(train["target"]))
    if len(seen) < 2:
        raise PodiumError(
            f"{folder}: every training image has the label '{seen[0]}', so there is nothing to learn; where another"
            ' column holds the labels, write target_column = "NAME" in the competition\'s card'
        )
    test = test_rows(given, columns[0], train["id"].iloc[0])
    note_unused_tables(given)
    both, only = set(train["image"]) & set(test["image"]), files.only_folder()
    if both and only and not {"train_images", "test_images"} & set(card):
        raise PodiumError(
            f"{folder}: {only} is its only folder of images, and {len(both):,} of them would be both trained on and"
            " asked for; is the other missing? Download again; where this one serves both, write train_images and"
            " test_images in the competition's card"
        )
    submission, classes = submission_format_of(card, given.sample, columns, seen)
    metric = card.get("metric", "accuracy" if submission.wants == "labels" else "log_loss")
    if METRICS[metric]().wants != submission.wants:
        given.notes.append(
            f"{metric} is a metric of {METRICS[metric]().wants}, and the submission holds {submission.wants}"
        )
    return Competition(
        slug=slug,
        title=card.get("title", slug),
        folder=folder,
        train=train,
        test=test,
        classes=tuple(classes),
        metric=metric,
        submission_format=submission,
        recipe=card.get("recipe", {}),
        groups=groups,
        copies=card.get("copies", "near"),
        notes=(
            *dict.fromkeys(given.notes),
            *submission.notes,
            *_notes(train, test, files, submission, set(classes) - set(seen)),
        ),
    )


def _notes(
    train: pd.DataFrame, test: pd.DataFrame, files: Files, submission: SubmissionFormat, unseen: set[str]
) -> list[str]:
    learned, answered = set(train["image"]), set(test["image"])
    notes = []
    if unseen:
        notes.append(f"{len(unseen):,} classes of the submission have no training image: {first_few(sorted(unseen))}")
    if learned & answered:
        notes.append(f"{len(learned & answered):,} images are both trained on and asked for")
    left, folders = set(files.images) - learned - answered, {os.path.dirname(image) for image in answered}
    asked = {image for image in left if os.path.dirname(image) in folders}
    if asked:
        what = f"{len(asked):,} images beside the test images are in no row of {submission.source}"
        notes.append(f"{what}: is that file whole?")
    if left - asked:
        notes.append(f"{len(left - asked):,} images belong to no row")
    return notes


def sort_labels(labels: set[str]) -> list[str]:
    """Numbers by value where all labels are plain numbers, else text by letters."""
    plain = all(re.fullmatch("0|[1-9][0-9]*", label) for label in labels)
    return sorted(labels, key=lambda label: (len(label) if plain else 0, label))


def _size(path: str) -> str:
    try:
        return str(os.stat(path).st_size)
    except OSError:  # a dangling link; whoever reads the image says so
        return "none"


def load_and_report(slug: str, root: Path, **settings: str) -> Competition:
    """Loads a competition and prints its notes."""
    competition = load(slug, root, **settings)
    for note in competition.notes:
        say(f"podium: note: {note}")
    return competition
