"""Reads a competition: ids, labels, classes, image paths, the metric, the format of a submission.

    podium data -c SLUG          prints what was understood

Reads data/raw/<slug>/ as Kaggle delivers it, the card data/competitions/<slug>.toml, which may replace any of it, and
the user's corrections of labels (corrections.py). Writes nothing.
"""

import hashlib
import os
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from podium import PodiumError
from podium.competition.card import Card, read_card
from podium.competition.contained_images import describe_contained, note_unused
from podium.competition.corrections import Corrections, read_corrections
from podium.competition.find_files import Files, common_folder, find_files
from podium.competition.find_tables import Sources, Table, note_possible_samples, read_sample_submission
from podium.competition.labels import sort_labels
from podium.competition.read_test_rows import read_test_rows
from podium.competition.read_train_rows import read_train_rows
from podium.competition.read_with_extension import read_with_extension
from podium.competition.submission_format import NO_SAMPLE, SubmissionFormat, submission_format_of
from podium.competition.unsupported import unread_images
from podium.containers.image_place import file_of
from podium.metrics import METRICS
from podium.task import ONE_LABEL, Task, labels_in
from podium.terminal import command_for, first_few, plural, say

KAGGLE_INPUT = Path("/kaggle/input")
USUAL_METRICS = {  # by task, and what a submission holds
    ("one_label", "labels"): "accuracy",
    ("one_label", "probs"): "log_loss",
    ("several_labels", "labels"): "macro_f1",
    ("several_labels", "probs"): "roc_auc",
}


@dataclass(frozen=True, eq=False)  # data frames have no truth value
class Competition:
    slug: str
    title: str
    folder: Path
    train: pd.DataFrame  # id, target (text), image (relative to folder)
    test: pd.DataFrame  # id, image; in the submission's order
    classes: tuple[str, ...]
    metric: str
    submission_format: SubmissionFormat
    card: Card  # the user's settings
    groups: pd.Series | None  # of each training image, if the card names a group column; "" for no group
    copies: str  # which images count as duplicates: "near" or "exact"
    notes: tuple[str, ...]
    corrections: Corrections  # `train` and `groups` are corrected already
    task: Task

    @property
    def train_in_files(self) -> pd.DataFrame:
        """Returns the training rows as in the competition's files, without corrections."""
        return self.corrections.train_in_files

    @property
    def recipe(self) -> dict[str, Any]:
        """The card's defaults for the options of a run."""
        return dict(self.card.get("recipe", {}))

    @cached_property
    def train_hash(self) -> str:
        """Returns the hash of the files: corrections have one of their own, so they make no run or fold invalid."""
        return self._hash(self.train_in_files)

    @cached_property
    def test_hash(self) -> str:
        return self._hash(self.test)

    def _hash(self, rows: pd.DataFrame) -> str:
        """Returns a hash of ids, labels, file names and file sizes, not of pixels: 300,000 images take a second."""
        digest = hashlib.sha256("\0".join(sorted(self.classes)).encode())
        for row in rows.itertuples(index=False, name=None):
            digest.update("\0".join((*row, _file_size(f"{self.folder}/{file_of(row[-1])}"), "\n")).encode())
        return digest.hexdigest()

    def describe(self) -> str:
        """Returns what was understood, for people."""
        counts = Counter(label for target in self.train["target"] for label in self.task.labels_of(target))
        (largest, most), (smallest, least) = counts.most_common(1)[0], counts.most_common()[-1]
        submission = self.submission_format
        if submission.wants == "labels":
            answer = "one label"
        elif len(submission.answer_columns) > 1:
            answer = "the probability of each class"
        else:
            answer = f"the probability of '{self.classes[1]}'"
        lines = [
            f"{self.title}  ({self.folder})",
            f"  train    {_images_in(self.folder, self.train)}",
            f"  test     {_images_in(self.folder, self.test)}" if len(self.test) else "  test     no test images",
            f"  task     {_describe_task(self)}",
            f"  classes  {len(self.classes)}, from {most:,} images ('{largest}') down to {least:,} ('{smallest}')",
            f"  submit   {first_few(submission.columns)}: {answer} a row, {_source_of(submission)}",
            f"  metric   {self.metric}, {self.card.origin_of_metric()}",
            *(f"  note     {note}" for note in self.notes),
        ]
        return "\n".join(lines)


