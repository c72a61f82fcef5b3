"""Pretrains a model on all images of a competition, without labels: training, test, [[extra]] and [[unlabelled]] ones.

    podium pretrain --model cpvt_nano [-c SLUG] [--epochs 100] [--name NAME]
    podium train --model cpvt_nano --weights dino-cpvt_nano

Reads the pixel store. Writes runs/<slug>/<name>/, see pretraining_folder.py. The same command resumes, on a CPU with
the same result to the bit.
"""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from podium.basics.errors import PodiumError
from podium.basics.image_size import shorter_side
from podium.basics.randomness import ORDER, generator
from podium.basics.terminal import command_for, plural, progress_bar, say
from podium.competition.extras.extra_images import ExtraImages
from podium.folds.split import strata_of
from podium.images.decode import Pixels
from podium.images.few_greys import refuse_few_greys
from podium.images.store import Store, open_store, stored_side
from podium.models.catalogue import licence_of
from podium.models.device import (
    autocast,
    copied_ahead,
    device_name,
    gpu_peak_mb,
    pick_device,
    pick_precision,
    precision_name,
    prepare_device,
)
from podium.models.hardware_errors import explain_hardware_errors
from podium.models.model_file import save_model
from podium.saved_runs.checkpoint import CheckpointWriter, checkpoints, restore_newest
from podium.saved_runs.made_from import LICENCE
from podium.tasks.task import ONE_LABEL
from podium.training.augment import TestView
from podium.training.learner import Diverged
from podium.training.loader import ImageDataset, batches_in_order, load_batches, pick_workers
from podium.training.stop_signals import stop_signals
from podium_annex.explain.attention import class_attention
from podium_annex.explain.draw_pictures import draw_maps
from podium_annex.pretraining.crops import MultiCropView
from podium_annex.pretraining.pretraining_folder import PretrainingEpoch
from podium_annex.pretraining.pretraining_learner import DinoLearner
from podium_annex.pretraining.pretraining_plan import PretrainingPlan

MOST_NEIGHBOURS = 2_000  # images that the report on the features takes
DRAWN_IMAGES = 6


@dataclass(frozen=True)
class LoadedImages:
    """The images of a competition that can be read, by their position in the store."""

    store: Store
    readable: NDArray[np.int64]
    labelled: NDArray[np.int64]  # training images for the report
    labels: Tensor  # of these
    classes: int
    workers: int

    def dataset(self, positions: NDArray[np.int64], view: MultiCropView | TestView) -> ImageDataset:
        no_targets = np.zeros(len(positions), np.int64)
        return ImageDataset(self.store.reader(positions), no_targets, view, positions)


def pretrain(plan: PretrainingPlan) -> Path:
    """Pretrains until the schedule ends, or until a signal stops it; returns the path of the weights."""
    machine, folder, recipe = plan.request.machine, plan.folder, plan.recipe
    device = pick_device(machine.device)
    prepare_device(device, machine.deterministic, folder.recorded_threads)
    precision = pick_precision(recipe.precision, device)
    with folder.lock(), explain_hardware_errors(recipe.batch_size):
        pool = open_pool(plan, device)
        identity = {**plan.identity(), "images_sha256": pool.store.digest(pool.readable)}
        folder.check_same(identity)
        if folder.is_finished:
            say(f"podium: {folder.path} was pretrained already; nothing has changed")
            return folder.backbone
        learner = DinoLearner(plan, len(pool.readable), device, precision)
        identity["weights_source"] = learner.spec.source
        licence = licence_of(recipe.model) if recipe.weights == "pretrained" else None
        facts = {"images": len(pool.readable), "device": device_name(device), "computed_in": precision_name(precision)}
        facts["threads"] = torch.get_num_threads()
        if sources := [source for images in _named_in_card(plan) for source in images.as_json(images.rows)]:
            facts["extra"] = sources  # as of a run: their licences bind what learns from it
        folder.begin(identity, {**facts, "local_size": learner.sizes.small, **({LICENCE: licence} if licence else {})})
        announce(plan, pool, learner)
        run_schedule(plan, pool, learner)
    say(f"podium: wrote {folder.path}")
    flags = {"model": recipe.model, "weights": folder.path.name}
    say(f"next: {command_for('train', plan.competition.slug, **flags)}")
    return folder.backbone


