"""Reads a competition: ids, labels, classes, image paths, the metric, the format of a submission.

    podium data -c SLUG          prints what was understood

Reads data/raw/<slug>/ as Kaggle delivers it, the card data/competitions/<slug>.toml, which may replace any of it, and
the user's corrections of labels (corrections.py). Writes nothing.
"""

import hashlib
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import MissingFiles, PodiumError
from podium.basics.terminal import busy_with, command_for, first_few
from podium.competition.answer_form import AnswerForm, LabelListForm
from podium.competition.build.choose_metric import choose_metric, refuse_wrong_sign
from podium.competition.build.complete_card import Setting, settings_of
from podium.competition.build.corrections import Corrections, read_corrections
from podium.competition.build.guess_range import guess_range
from podium.competition.build.guess_submission import guess_submission, labels_of
from podium.competition.build.image_notes import note_on_possible_samples, notes_on_images
from podium.competition.build.merged_classes import merge_classes
from podium.competition.build.page_beside import suggestions
from podium.competition.build.read_rows import read_rows
from podium.competition.build.submission_format import SubmissionFormat
from podium.competition.build.unknown_class import UnknownClass
from podium.competition.card import Card, read_card
from podium.competition.containers.image_place import files_of
from podium.competition.decide.answer_groups import Answers, check_corrected_answers
from podium.competition.decide.features import Features
from podium.competition.decide.guess_layout import guess_layout
from podium.competition.decide.pairs import Pairs, read_pairs
from podium.competition.decide.read_with_extension import read_with_extension
from podium.competition.decide.tables import Tables
from podium.competition.find.composed_images import note_on_slices
from podium.competition.find.facts import Facts
from podium.competition.find.find_files import Files, find_files
from podium.competition.find.unsupported import unread_images
from podium.competition.said_notes import say_new_notes
from podium.competition.shared_columns import SharedColumns, read_shared_columns
from podium.competition.sums import check_sums
from podium.tasks.metrics import BUILT_IN
from podium.tasks.task import SEVERAL_LABELS, Targets, Task, labels_in

if TYPE_CHECKING:
    from podium.competition.extras.extra_images import ExtraImages
    from podium.competition.extras.further_targets import FurtherTargets

KAGGLE_INPUT = Path("/kaggle/input")


