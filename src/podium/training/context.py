"""The context of a run: its plan, and what all folds share while they train (device, precision, processes, images).

`train` and `bench` open it in the same way.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from podium.competition.further_targets import FurtherTargets
from podium.competition.load import Competition
from podium.disk import sha256
from podium.errors import PodiumError
from podium.folds.folds import Folds
from podium.images.examples import Examples
from podium.images.extra_copies import usable_extra
from podium.images.few_greys import refuse_few_greys
from podium.images.regions import WHOLE
from podium.images.store import Store
from podium.machine import Machine
from podium.models.build import ModelSpec
from podium.models.device import pick_device, pick_precision, prepare_device
from podium.moves.move import Shown
from podium.recipe import Recipe
from podium.saved_runs.epoch_record import EpochRecord
from podium.saved_runs.fold_names import seed_offset
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.run_folder import Run, discarded_if_failed, lock_folds
from podium.saved_runs.trained_with import keep_options
from podium.tasks.scored_labels import OWN_LABELS, ScoredLabels
from podium.tasks.task import Targets, joined
from podium.terminal import command_for, command_to_drop_bad, plural
from podium.tracking.tracking import Tracking
from podium.training.augment import View
from podium.training.box_images import Draw, DrawnBoxes
from podium.training.epoch_images import WithAdded, count_of
from podium.training.loader import BatchSampler, ImageDataset, pick_workers
from podium.training.open_regions import open_regions
from podium.training.plan import Plan
from podium.training.processes import Processes, join_processes
from podium.training.soft_targets import Cleaned, SoftTargets


@dataclass(frozen=True)
class Context:
    plan: Plan
    store: Store
    folds: Folds  # of the plan; where labels are judged, those inside a fold (clean_labels.py)
    target_of_image: Targets  # what the training images teach, then the extra ones; `scored_targets` score
    device: torch.device
    precision: torch.dtype
    processes: Processes
    extra: pd.DataFrame  # id, target, image, weight: of the images from elsewhere that join the training images; where
    # rows number both, they stand after the training images
    tracking: Tracking
    cleaned: Cleaned | None = None  # of one fold: see clean_labels.py

    @property
    def machine(self) -> Machine:
        return self.plan.request.machine

    @property
    def competition(self) -> Competition:
        return self.plan.competition

    @property
    def run(self) -> Run:
        return self.plan.run

    @property
    def recipe(self) -> Recipe:
        return self.plan.recipe

    @property
    def workers(self) -> int:
        return pick_workers(self.machine.workers, self.device)

    @property
    def data_sha256(self) -> str:
        """Returns the hash of the training images: of their ids and labels, and of their files."""
        competition, store = self.competition, self.store
        files_digest = store.digest(store.examples(competition.train_in_files).first)
        return f"{competition.train_hash[:32]}{files_digest[:32]}"

    @property
    def identity(self) -> dict[str, Any]:
        """Returns what must stay the same when the run is resumed, with the images and their boxes."""
        boxes = self.store.regions.sha256
        regions = {"region_sha256": boxes} if boxes else {}
        return {**self.plan.identity(), "data_sha256": self.data_sha256, **regions}

    def of_fold(self, fold: int) -> "Context":
        """Returns the context with the parts of the images that this fold's model sees, and with its seed."""
        recipe = self.recipe.but(seed=self.recipe.seed + seed_offset(fold))
        return replace(self, store=self.store.of_fold(fold)).with_recipe(recipe)

    def with_recipe(self, recipe: Recipe) -> "Context":
        return replace(self, plan=replace(self.plan, recipe=recipe))

    def training_rows(self, fold: int) -> NDArray[np.int64]:
        rows = np.flatnonzero(self.folds.trains(fold))
        return rows if self.cleaned is None else np.setdiff1d(rows, self.cleaned.left_out)

    def some_training_rows(self, fold: int, count: int) -> NDArray[np.int64]:
        rng = np.random.default_rng(self.recipe.seed)
        return rng.permutation(self.training_rows(fold))[:count]

    @property
    def extra_rows(self) -> NDArray[np.int64]:
        return len(self.folds) + np.arange(len(self.extra))

    def weights(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns how much images count: training images 1, extra ones what the card and --extra-weight say."""
        of_extra = self.recipe.weight_of_extra * self.extra["weight"].to_numpy(np.float64)
        return np.append(np.ones(len(self.folds)), of_extra)[rows]

    def held_out_rows(self, fold: int) -> NDArray[np.int64]:
        return np.flatnonzero(self.folds.validates(fold))

    @property
    def further(self) -> FurtherTargets | None:
        return self.plan.further

    def taught(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Returns what images teach: their targets, or rows of probabilities where some are softened."""
        labels = self.target_of_image[rows]
        if self.cleaned is None or not len(self.cleaned.rows):
            return np.asarray(labels.taught)
        return SoftTargets(labels, self.cleaned.targets, self.cleaned.places_of(rows))[np.arange(len(rows))]

    def images(self, rows: NDArray[np.int64], view: View) -> ImageDataset:
        """Returns the images of training: one of each row in an epoch, also if it has several boxes."""
        return self.drawn(self.competition.train.iloc[rows], rows, self.target_of_image.taught[rows], view)

    def drawn(self, table: pd.DataFrame, rows: NDArray[np.int64], targets: Any, view: View) -> ImageDataset:
        """Returns the images of a table, id and image; `rows` are the keys of their random draws."""
        examples = self.store.examples(table)
        read, regions = self.store.reader(examples.positions), self.store.regions
        if regions is WHOLE:
            return ImageDataset(read, targets, view, rows)
        return DrawnBoxes(read, targets, view, rows, Draw(self.recipe.seed, examples))

    def shown_images(self, rows: NDArray[np.int64], view: View) -> ImageDataset:
        """Returns the images of prediction: all boxes of each row, whose predictions `examples` pools."""
        examples = self.examples(rows)
        owners = rows[examples.owners]
        return ImageDataset(self.store.reader(examples.positions), self.target_of_image.taught[owners], view, owners)

    def examples(self, rows: NDArray[np.int64]) -> Examples:
        return self.store.examples(self._images_of_rows.iloc[rows])

    @cached_property
    def _images_of_rows(self) -> pd.DataFrame:
        train = self.competition.train
        return pd.concat([part[["id", "image"]] for part in (train, self.extra)]) if len(self.extra) else train

    @cached_property
    def pseudo_images(self) -> NDArray[np.int64]:
        """Returns the numbers of the test images that join the training images of each fold (--pseudo)."""
        if not self.recipe.joins_test_images:
            return np.zeros(0, np.int64)
        return np.flatnonzero(~self.store.bad(self.store.examples(self.competition.test).first))

    def batch_sampler(self, fold: int, confidence: NDArray[np.float64] | None = None) -> BatchSampler:
        """Returns the batches. Test images (--pseudo) and extra ones join the training images, in this order.

        There are at most as many test images in them as training images; the surer their labels, the more often.
        """
        recipe, images = self.recipe, _epoch_images(self, self.training_rows(fold), confidence)
        return BatchSampler(images, recipe.batch_size, recipe.epochs, (recipe.seed, fold), self.processes)

    def keep_start(self, source: str) -> None:
        """Keeps what the run starts from, once a model is built: before that, the command may still be refused."""
        self.run.keep_source(source)
        self.competition.corrections.save()

    def save_history(self, fold: int, history: Sequence[EpochRecord]) -> None:
        """Writes metrics.jsonl, and tells those who follow the run."""
        self.run.write_history(fold, history)
        self.tracking.follow(fold, history)

    def save_predictions(self, fold: int, probs: NDArray[np.float32], rate_share: float = 1.0) -> None:
        """Writes oof.npz, the last file of a fold: it marks the fold as finished."""
        folder = self.run.fold_folder(fold)
        weights_hash = sha256(folder / "model.safetensors")
        keep_options(self.run, fold, weights_hash, rate_share)
        _out_of_fold(self, fold, probs, weights_hash).save(folder / "oof.npz")


def _out_of_fold(context: Context, fold: int, probs: NDArray[np.float32], weights_hash: str) -> Predictions:
    """Returns a fold's predictions for the images that it holds out, with the targets that score them."""
    rows, competition = context.held_out_rows(fold), context.competition
    ids = competition.train["id"].to_numpy(dtype=str)[rows]
    targets, labels = scored_targets(context, fold, rows), _scored_labels(context, fold)
    return Predictions(ids, probs, targets, competition.classes, weights_hash, scored=labels)


def scored_targets(context: Context, fold: int, rows: NDArray[np.int64]) -> Targets:
    """Returns the targets that score what the fold's model predicts for these rows, which it was not taught."""
    labels, competition = _scored_labels(context, fold), context.competition
    if not labels.unknown:
        return context.target_of_image[rows]
    own = labels.of(competition.train["target"].iloc[rows])
    return competition.as_submitted(competition.task.encode(own, competition.classes))


def _scored_labels(context: Context, fold: int) -> ScoredLabels:
    """Returns which labels score what the fold's model predicts; extra images teach it, too."""
    unknown, labels = context.competition.unknown, context.competition.train["target"].to_numpy()
    if unknown is None:
        return OWN_LABELS
    taught = {*labels[context.folds.trains(fold)], *context.extra["target"]}
    return ScoredLabels.after(taught, context.competition.classes, unknown.name)


def complete_spec(context: Context, spec: ModelSpec, fold: int) -> ModelSpec:
    """Returns the spec with the task, the range of values and, for numbers, how the fold's training images vary."""
    task, scales = context.competition.task, tuple[tuple[float, float], ...]()
    if not task.are_labels:
        numbers = context.target_of_image.values[context.training_rows(fold)]
        means, deviations = np.nanmean(numbers, 0), np.nanstd(numbers, 0)
        deviations = np.where(deviations > 0, deviations, 1.0)  # a column that never varies
        scales = tuple(zip(means.tolist(), deviations.tolist(), strict=True))
    spec = replace(spec, value_range=context.store.value_range, part=context.store.regions.part or None)
    if unknown := context.competition.unknown:
        unseen = tuple(sorted(_scored_labels(context, fold).unseen))
        spec = replace(spec, unknown=unknown.name, unknown_share=unknown.share, unseen=unseen)
    return replace(spec, task=task.name, scales=scales)


def _epoch_images(context: Context, rows: NDArray[np.int64], confidence: NDArray[np.float64] | None) -> Shown:
    """Returns which images an epoch shows, and how often."""
    recipe = context.recipe
    own: Shown = len(rows)
    for move in recipe.moves:
        own = move.shown(own, context.target_of_image.values[rows])
    sure = np.ones(len(context.pseudo_images)) if confidence is None else confidence
    if not len(sure) and not len(context.extra):
        return own
    shown = min(len(sure), count_of(own)) / max(sure.sum(), 1e-9)
    of_extra = recipe.weight_of_extra * context.extra["weight"].to_numpy(np.float64)
    return WithAdded(own, np.concatenate([sure * shown, of_extra]))


@contextmanager
def open_context(plan: Plan) -> Iterator[Context]:
    """Picks the device, joins the processes, locks the run and opens the pixel store."""
    machine = plan.request.machine
    device = pick_device(machine.device)
    prepare_device(device, machine.deterministic, plan.recorded_threads)
    recipe, competition = plan.recipe, plan.competition
    precision = pick_precision(recipe.precision, device)
    with (
        join_processes(device) as processes,
        discarded_if_failed(plan.run) if processes.is_first else nullcontext(),
        lock_folds(plan.run, plan.unfinished_folds()) if processes.is_first else nullcontext(),
        closing(Tracking(plan.run, machine.trackers)) as tracking,
    ):
        with processes.first_then_others():  # the first builds the store, the others find it
            store = open_regions(plan, machine.keep_pixels)
            _refuse_unreadable(competition, store)
            refuse_few_greys(competition, store, store.examples(competition.train).first)
            extra = _extra_to_learn(plan)
        yield Context(
            plan=plan,
            store=store,
            folds=plan.folds,
            target_of_image=_with_extra(competition, extra),
            device=device,
            precision=precision,
            processes=processes,
            extra=extra,
            tracking=tracking,
        )


def _extra_to_learn(plan: Plan) -> pd.DataFrame:
    """Returns the extra images that this run learns from."""
    uses_extra = plan.recipe.weight_of_extra and plan.unfinished_folds()
    return usable_extra(plan.competition if uses_extra else replace(plan.competition, extra=None), plan.root)


def _with_extra(competition: Competition, extra: pd.DataFrame) -> Targets:
    """Returns the targets of the training images, then those of the extra ones."""
    added = [competition.task.encode(extra["target"], competition.classes)] if len(extra) else []
    return joined([competition.targets, *added])


def _refuse_unreadable(competition: Competition, store: Store) -> None:
    positions = store.examples(competition.train).first
    unreadable = store.bad(positions)
    if unreadable.any():
        first = store.files[positions[unreadable][0]]
        raise PodiumError(
            f"{plural(int(unreadable.sum()), 'training image')} cannot be read; the first is"
            f" {competition.folder / first.image} ({first.reason}); {command_for('audit', competition.slug)} lists them"
            f" all: replace them, or leave them out with {command_to_drop_bad(competition.slug)}"
        )