def _named_in_card(plan: PretrainingPlan) -> list[ExtraImages]:
    named = (plan.competition.extra, plan.competition.unlabelled)
    return [images for images in named if images]


def open_pool(plan: PretrainingPlan, device: torch.device) -> LoadedImages:
    """Opens the store; leaves out images that cannot be read."""
    competition, machine = plan.competition, plan.request.machine
    if competition.channel_count != 3:
        raise PodiumError(
            f"{competition.card.path}: podium pretrain knows images of three channels only; train instead"
        )
    if missing := [problem for images in _named_in_card(plan) for problem in images.missing]:
        raise PodiumError(missing[0])
    store = open_store(competition, stored_side(shorter_side(plan.recipe.image_size)), machine.keep_pixels)
    positions = np.arange(len(store.names))
    is_bad = store.bad(positions)
    if is_bad.any():
        say(f"podium: warning: {plural(int(is_bad.sum()), 'image')} cannot be read; they are left out")
    if (~is_bad).sum() < 2:
        raise PodiumError(f"{competition.folder}: fewer than two images can be read; get the files again")
    refuse_few_greys(competition, store, positions)
    order = generator(ORDER, 0).permutation(len(competition.train))
    in_store = store.positions(competition.train["image"])
    rows = [row for row in order if not is_bad[in_store[row]]][:MOST_NEIGHBOURS]
    strata, _ = strata_of(list(competition.train["target"]), competition.task)  # of numbers: their ranges
    targets = [strata[row] for row in rows]
    names = competition.classes if competition.task is ONE_LABEL else sorted(set(targets))  # a set of labels is a class
    return LoadedImages(
        store=store,
        readable=positions[~is_bad],
        labelled=in_store[rows],
        labels=torch.from_numpy(ONE_LABEL.encode(targets, names).values).to(device),
        classes=len(names),
        workers=pick_workers(machine.workers, device),
    )


def announce(plan: PretrainingPlan, pool: LoadedImages, learner: DinoLearner) -> None:
    recipe, sizes = plan.recipe, learner.sizes
    where = f"{precision_name(learner.precision)}, on {device_name(learner.device)}"
    say(f"podium: DINO of {recipe.model} on {plural(len(pool.readable), 'image')} without labels, {where}")
    say(
        f"  2 crops of {sizes.large} px and {sizes.small_crops} of {sizes.small} px, {len(learner.centre):,} outputs,"
        f" {plural(recipe.epochs, 'epoch')} in batches of {learner.sampler.batch_size}, lr {recipe.lr:g}"
    )
    say("  k-NN accuracy: of the features, with the training labels, for this report only")


def run_schedule(plan: PretrainingPlan, pool: LoadedImages, learner: DinoLearner) -> None:
    folder, progress, machine = plan.folder.path, learner.progress, plan.request.machine
    if restore_newest(folder, learner.restore):
        say(f"podium: resumes from step {progress.step:,} of {progress.total_steps:,}")
    learner.sampler.start = progress.step
    images = pool.dataset(pool.readable, MultiCropView(plan.recipe, learner.spec, learner.sizes))
    checkpoint = CheckpointWriter(folder)
    with (
        explain_divergence(checkpoint, learner),
        stop_signals() as signals,
        checkpoint.finish_writing(),
        progress_bar(total=progress.total_steps, initial=progress.step, desc="pretrain", unit="step") as bar,
        closing(copied_ahead(load_batches(images, learner.sampler, pool.workers), learner.device)) as batches,
    ):
        started = time.monotonic()
        for rows, _ in batches:
            learner.step(rows)
            bar.update()

            now, stop = time.monotonic(), signals.stop_requested
            is_epoch_end = progress.step % learner.sampler.per_epoch == 0
            if stop or is_epoch_end or now - started > machine.save_every:
                progress.seconds += now - started
                if is_epoch_end:
                    close_epoch(plan, pool, learner)
                checkpoint.save(progress.step, *learner.state())
                started = time.monotonic()
            if stop:
                checkpoint.wait()
                raise KeyboardInterrupt(
                    f"stopped after step {progress.step:,} of {progress.total_steps:,}; all is saved"
                )
    finish(plan, pool, learner)
    checkpoint.delete_all()


