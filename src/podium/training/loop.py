"""One fold's training, from its first step or its last checkpoint to its model and predictions.

Reads the store; writes runs/<slug>/<run>/fold<k>/, see run_folder.py.
"""

import math
import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from torch import nn

from podium.basics.errors import PodiumError
from podium.basics.terminal import plural, say
from podium.models.device import Batch, copied_ahead, gpu_peak_mb
from podium.models.hardware_errors import explain_hardware_errors
from podium.models.model_file import save_model
from podium.models.predict import predict_proba
from podium.options.layers.heads import drop_further_outputs
from podium.options.layers.low_rank_layers import merged
from podium.options.recipe import Recipe
from podium.saved_runs.checkpoint import KEPT, CheckpointWriter, checkpoints, restore_newest
from podium.saved_runs.epoch_record import EpochRecord, score_held_out
from podium.saved_runs.fold_names import fold_name
from podium.tasks.metrics import evaluate
from podium.tasks.pool import Answers, pool_parts
from podium.training.at_chance import warn_if_at_chance
from podium.training.augment import TestView, TrainView
from podium.training.clean_labels import clean_labels_of_fold
from podium.training.context import Context
from podium.training.crowded import refuse_crowd
from podium.training.drawn_changes import ChangesView
from podium.training.gpu_images import GpuImages, gpu_batches
from podium.training.head_start import start_head, warn_if_worse
from podium.training.learner import Diverged, Learner
from podium.training.learner_state import learner_state, restore_learner
from podium.training.live_line import LiveLine
from podium.training.loader import batches_in_order, load_batches
from podium.training.stop_signals import StopSignals, stop_signals
from podium.training.timing.fold_work import CHECKED_IMAGES, FoldWork
from podium.training.timing.forecast import Forecast


def train_fold(context: Context, fold: int, later_folds: Sequence[int] = (), deadline: float = math.inf) -> None:
    """Trains until the schedule ends; validates and saves at every epoch."""
    learner = start_or_resume(context, fold, 1 + len(later_folds))
    progress = learner.progress
    if progress.step == 0:
        start_head(learner)
    forecast = make_forecast(learner, later_folds, deadline)
    planned_steps = progress.total_steps  # a schedule that the deadline has shortened does not grow again
    checkpoint = CheckpointWriter(context.run.fold_folder(fold))
    with explain_failures(learner, checkpoint):
        with (
            stop_signals() as signals,
            checkpoint.finish_writing(),
            LiveLine(learner, forecast) as line,
            closing(training_batches(learner)) as batches,
        ):
            if record_is_due(learner) and not close_epoch_unless_stopped(learner, checkpoint, signals):
                save_and_stop(learner, checkpoint)
            started = time.monotonic()
            for images, labels in batches:
                forecast.start_step(progress.step)
                line.update(learner.step(images, labels))
                refuse_crowd(context, forecast, progress.step)

                now = time.monotonic()
                save_is_due = now - started > context.machine.save_every
                last_step = forecast.last_step(progress.step, planned_steps)
                decision = decide(learner, signals.stop_requested, save_is_due, last_step)
                progress.total_steps = decision.last_step
                if decision.save:
                    progress.seconds += now - started
                    learner.check_weights()  # training cannot resume from weights that are not finite
                    if decision.stop:
                        save_and_stop(learner, checkpoint)
                    if decision.validate and not close_epoch_unless_stopped(learner, checkpoint, signals):
                        save_and_stop(learner, checkpoint)
                    save(learner, checkpoint)
                    started = time.monotonic()
                if progress.step >= progress.total_steps:
                    break
        finish(learner, checkpoint)


# --- before the first step ---------------------------------------------------------------------------


def start_or_resume(context: Context, fold: int, folds_left: int) -> Learner:
    processes, folder = context.processes, context.run.fold_folder(fold)
    learner = Learner(clean_labels_of_fold(context.of_fold(fold), fold), fold)
    if processes.is_first:
        _refuse_full_disk(learner, folds_left)
        context.save_start(learner.spec.source)
    progress = learner.progress
    with processes.first_then_others():  # the first deletes damaged checkpoints
        if restore_newest(folder, partial(restore_learner, learner)):
            say(f"podium: {fold_name(fold)} resumes from step {progress.step:,} of {progress.total_steps:,}")
    if processes.maximum(progress.step, -progress.step) != [progress.step, -progress.step]:
        raise PodiumError(f"{folder}: not all machines see the same checkpoints yet; run the same command again")
    learner.sampler.start, learner.sampler.stop = progress.step, progress.total_steps
    return learner


def training_batches(learner: Learner) -> Generator[Batch]:
    context = learner.context
    if context.machine.store == "gpu":
        drawn = learner.lessons.images(context.images, ChangesView(learner.recipe, learner.spec))
        on_gpu = GpuImages(drawn, learner.spec, context.device)
        return gpu_batches(on_gpu, load_batches(drawn, learner.sampler, context.workers))
    images = learner.lessons.images(context.images, TrainView(learner.recipe, learner.spec))
    return copied_ahead(load_batches(images, learner.sampler, context.workers), context.device)