def _describe_task(competition: Competition) -> str:
    if competition.task is ONE_LABEL:
        return "one label for each image"
    counts = competition.train["target"].map(lambda target: len(competition.task.labels_of(target)))
    unlabelled = int((counts == 0).sum())
    none = f", none for {plural(unlabelled, 'image')}" if unlabelled else ""
    return f"several labels for each image: {counts.mean():.1f} on average, at most {counts.max()}{none}"


def _images_in(folder: Path, rows: pd.DataFrame) -> str:
    return describe_contained(folder, rows["image"]) or f"{len(rows):,} images in {common_folder(rows['image'])}/"


def _source_of(submission: SubmissionFormat) -> str:
    is_guess = submission.source == NO_SAMPLE
    return f"a guess, because there is {NO_SAMPLE}" if is_guess else f"as in {submission.source}"


def raw_folder(slug: str, root: Path) -> Path:
    """Returns the folder of the competition's files; on Kaggle's own machines it may be a mounted one."""
    folder = root / "data" / "raw" / slug
    if "KAGGLE_KERNEL_RUN_TYPE" in os.environ and not folder.exists():
        for mounted_folder in (KAGGLE_INPUT / slug, KAGGLE_INPUT / "competitions" / slug):
            if mounted_folder.exists():
                return mounted_folder
    return folder


def load(slug: str, root: Path | str, corrections_file: Path | None = None, /, **settings: str) -> Competition:
    """Reads a competition from its files; `settings` replace the card's.

    The lines of `corrections_file` join the competition's own; `corrections.save()` keeps them.
    """
    root = Path(root)
    folder = raw_folder(slug, root)
    card = read_card(slug, root)
    card.update(settings)
    files = _find_competition_files(slug, folder)
    sources = Sources(card, files)
    sources.sample = read_sample_submission(sources)
    train, test, train_columns = _read_rows(sources)
    groups = train.pop("group").rename(card.get("group_column", "group")) if "group" in train else None
    train_labels = sort_labels(labels_in(sources.task, train["target"]))
    note_possible_samples(sources)
    _refuse_missing_folder(files, card, train, test)
    submission_format, classes = submission_format_of(sources, train_columns, train_labels)
    corrections = read_corrections(slug, root, train, classes, sources.task)
    if corrections_file:
        corrections = corrections.with_file(corrections_file)
    corrected, groups = corrections.apply(groups)
    metric = card.get("metric", USUAL_METRICS[sources.task.name, submission_format.wants])
    sources.notes.extend(_notes_on_metric(metric, sources, submission_format.wants))
    notes = (
        *dict.fromkeys(sources.notes),
        *submission_format.notes,
        *_notes_on_classes(classes, labels_in(sources.task, corrected["target"])),
        *_notes_on_images(train, test, files, sources.sample),
        *corrections.note(),
    )
    return Competition(
        slug=slug,
        title=card.get("title", slug),
        folder=folder,
        train=corrected,
        test=test,
        classes=tuple(classes),
        metric=metric,
        submission_format=submission_format,
        card=card,
        groups=groups,
        copies=card.get("copies", "near"),
        notes=notes,
        corrections=corrections,
        task=sources.task,
    )


def load_and_report(slug: str, root: Path, corrections_file: Path | None = None, /, **settings: str) -> Competition:
    """Loads a competition and prints its notes."""
    competition = load(slug, root, corrections_file, **settings)
    for note in competition.notes:
        say(f"podium: note: {note}")
    return competition