def close_epoch(plan: PretrainingPlan, pool: LoadedImages, learner: DinoLearner) -> None:
    """Adds a line to metrics.jsonl, and prints it."""
    progress, sums, per_epoch = learner.progress, learner.progress.sums, learner.sampler.per_epoch
    most = float(np.log(len(sums.probs)))
    record = PretrainingEpoch(
        epoch=progress.step // per_epoch,
        step=progress.step,
        lr=learner.learning_rate,
        loss=sums.loss.item() / per_epoch,
        teacher_entropy=torch.special.entr(sums.probs / per_epoch).sum().item() / most,
        image_entropy=sums.image_entropy.item() / per_epoch / most,
        knn_accuracy=knn_accuracy(compute_features(pool, learner), pool.labels, pool.classes),
        images_per_s=per_epoch * learner.sampler.batch_size / max(progress.seconds, 1e-9),
        seconds=progress.seconds,
        gpu_mb=gpu_peak_mb(learner.device),
    )
    progress.history.append(record)
    sums.clear()
    progress.seconds = 0.0
    plan.folder.write_history(progress.history)
    say(f"  epoch {record.epoch}/{plan.recipe.epochs}  {record.text()}")


@torch.inference_mode()
def compute_features(pool: LoadedImages, learner: DinoLearner) -> Tensor:
    """Returns the teacher's features of the labelled images, as prediction would see them."""
    backbone = learner.teacher.backbone.eval()
    images = pool.dataset(pool.labelled, TestView(learner.spec))
    features = []
    for batch, _ in load_batches(images, batches_in_order(len(pool.labelled), 128), pool.workers):
        with autocast(learner.device, learner.precision):
            features.append(backbone(learner.normalise(batch)).float())
    return torch.cat(features)


def finish(plan: PretrainingPlan, pool: LoadedImages, learner: DinoLearner) -> None:
    """Draws the attention, and writes the weights last: they mark the pretraining as finished."""
    view = TestView(learner.spec)
    read = pool.store.reader(pool.labelled[:DRAWN_IMAGES])
    images: list[Pixels] = [view(read(number)) for number in range(min(DRAWN_IMAGES, len(pool.labelled)))]
    inputs = learner.normalise(torch.from_numpy(np.stack(images)))
    try:
        attention = class_attention(learner.teacher.backbone, inputs)
    except PodiumError as problem:
        say(f"podium: there is no attention.png: {problem}")
    else:
        title = f"{plan.recipe.model}: attention of the class token to the patches, last layer"
        draw_maps(plan.folder.path / "attention.png", images, attention, title)
    save_model(plan.folder.backbone, learner.teacher.backbone, learner.spec)


@contextmanager
def explain_divergence(checkpoint: CheckpointWriter, learner: DinoLearner) -> Iterator[None]:
    try:
        yield
    except Diverged as problem:
        checkpoint.wait()
        saved = checkpoints(checkpoint.folder)
        last_good = f"; the last good checkpoint is {saved[0]}" if saved else ""
        remedy = "try a lower --lr, under another --name"
        raise PodiumError(f"step {learner.progress.step:,}: {problem}{last_good}; {remedy}") from None


NEIGHBOURS = 10
TEMPERATURE = 0.07  # of the votes, as in the paper: nearer neighbours count more


def knn_accuracy(features: Tensor, labels: Tensor, classes: int) -> float:
    """Returns the share of images whose other nearest images, voting by similarity, have their class."""
    directions = F.normalize(features.float(), dim=-1)
    similarity = directions @ directions.T
    similarity.fill_diagonal_(-torch.inf)  # no image is its own neighbour
    nearest, places = similarity.topk(min(NEIGHBOURS, len(features) - 1))
    votes = torch.zeros(len(features), classes, device=features.device)
    votes.scatter_add_(1, labels[places], (nearest / TEMPERATURE).exp())
    return (votes.argmax(1) == labels).float().mean().item()