def make_forecast(learner: Learner, later_folds: Sequence[int] = (), deadline: float = math.inf) -> Forecast:
    sampler, later = learner.sampler, learner.context.images.folds.sizes(later_folds, learner.fold)
    work = work_of_fold(learner.context, learner.fold, learner.recipe)
    return Forecast(work, sampler.batch_size, sampler.start, later, deadline)


def work_of_fold(context: Context, fold: int, recipe: Recipe) -> FoldWork:
    """Returns the work of a fold, in steps; a recipe of other epochs may count it too."""
    training, held_out = len(context.images.training_rows(fold)), len(context.images.held_out_rows(fold))
    return FoldWork(recipe, training, held_out, context.batch_sampler(fold).per_epoch)


def _refuse_full_disk(learner: Learner, folds_left: int) -> None:
    weights = sum(tensor.numel() * tensor.element_size() for tensor in learner.model.state_dict().values())
    # A checkpoint holds weights, average and two moments, and those of the start if the final weights keep a share of
    # these. A new one is written before an old one is deleted.
    needed = weights * ((KEPT + 1) * (5 if learner.kept else 4) + folds_left)
    folder = learner.context.run.path
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise PodiumError(
            f"{folder}: training needs {needed / 1e6:,.0f} MB on that disk, but {free / 1e6:,.0f} MB are free; free"
            " some space"
        )


# --- after a step ------------------------------------------------------------------------------------


class AfterStep(NamedTuple):
    stop: bool
    save: bool
    validate: bool
    last_step: int


def decide(learner: Learner, stop: bool, save: bool, last_step: int) -> AfterStep:
    """Decides what follows this step, for all processes: if one did something else, the others would wait forever."""
    any_stop, any_save, earliest = learner.context.processes.maximum(stop, save, -last_step)
    step, last_step = learner.progress.step, round(-earliest)
    is_epoch_end = step % learner.sampler.per_epoch == 0 or step == last_step
    return AfterStep(
        stop=bool(any_stop),
        save=bool(any_save or any_stop or is_epoch_end),
        validate=is_epoch_end and step < last_step,  # the last validation, with all views, comes after the loop
        last_step=last_step,
    )


def save(learner: Learner, checkpoint: CheckpointWriter) -> None:
    state = learner_state(learner)
    if learner.context.processes.is_first:
        checkpoint.save(learner.progress.step, *state)


def save_and_stop(learner: Learner, checkpoint: CheckpointWriter) -> NoReturn:
    progress = learner.progress
    save(learner, checkpoint)
    checkpoint.wait()
    learner.context.processes.wait()
    where = f"step {progress.step:,} of {progress.total_steps:,} of {fold_name(learner.fold)}"
    raise KeyboardInterrupt(f"stopped after {where}; all is saved")


class Validation(NamedTuple):
    answers: Answers  # for the held-out images
    seconds: float
    views: str
    model: nn.Module
    kept: float | None  # the share of the start in it


def validate(learner: Learner, views: str) -> Validation:
    """Predicts the held-out images."""
    model, kept = final_model(learner)
    started, held_out = time.monotonic(), learner.context.images.held_out_rows(learner.fold)
    answers = Answers(np.zeros((0, len(learner.spec.classes)), np.float32), {})
    if len(held_out):
        answers = predict(learner, model, held_out, views)
    if not np.isfinite(answers.probs).all():
        raise Diverged("the model's predictions are not finite")
    return Validation(answers, time.monotonic() - started, views, model, kept)


def final_model(learner: Learner) -> tuple[nn.Module, float | None]:
    """Returns the model that predicts and is saved, the trained one or one between it and the start, and its share."""
    trained, kept = merged(learner.trained_model), learner.kept
    learner.context.processes.broadcast_statistics(trained)
    if kept is None or learner.progress.start_record is None:
        return trained, None
    return kept.choose(trained, partial(loss_on_training_images, learner))


def loss_on_training_images(learner: Learner, model: nn.Module) -> float:
    """Returns the same in all processes, which choose by it."""
    context = learner.context
    rows = context.images.some_training_rows(learner.fold, CHECKED_IMAGES)
    probs = predict(learner, model, rows, "none").probs
    if not np.isfinite(probs).all():
        return math.inf
    return context.processes.broadcast(evaluate(context.competition.task.loss, context.images.targets[rows], probs))


def predict(learner: Learner, model: nn.Module, rows: NDArray[np.int64], views: str) -> Answers:
    """Predicts images; each process predicts its share."""
    context, processes = learner.context, learner.context.processes
    share = processes.share(rows)
    images = context.images.shown(share, TestView(learner.spec))
    batches = load_batches(images, batches_in_order(len(images.rows), learner.recipe.part_size), context.workers)
    batches = copied_ahead(batches, context.device)
    columns = context.images.columns(images.rows)
    probs = predict_proba(model, batches, learner.normalise, context.precision, views, columns=columns)
    return pool_parts(processes.gather(probs), context.images.examples(rows).counts, context.competition.task)