def _find_competition_files(slug: str, folder: Path) -> Files:
    command = command_for("data", slug)
    if not folder.is_dir():
        others = sorted(path.name for path in folder.parent.glob("*") if path.is_dir())
        hint = f" (there is data of {first_few(others)}: name one with -c)" if others else ""
        raise PodiumError(f"{folder} does not exist{hint}; get the competition's files with: {command}")
    files = find_files(folder)
    if not files.images and not files.containers and (unread := unread_images(files)):
        raise PodiumError(f"{folder}: no images that can be read; {unread}")
    if not files.images and not files.containers:
        raise PodiumError(f"{folder}: no images below it; unpack the archives in it, or delete it and run: {command}")
    return files


def _read_rows(sources: Sources) -> tuple[pd.DataFrame, pd.DataFrame, tuple[str, str]]:
    """Returns the training rows, the test rows, and the names of the id column and the label column."""
    own = read_with_extension(sources)
    if own:
        train, test = own
        columns = sources.card.get("id_column", "id"), sources.card.get("target_column", "label")
    else:
        (train, columns), test = read_train_rows(sources), None
    _refuse_single_label(sources, set(train["target"]))
    if test is None:
        test = read_test_rows(sources, columns[0], train["id"].iloc[0])
    return train, test, columns


def _refuse_single_label(sources: Sources, train_labels: set[str]) -> None:
    if len(train_labels) < 2:
        raise PodiumError(
            f"{sources.files.folder}: every training image has the label '{min(train_labels)}', so there is nothing to"
            " learn; if another column holds the labels, " + sources.card.advise('target_column = "NAME"')
        )


def _refuse_missing_folder(files: Files, card: Card, train: pd.DataFrame, test: pd.DataFrame) -> None:
    """Raises if a folder named after one role serves both, unless the card says so: the other may be missing."""
    folder = files.only_folder_with_role()
    in_both = set(train["image"]) & set(test["image"])
    if in_both and folder and not {"train_images", "test_images"} & set(card):
        raise PodiumError(
            f"{files.folder}: {folder} is the only folder of images, and {len(in_both):,} of them would be in both the"
            " training and the test rows; download again, a folder may be missing; if this folder serves both, "
            + card.advise(f'train_images = "{folder}" and test_images = "{folder}"')
        )


def _notes_on_metric(metric: str, sources: Sources, wants: str) -> list[str]:
    built, task = METRICS[metric](), sources.task.name
    notes = [f"{metric} is a metric of {built.wants}, but the submission holds {wants}"] if built.wants != wants else []
    if task not in built.tasks:
        advice = sources.card.advise(f'metric = "{USUAL_METRICS[task, wants]}"')
        notes.append(f"{metric} is not defined for {sources.task.words}: {advice}, or another metric")
    return notes


def _notes_on_classes(classes: list[str], train_labels: set[str]) -> list[str]:
    unseen = sorted(set(classes) - train_labels)
    return [f"classes of the submission without a training image: {first_few(unseen)}"] if unseen else []


def _notes_on_images(train: pd.DataFrame, test: pd.DataFrame, files: Files, sample: Table | None) -> list[str]:
    train_images, test_images = set(train["image"]), set(test["image"])
    in_both = train_images & test_images
    unused = set(files.images) - train_images - test_images
    test_folders = {os.path.dirname(image) for image in test_images & set(files.images)}
    beside_test = {image for image in unused if os.path.dirname(image) in test_folders}
    notes = []
    if in_both:
        notes.append(f"{plural(len(in_both), 'image')} in both the training and the test rows")
    if beside_test:
        name = sample.path.name if sample else "the test table"
        images = plural(len(beside_test), "image")
        notes.append(f"{images} in the folder of the test images but in no row of {name}; is {name} complete?")
    if unused - beside_test:
        notes.append(f"{plural(len(unused - beside_test), 'image')} in neither the training nor the test rows")
    return [*notes, *note_unused(files, {file_of(image) for image in train_images | test_images})]


def _file_size(path: str) -> str:
    try:
        return str(os.stat(path).st_size)
    except OSError:  # a dangling link; reading the image reports it
        return "none"
