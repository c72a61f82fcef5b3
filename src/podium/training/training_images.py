"""The images of a run: which of them a fold learns from and is judged by, and what they teach.

`open_context` opens them once for a run; `of_fold` gives those that the model of one fold sees. Images have numbers
(`rows`): first those of the training table, then those from elsewhere that join them (the card's [[extra]]). Images
whose labels earlier runs guess (`pseudo`) have numbers, too, which only their random draws need.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.randomness import BOX, generator
from podium.basics.terminal import command_to_drop_bad, plural
from podium.competition.load import Competition
from podium.folds.folds import Folds
from podium.images.decode import Pixels
from podium.images.examples import Examples
from podium.images.extra_copies import usable_extra, usable_unlabelled
from podium.images.few_greys import refuse_few_greys
from podium.images.regions import WHOLE
from podium.images.store import Reader, Store
from podium.models.build import ModelSpec
from podium.options.recipe import Recipe
from podium.tasks.number_scale import fit_scale
from podium.tasks.scored_labels import OWN_LABELS, ScoredLabels
from podium.tasks.task import Targets, joined
from podium.training.augment import View
from podium.training.columns import columns_of_train
from podium.training.loader import ImageDataset
from podium.training.open_regions import open_regions
from podium.training.plan import Plan
from podium.training.series import as_run_sees, channels_of
from podium.training.soft_targets import Cleaned, SoftTargets

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingImages:
    competition: Competition
    store: Store
    folds: Folds  # of the training table; where labels are judged, those inside a fold (clean_labels.py)
    recipe: Recipe
    targets: Targets  # what the images teach; `scored_targets` score
    extra: pd.DataFrame  # id, target, image, weight: of the images from elsewhere
    unlabelled: pd.DataFrame  # id, image: of those without labels that --pseudo adds to the test images
    cleaned: Cleaned | None = None  # of one fold: see clean_labels.py

    def of_fold(self, fold: int) -> "TrainingImages":
        """Returns the images with the parts of them that this fold's model sees."""
        return replace(self, store=self.store.of_fold(fold))

    @property
    def sha256(self) -> str:
        """Returns the hash of the training images: of their ids and labels, and of their files."""
        files_digest = replace(self.store, adjacent=None).digest(
            self.store.examples(self.competition.train_in_files).first
        )
        return f"{self.competition.train_hash[:32]}{files_digest[:32]}"

    # --- which ---

    def training_rows(self, fold: int) -> Ints:
        rows = np.flatnonzero(self.folds.trains(fold))
        return rows if self.cleaned is None else np.setdiff1d(rows, self.cleaned.left_out)

    def some_training_rows(self, fold: int, count: int) -> Ints:
        rng = np.random.default_rng(self.recipe.seed)
        return rng.permutation(self.training_rows(fold))[:count]

    def held_out_rows(self, fold: int) -> Ints:
        return np.flatnonzero(self.folds.validates(fold))

    @property
    def extra_rows(self) -> Ints:
        return len(self.folds) + np.arange(len(self.extra))

    @cached_property
    def pseudo(self) -> pd.DataFrame:
        """Returns id, image and row of those that join the training images with the answers of runs (--pseudo)."""
        test, after_extra = self.competition.test[["id", "image"]], len(self.competition.test) + len(self.extra)
        tables = [
            test.assign(row=np.arange(len(test)))[self.readable_test],
            self.unlabelled[["id", "image"]].assign(row=after_extra + np.arange(len(self.unlabelled))),
        ]
        joining = pd.concat(tables, ignore_index=True)
        return joining.assign(row=joining["row"] + len(self.folds)) if self.recipe.joins_test_images else joining[:0]

    @property
    def readable_test(self) -> NDArray[np.bool_]:
        """Marks the test images that can be read."""
        if not len(self.competition.test):
            return np.zeros(0, np.bool_)
        return ~self.store.bad(self.store.examples(self.competition.test).first)

    def weights(self, rows: Ints) -> NDArray[np.float64]:
        """Returns how much images count: training images 1, extra ones what the card and --extra-weight say."""
        of_extra = self.recipe.weight_of_extra * self.extra["weight"].to_numpy(np.float64)
        return np.append(np.ones(len(self.folds)), of_extra)[rows]

    # --- what they teach ---

    def taught(self, rows: Ints) -> NDArray[Any]:
        """Returns what images teach: their targets, or rows of probabilities where some are softened."""
        labels = self.targets[rows]
        if self.cleaned is None or not len(self.cleaned.rows):
            return np.asarray(labels.taught)
        return SoftTargets(labels, self.cleaned.targets, self.cleaned.places_of(rows))[np.arange(len(rows))]

    def scored_targets(self, fold: int, rows: Ints) -> Targets:
        """Returns the targets that score what the fold's model predicts for these rows, which it was not taught."""
        labels, competition = self.scored_labels(fold), self.competition
        if not labels.unknown:
            return self.targets[rows]
        own = labels.of(competition.train["target"].iloc[rows])
        return competition.as_submitted(competition.task.encode(own, competition.classes))

    def scored_labels(self, fold: int) -> ScoredLabels:
        """Returns which labels score what the fold's model predicts; extra images teach it, too."""
        unknown, labels = self.competition.unknown, self.competition.train["target"].to_numpy()
        if unknown is None:
            return OWN_LABELS
        taught = {*labels[self.folds.trains(fold)], *self.extra["target"]}
        return ScoredLabels.after(taught, self.competition.classes, unknown.name)

    # --- what the tables say of them ---

    @property
    def column_count(self) -> int:
        """Returns how many numbers beside an image the model gets."""
        features = self.competition.features
        return len(features.sources) if features and self.recipe.joins_columns else 0

    def columns(self, rows: Ints) -> NDArray[np.float32] | None:
        """Returns these numbers for training images; of those that join them, nothing is known."""
        if not (count := self.column_count):
            return None
        columns, is_own = np.full((len(rows), count), np.nan, np.float32), rows < len(self.folds)
        columns[is_own] = columns_of_train(self.competition, self.competition.train["id"].iloc[rows[is_own]])
        return columns

    @cached_property
    def channels(self) -> tuple[int, ...]:
        """Returns which channels of images that are seen at once the model gets; none: each image alone."""
        return channels_of(self.store, self.competition.train)

    # --- as they are read ---

    def of_rows(self, rows: Ints, view: View) -> ImageDataset:
        """Returns the images of training: one of each row in an epoch, also if it has several boxes."""
        return self.drawn(self.competition.train.iloc[rows], rows, self.targets.taught[rows], view)

    def drawn(self, table: pd.DataFrame, rows: Ints, targets: Any, view: View) -> ImageDataset:
        """Returns the images of a table, id and image; `rows` are the keys of their random draws."""
        examples = self.store.examples(table)
        read, regions = self.store.reader(examples.positions), self.store.regions
        if regions is WHOLE:
            return ImageDataset(read, targets, view, rows)
        return DrawnBoxes(read, targets, view, rows, Draw(self.recipe.seed, examples))

    def shown(self, rows: Ints, view: View) -> ImageDataset:
        """Returns the images of prediction: all boxes of each row, whose predictions `examples` pools."""
        examples = self.examples(rows)
        owners = rows[examples.owners]
        return ImageDataset(self.store.reader(examples.positions), self.targets.taught[owners], view, owners)

    def examples(self, rows: Ints) -> Examples:
        return self.store.examples(self._table.iloc[rows])

    @cached_property
    def _table(self) -> pd.DataFrame:
        """The training images, then the extra ones."""
        train = self.competition.train
        return pd.concat([part[["id", "image"]] for part in (train, self.extra)]) if len(self.extra) else train