@dataclass(frozen=True, eq=False)  # data frames have no truth value
class Competition:
    slug: str
    folder: Path  # of the files
    train: pd.DataFrame  # id, target (text), image (relative to folder)
    test: pd.DataFrame  # id, image; in the submission's order
    classes: tuple[str, ...]
    metric: str
    submission_format: SubmissionFormat
    card: Card  # the user's settings
    groups: pd.Series | None  # of each training image, if the card names a group column; "" for no group
    notes: tuple[str, ...]
    corrections: Corrections  # `train` and `groups` are corrected already
    task: Task
    root: Path = field(kw_only=True)  # of the project: data/, runs/, submissions/
    answers: Answers | None = field(default=None, kw_only=True)  # None: a row of the submission is for one image
    pairs: Pairs | None = field(default=None, kw_only=True)  # if a row of the submission is for two images
    features: Features | None = field(default=None, kw_only=True)  # if the card names columns that hold them
    test_groups: pd.Series | None = field(default=None, kw_only=True)  # of each test image, if its table has the column
    further: "FurtherTargets | None" = field(default=None, kw_only=True)  # what is learned beside the answers
    extra: "ExtraImages | None" = field(default=None, kw_only=True)  # images from elsewhere, as the card says
    unlabelled: "ExtraImages | None" = field(default=None, kw_only=True)  # as the card says: in addition to test images
    unknown: UnknownClass | None = field(default=None, kw_only=True)  # the last class, if no training image has it
    validation: frozenset[str] = field(default=frozenset(), kw_only=True)  # ids of the only fold, if the card wants it
    # the share of each class in the votes of an image, by its id; None: not learned
    votes: pd.DataFrame | None = field(default=None, kw_only=True)
    # of the training table, by image id; None: not kept
    columns: pd.DataFrame | None = field(default=None, kw_only=True)
    settings: tuple[Setting, ...] = field(default=(), kw_only=True)  # all that were used, with their origins

    @property
    def title(self) -> str:
        return str(self.card.get("title", self.slug))

    @property
    def channel_count(self) -> int:
        """Returns how many channels an image has: three, or as many as the card names."""
        return len(self.card.get("channels", ())) or 3

    @property
    def copies(self) -> str:
        """Returns which images count as duplicates: "near" or "exact"."""
        return str(self.card.get("copies", "near"))

    @property
    def from_elsewhere(self) -> list[pd.DataFrame]:
        """Returns the tables of the images that the card names beside the competition's own."""
        return [images.rows for images in (self.extra, self.unlabelled) if images]

    @property
    def without_labels(self) -> int:
        """Returns how many images there are whose labels a run can only guess: test images, and others."""
        return len(self.test) + (len(self.unlabelled.rows) if self.unlabelled else 0)

    @property
    def answered_by(self) -> str:
        """Returns the command that answers the test images: "match" where these are pairs, "" where there are none."""
        return ("match" if self.pairs else "submit") if len(self.test) else ""

    @property
    def answer_ids(self) -> list[str]:
        """Returns the ids of the submission."""
        return self.answers.ids if self.answers else self.test["id"].tolist()

    def answers_of(self, probs: NDArray[Any]) -> Targets:
        """Returns what probabilities, or numbers, answer."""
        targets = self.as_submitted(Targets(self.task, probs, self.task.columns_of(self.classes)))
        return replace(targets, values=targets.answers(probs))

    @cached_property
    def label_of(self) -> dict[str, str]:
        """Returns the labels of the training images by id, as corrected."""
        return dict(zip(self.train["id"], self.train["target"], strict=True))

    @cached_property
    def targets(self) -> Targets:
        """Returns the targets of the training images."""
        targets = self.as_submitted(self.task.encode(self.train["target"], self.classes))
        if self.votes is None:
            return targets
        return targets.with_votes(self.votes.loc[self.train["id"], list(self.classes)].to_numpy())

    def as_submitted(self, targets: Targets) -> Targets:
        """Returns the targets for scores of the answers that the cells of a submission hold."""
        if targets.task is not SEVERAL_LABELS or self.submission_format.wants != "labels":
            return targets
        form = self.answer_form
        return replace(targets, may_be_blank=isinstance(form, LabelListForm) and form.may_be_blank)

    @cached_property
    def answer_form(self) -> AnswerForm:
        """Returns what the cells of the submission hold."""
        return self.submission_format.answer_form(self.task, self.classes, self.train["target"])

    @cached_property
    def shared_columns(self) -> SharedColumns:
        """Returns the columns that the training table and the test table share, by the ids of the answers."""
        return read_shared_columns(self.card, self.folder, self.answers, self.answer_ids)

    @property
    def train_in_files(self) -> pd.DataFrame:
        """Returns the training rows as in the competition's files, without corrections."""
        return self.corrections.train_in_files

    @property
    def recipe(self) -> dict[str, Any]:
        """The card's defaults for the options of a run; numbers and the shares of votes are not smoothed."""
        is_smoothed = self.task.are_labels and self.votes is None
        return {**({} if is_smoothed else {"smoothing": 0.0}), **self.card.get("recipe", {})}

    @cached_property
    def train_hash(self) -> str:
        """Returns the hash of the files: corrections have one of their own, so they make no run or fold invalid."""
        return self._hash(self.train_in_files, self.votes)

    @cached_property
    def test_hash(self) -> str:
        return self._hash(self.test)

    def _hash(self, rows: pd.DataFrame, votes: pd.DataFrame | None = None) -> str:
        """Returns a hash of ids, labels, file names and file sizes, not of pixels: 300,000 images take a second."""
        digest = hashlib.sha256("\0".join(sorted(self.classes)).encode())
        for row in rows.itertuples(index=False, name=None):
            sizes = "+".join(_file_size(f"{self.folder}/{file}") for file in files_of(row[-1]))
            digest.update("\0".join((*row, sizes, "\n")).encode())
        if votes is not None:
            digest.update(votes[sorted(self.classes)].to_csv().encode())
        return digest.hexdigest()


def files_folder(slug: str, root: Path) -> Path:
    """Returns where archives are unpacked whose own folder may not be written (kaggle/unpack_archives.py)."""
    return root / "data" / "prepared" / slug / "files"


def raw_folder(slug: str, root: Path) -> Path:
    """Returns the folder of the competition's files; on Kaggle's own machines it may be a mounted one."""
    if (unpacked := files_folder(slug, root)).is_dir():
        return unpacked
    folder = root / "data" / "raw" / slug
    if "KAGGLE_KERNEL_RUN_TYPE" in os.environ and not folder.exists():
        for mounted_folder in (KAGGLE_INPUT / slug, KAGGLE_INPUT / "competitions" / slug):
            if mounted_folder.exists():
                return mounted_folder
    return folder