def record_is_due(learner: Learner) -> bool:
    """Returns whether training stopped at the end of an epoch, before its validation was done."""
    progress = learner.progress
    is_epoch_end = 0 < progress.step < progress.total_steps and progress.step % learner.sampler.per_epoch == 0
    return is_epoch_end and progress.step not in {record.step for record in progress.history}


def close_epoch_unless_stopped(learner: Learner, checkpoint: CheckpointWriter, signals: StopSignals) -> bool:
    """Validates, and adds a record; False if a signal came first: then the same command validates when it resumes.

    With several processes, a signal waits: the others would wait forever for one that it has interrupted.
    """
    if learner.context.processes.size > 1:
        close_epoch(learner, validate(learner, views="none"))
        return True

    def save_now() -> None:
        save(learner, checkpoint)
        checkpoint.wait()

    try:
        with signals.interrupting(save_now):
            record = make_record(learner, validate(learner, views="none"))
    except KeyboardInterrupt:
        return False
    add_record(learner, record)
    return True


def close_epoch(learner: Learner, validation: Validation) -> None:
    add_record(learner, make_record(learner, validation))


def make_record(learner: Learner, validation: Validation) -> EpochRecord:
    """Returns the record of the epoch that ends here. A metric of one's own may take minutes; nothing changes yet."""
    learner.check_gradients()
    context, progress, fold = learner.context, learner.progress, learner.fold
    steps = progress.step - (progress.history[-1].step if progress.history else 0)
    truth = context.images.scored_targets(fold, context.images.held_out_rows(fold))
    return EpochRecord(
        epoch=math.ceil(progress.step / learner.sampler.per_epoch),
        step=progress.step,
        lr=learner.learning_rate,
        loss=context.processes.mean(progress.loss_sum).item() / steps,
        scores=score_held_out(context.competition.metric, truth, validation.answers.probs),
        views=validation.views,
        images_per_s=steps * learner.sampler.batch_size / max(progress.seconds, 1e-9),
        seconds=progress.seconds,
        validation_seconds=validation.seconds,
        gpu_mb=gpu_peak_mb(context.device),
        kept=validation.kept,
    )


def add_record(learner: Learner, record: EpochRecord) -> None:
    """Adds the record to metrics.jsonl, and prints it."""
    context, progress, fold = learner.context, learner.progress, learner.fold
    steps = record.step - (progress.history[-1].step if progress.history else 0)
    progress.history.append(record)
    epoch, skipped = record.epoch, int(progress.skipped.item())
    # A loss that is not finite is not added: the sum is 0 if none was, and a file of records holds no NaN.
    loss = math.nan if skipped == steps and record.loss == 0 else record.loss
    if skipped:
        steps_skipped = f"{plural(skipped, 'step')} of epoch {epoch}"
        say(f"podium: warning: {fold_name(fold)}: skipped {steps_skipped}, whose gradients were not finite")
    progress.start_epoch()
    if context.processes.is_first:
        context.save_history(fold, progress.history)
    shown = replace(record, loss=loss).text(context.competition.task)
    say(f"  {fold_name(fold)}  epoch {epoch}/{learner.recipe.epochs}  {shown}")
    warn_if_worse(learner)


def finish(learner: Learner, checkpoint: CheckpointWriter) -> None:
    """Predicts with the last, averaged weights. No epoch is chosen by the fold that reports the score."""
    context = learner.context
    validation = validate(learner, learner.recipe.views)
    close_epoch(learner, validation)
    if learner.kept and validation.kept == 0:
        say(
            f"podium: {fold_name(learner.fold)} keeps nothing of its start (--keep {learner.kept.share:g}): on"
            " training images, the weights in between have a higher loss than a straight line between both ends"
        )
    if context.processes.is_first:
        model = drop_further_outputs(validation.model)
        save_model(context.run.fold_folder(learner.fold) / "model.safetensors", model, learner.spec)
        context.save_predictions(learner.fold, validation.answers, learner.progress.rate_share)
        warn_if_at_chance(context, learner.fold, validation.answers.probs, learner.progress.history)
        checkpoint.delete_all()
    context.processes.wait()


# --- errors ------------------------------------------------------------------------------------------


@contextmanager
def explain_failures(learner: Learner, checkpoint: CheckpointWriter) -> Iterator[None]:
    """Explains errors of the hardware and diverged training, with a remedy."""
    try:
        with explain_hardware_errors(learner.recipe.batch_size, learner.batch_trial):
            yield
    except Diverged as problem:
        checkpoint.wait()
        saved = checkpoints(checkpoint.folder)
        last_good = f"; the last good checkpoint is {saved[0]}" if saved else ""
        where = f"{fold_name(learner.fold)}, step {learner.progress.step:,}"
        remedy = "try a lower --lr or --precision float32, under another --name"
        error = Diverged(f"{where}: {problem}{last_good}; {remedy}")
        error.in_all_processes = True  # all have the same weights
        raise error from None
