"""The context of a run: its plan, its images, and what computes them (device, precision, processes).

`train` and `bench` open it in the same way.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from podium.basics.disk import sha256
from podium.basics.machine import Machine
from podium.competition.extras.further_targets import FurtherTargets
from podium.competition.load import Competition
from podium.models.device import pick_device, pick_precision, prepare_device
from podium.options.moves.move import Shown
from podium.options.recipe import Recipe
from podium.saved_runs.epoch_record import EpochRecord
from podium.saved_runs.fold_names import seed_offset
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.run_folder import Run, discarded_if_failed, lock_folds
from podium.saved_runs.trained_with import keep_options
from podium.tasks.pool import Answers
from podium.training.epoch_images import WithAdded, count_of
from podium.training.loader import BatchSampler, pick_workers
from podium.training.plan import Plan
from podium.training.processes import Processes, join_processes
from podium.training.tracking.tracking import Tracking
from podium.training.training_images import TrainingImages, open_images


@dataclass(frozen=True)
class Context:
    plan: Plan
    images: TrainingImages
    device: torch.device
    precision: torch.dtype
    processes: Processes
    tracking: Tracking

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
    def further(self) -> FurtherTargets | None:
        return self.plan.further

    @property
    def workers(self) -> int:
        return pick_workers(self.machine.workers, self.device)

    @property
    def identity(self) -> dict[str, Any]:
        """Returns what must stay the same when the run is resumed, with the images and their boxes."""
        boxes = self.images.store.regions.sha256
        regions = {"region_sha256": boxes} if boxes else {}
        adjacent = self.images.store.adjacent
        series = {"series_sha256": adjacent.sha256} if adjacent else {}
        return {**self.plan.identity(), "data_sha256": self.images.sha256, **regions, **series}

    def of_fold(self, fold: int) -> "Context":
        """Returns the context with the parts of the images that this fold's model sees, and with its seed."""
        own = replace(self, images=self.images.of_fold(fold))
        return own.with_recipe(self.recipe.but(seed=self.recipe.seed + seed_offset(fold)))

    def with_plan(self, plan: Plan) -> "Context":
        return replace(self, plan=plan, images=replace(self.images, recipe=plan.recipe))

    def with_images(self, **changes: Any) -> "Context":
        """Returns the context with other facts of its images."""
        return replace(self, images=replace(self.images, **changes))

    def with_recipe(self, recipe: Recipe) -> "Context":
        return self.with_plan(replace(self.plan, recipe=recipe))

    def batch_sampler(self, fold: int, confidence: NDArray[np.float64] | None = None) -> BatchSampler:
        """Returns the batches. Images of --pseudo and extra ones join the training images, in this order.

        There are at most as many of --pseudo in them as training images; the surer their labels, the more often.
        """
        recipe, shown = self.recipe, _shown_in_epoch(self.images, self.images.training_rows(fold), confidence)
        return BatchSampler(shown, recipe.batch_size, recipe.epochs, (recipe.seed, fold), self.processes)

    def save_start(self, source: str) -> None:
        """Keeps what the run starts from, once a model is built: before that, the command may still be refused."""
        self.run.keep_source(source)
        self.competition.corrections.save()

    def save_history(self, fold: int, history: Sequence[EpochRecord]) -> None:
        """Writes metrics.jsonl, and tells those who follow the run."""
        self.run.write_history(fold, history)
        self.tracking.follow(fold, history)

    def save_predictions(self, fold: int, answers: Answers, rate_share: float = 1.0) -> None:
        """Writes oof.npz, the last file of a fold: it marks the fold as finished."""
        folder = self.run.fold_folder(fold)
        weights_hash = sha256(folder / "model.safetensors")
        keep_options(self.run, fold, weights_hash, rate_share)
        images, competition = self.images, self.competition
        rows = images.held_out_rows(fold)
        ids = competition.train["id"].to_numpy(dtype=str)[rows]
        targets, labels = images.scored_targets(fold, rows), images.scored_labels(fold)
        probs, pooled = answers
        held_out = Predictions(ids, probs, targets, competition.classes, weights_hash, scored=labels, pooled=pooled)
        held_out.save(folder / "oof.npz")


def _shown_in_epoch(images: TrainingImages, rows: NDArray[np.int64], confidence: NDArray[np.float64] | None) -> Shown:
    """Returns which images an epoch shows, and how often."""
    own: Shown = len(rows)
    for move in images.recipe.moves:
        own = move.shown(own, images.targets.values[rows])
    sure = np.ones(len(images.pseudo)) if confidence is None else confidence
    if not len(sure) and not len(images.extra):
        return own
    shown = min(len(sure), count_of(own)) / max(sure.sum(), 1e-9)
    return WithAdded(own, np.concatenate([sure * shown, images.weights(images.extra_rows)]))


@contextmanager
def open_context(plan: Plan, leaves_out_unreadable: bool = False) -> Iterator[Context]:
    """Picks the device, joins the processes, locks the run and opens its images."""
    machine = plan.request.machine
    device = pick_device(machine.device)
    prepare_device(device, machine.deterministic, plan.recorded_threads)
    precision = pick_precision(plan.recipe.precision, device)
    with (
        join_processes(device) as processes,
        discarded_if_failed(plan.run) if processes.is_first else nullcontext(),
        lock_folds(plan.run, plan.unfinished_folds()) if processes.is_first else nullcontext(),
        closing(Tracking(plan.run, machine.trackers)) as tracking,
    ):
        with processes.first_then_others():  # the first builds the store, the others find it
            images = open_images(plan, machine.keep_pixels, leaves_out_unreadable)
        yield Context(plan, images, device, precision, processes, tracking)