@busy_with("reading the competition's files")
def load(
    slug: str, root: Path | str, corrections_file: Path | None = None, with_columns: bool = False, /, **settings: Any
) -> Competition:
    """Reads a competition, also `with_columns`; `settings` replace the card's, lines of a file join its corrections."""
    root, folder = Path(root), raw_folder(slug, Path(root))
    tables = Tables(Facts(read_card(slug, root).with_typed(settings), _find_competition_files(slug, folder)))
    reader = read_with_extension(tables.facts, tables.sample, with_columns)
    layout = guess_layout(tables, reader)
    task = layout.train.targets.task
    rows = merge_classes(layout.card, task, read_rows(tables, layout, reader, with_columns), tables.sample)
    labels = labels_of(layout, rows, tables.sample)
    submission_format, classes = guess_submission(tables.sample, labels)
    corrections = read_corrections(slug, root, rows.train, labels.taught(classes), task).with_file(corrections_file)
    train, groups = _apply(corrections, rows.groups, rows.answers)
    metric = choose_metric(labels, submission_format, classes, train["target"], folder)
    card, on_values = guess_range(metric.card if rows.features else metric.card.without("features"), folder, rows.train)
    card, on_slices = note_on_slices(card, rows.train, rows.test, tables.facts.files)
    extra = _read_extra(card, root, folder, task, labels.taught(classes))
    unlabelled = _read_unlabelled(card, root, folder)
    notes = (
        *(*tables.notes, *layout.notes, *rows.notes, *note_on_possible_samples(tables)),
        *(*metric.notes, *submission_format.notes, *on_values, *on_slices),
        *(*_notes_on_classes(task, labels.taught(classes), labels_in(task, train["target"])), *labels.notes),
        *(*notes_on_images(rows.train, rows.test, tables.facts.files, tables.sample), *corrections.note()),
        *(*(extra.notes if extra else ()), *suggestions(card, tables.facts.files, metric.name, groups is not None)),
    )
    competition = Competition(
        slug=slug,
        root=root,
        folder=folder,
        train=train,
        test=rows.test,
        classes=tuple(classes),
        metric=metric.name,
        submission_format=submission_format,
        card=card,
        groups=groups,
        notes=tuple(dict.fromkeys(notes)),
        corrections=corrections,
        task=task,
        answers=rows.answers,
        pairs=read_pairs(tables.pairs),
        features=rows.features,
        test_groups=rows.test_groups,
        further=rows.further,
        extra=extra,
        unlabelled=unlabelled,
        unknown=labels.unknown,
        votes=rows.votes,
        validation=rows.validation,
        columns=rows.columns,
        settings=settings_of(card, tables, layout, labels, submission_format, metric),
    )
    check_sums(card, competition.classes, competition.targets, train["id"].tolist())
    return _with_checked_metric(competition)


def _with_checked_metric(competition: Competition) -> Competition:
    if competition.metric not in BUILT_IN:  # the user's own
        targets, count = competition.targets, len(competition.classes)
        refuse_wrong_sign(competition.metric, competition.card, targets, count)
    return competition


def load_and_report(
    slug: str, root: Path, corrections_file: Path | None = None, with_columns: bool = False, /, **settings: Any
) -> Competition:
    """Loads a competition and prints its notes that are new."""
    competition = load(slug, root, corrections_file, with_columns, **settings)
    say_new_notes(slug, root, competition.notes)
    return competition


def _find_competition_files(slug: str, folder: Path) -> Files:
    command = command_for("data", slug)
    if not folder.is_dir():
        others = sorted(path.name for path in folder.parent.glob("*") if path.is_dir())
        hint = f" (there is data of {first_few(others)}: name one with -c)" if others else ""
        raise PodiumError(f"{folder} does not exist{hint}; get the competition's files with: {command}")
    files = find_files(folder)
    if not files.images and not files.containers and (unread := unread_images(files)):
        raise MissingFiles(f"{folder}: no images that can be read; {unread}")
    if not files.images and not files.containers:
        ignored = "".join(f" ({note})" for note in files.notes)
        raise MissingFiles(
            f"{folder}: no images below it{ignored}; put the competition's files in it, or its archives, and run:"
            f" {command}"
        )
    return files


def _apply(
    corrections: Corrections, groups: "pd.Series[str] | None", answers: Answers | None
) -> "tuple[pd.DataFrame, pd.Series[str] | None]":
    """Returns the corrected training rows and their groups."""
    train, groups = corrections.apply(groups)
    if answers and corrections.sha256:
        check_corrected_answers(answers, train, corrections.path)
    return train, groups


def _read_extra(card: Card, root: Path, folder: Path, task: Task, classes: list[str]) -> "ExtraImages | None":
    if not card.get("extra"):
        return None
    from podium.competition.extras.extra_images import read_extra

    return read_extra(card, root, folder, task, classes)


def _read_unlabelled(card: Card, root: Path, folder: Path) -> "ExtraImages | None":
    if not card.get("unlabelled"):
        return None
    from podium.competition.extras.extra_images import read_unlabelled

    return read_unlabelled(card, root, folder)


def _notes_on_classes(task: Task, classes: list[str], train_labels: set[str]) -> list[str]:
    unseen = sorted(set(classes) - train_labels) if task.are_labels else []
    return [f"classes of the submission without a training image: {first_few(unseen)}"] if unseen else []


def _file_size(path: str) -> str:
    try:
        return str(os.stat(path).st_size)
    except OSError:  # a dangling link; reading the image reports it
        return "none"