def complete_spec(images: TrainingImages, spec: ModelSpec, fold: int) -> ModelSpec:
    """Returns the spec with the task, the range of values and, for numbers, how the fold's training images vary."""
    task = images.competition.task
    if not task.are_labels:
        numbers = images.targets.values[images.training_rows(fold)]
        scales, curves = fit_scale(numbers, spec.target_scale)
        spec = replace(spec, scales=scales, curves=curves)
    spec = replace(spec, value_range=images.store.value_range, part=images.store.regions.part or None)
    if unknown := images.competition.unknown:
        unseen = tuple(sorted(images.scored_labels(fold).unseen))
        spec = replace(spec, unknown=unknown.name, unknown_share=unknown.share, unseen=unseen)
    return replace(spec, task=task.name)


# --- opening -----------------------------------------------------------------------------------------


def open_images(plan: Plan, keep: bool, leaves_out: bool = False) -> TrainingImages:
    """Opens the store of the plan's images, or builds it; refuses images that cannot be read, or leaves them out."""
    competition = plan.competition
    store = as_run_sees(open_regions(plan, keep), competition, plan.recipe.values())
    unreadable = store.bad(store.examples(competition.train).first)
    if not leaves_out:
        _refuse(unreadable, competition, store)
    refuse_few_greys(competition, store, store.examples(competition.train).first)
    uses_extra = plan.recipe.weight_of_extra and plan.unfinished_folds()
    extra = usable_extra(competition if uses_extra else replace(competition, extra=None))
    uses_unlabelled = plan.recipe.joins_test_images and plan.unfinished_folds()
    unlabelled = usable_unlabelled(competition if uses_unlabelled else replace(competition, unlabelled=None))
    added = [competition.task.encode(extra["target"], competition.classes)] if len(extra) else []
    targets = joined([competition.targets, *added])
    folds = plan.folds.without(unreadable) if unreadable.any() else plan.folds
    return TrainingImages(competition, store, folds, plan.recipe, targets, extra, unlabelled)


def _refuse(unreadable: NDArray[np.bool_], competition: Competition, store: Store) -> None:
    if unreadable.any():
        first = store.files[store.examples(competition.train).first[unreadable][0]]
        raise PodiumError(
            f"{plural(int(unreadable.sum()), 'training image')} cannot be read; leave them out with"
            f" {command_to_drop_bad(competition.slug)}, or replace them; the first is"
            f" {competition.folder / first.image} ({first.reason})"
        )


# --- images of which a run sees boxes ----------------------------------------------------------------


@dataclass(frozen=True)
class Draw:
    """Draws a box of an image for an epoch."""

    seed: int
    examples: Examples

    def __call__(self, read: Reader, index: int, epoch: int, row: int) -> Pixels:
        rng = generator(BOX, self.seed, epoch, row)
        return read(int(self.examples.starts[index] + rng.integers(self.examples.counts[index])))


class DrawnBoxes(ImageDataset):
    """Shows one box of each image in an epoch."""

    def __init__(
        self, read: Reader, targets: NDArray[np.int64], view: View, rows: NDArray[np.int64], draw: Draw
    ) -> None:
        super().__init__(read, targets, view, rows)
        self.draw = draw

    def pixels(self, epoch: int, index: int) -> Pixels:
        return self.draw(self.read, index, epoch, int(self.rows[index]))
