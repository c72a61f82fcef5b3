"""Where a new head starts: fitted to the frozen features, so that training begins at the score of `--linear`.

Where no head can be fitted, it starts from the shares of the classes. The fitted head's score on the held-out images is
the first record of the fold. The learning rate is a share of the recipe's (`Progress.rate_share`), below 1 where the
head leaves little to learn, or where the steps are few. A run that goes on from another has that run's end as its first
record, and its rate is lower for the same reasons. A run that is worse than its start later on says so.
"""

import math
import time
from dataclasses import fields, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from podium.basics.errors import PodiumError
from podium.basics.terminal import plural, say
from podium.models.build import backbone_of
from podium.models.device import CPU, autocast
from podium.options.layers.heads import output_layers
from podium.options.moves import MOVES
from podium.options.moves.loss_functions import log_shares
from podium.options.recipe import recorded_values
from podium.options.recipe_defaults import learns_anew
from podium.options.recipe_options import ARCFACE
from podium.saved_runs.epoch_record import EpochRecord, score_held_out
from podium.saved_runs.fold_names import fold_name
from podium.saved_runs.run_folder import Run
from podium.saved_runs.trained_with import kept_rate_share
from podium.tasks.metrics import METRICS
from podium.training.augment import TestView
from podium.training.frozen_features import compute_features
from podium.training.learner import Learner
from podium.training.linear_probe import FittedHead, NotLinear, fit_head_of, loss_of_head, prior_bias
from podium.training.loader import batches_in_order, load_batches

MOST_IMAGES = 50_000  # that a head is fitted to; training goes on from there
NEW_WEIGHTS = 0.001  # times what timm draws: the first outputs are the shares of the classes
ADAPTING_IMAGES = 2_048
WARN_AT, LEAST_EPOCHS = 1 / 3, 2  # of the run: before that, a model may yet become better than its start
CAUTIOUS = 0.02  # times the learning rate, where the head leaves little to learn
# With fewer steps, the features of a ConvNet with batch norm may fall apart at the usual rate and not recover: it is
# lowered in proportion. Measured with lite0 on parts of four sets (docs/benchmarks.md); for other ConvNets, a guess.
FEW_STEPS = 60


def start_head(learner: Learner) -> None:
    """Sets the head of a learner that has made no step."""
    recipe, processes = learner.recipe, learner.context.processes
    source = learner.context.plan.start
    if source:
        learner.progress.history += _end_of(source, learner)
        shift_bias_by_prior(learner, recipe.shares_left_out - left_out_by(source))
    if source or (learns_anew(recipe.weights) and not recipe.fits_head):
        return
    if recipe.adapts_statistics:
        adapt_statistics(learner)
    if processes.is_first and recipe.head == ARCFACE:
        if recipe.fits_head:
            imprint(learner)
    elif processes.is_first:
        fitted = _fit(learner) if recipe.fits_head else None
        if fitted is None:
            set_prior(learner)
        shift_bias_by_prior(learner, recipe.shares_left_out)
    progress = learner.progress
    progress.history, progress.rate_share = processes.broadcast((progress.history, progress.rate_share))
    processes.broadcast_statistics(learner.model)
    processes.broadcast_weights(learner.model)  # machines that differ would fit different heads
    if learner.average:
        learner.average.set(learner.model)
    if learner.kept:
        learner.kept.set(learner.model)


def warn_if_worse(learner: Learner) -> None:
    """Compares the last record with that of the start, once, when a third of the run and two epochs are done."""
    progress, metric, source = learner.progress, learner.context.competition.metric, learner.context.plan.start
    start, history = progress.start_record, progress.history
    if start is None or len(history) < 2 or learner.recipe.shares_left_out:  # such answers are not comparable with it
        return
    if metric not in start.scores:  # of a model that holds nothing out
        return
    early = LEAST_EPOCHS * history[1].step / max(history[1].epoch, 1)
    steps = min(max(WARN_AT * progress.total_steps, early), progress.total_steps)
    before, last = history[-2], history[-1]
    gain = METRICS[metric]().better * (last.scores[metric] - start.scores[metric])
    whose, remedy = "the frozen head's", "more --epochs, a lower --lr, --freeze 0.5 or --linear"
    if source:
        whose, remedy = f"that of its start, the run {source.name},", "a lower --lr or more --epochs"
    if before.step < steps <= last.step and gain < 0:
        say(
            f"podium: warning: {fold_name(learner.fold)}: {metric} {last.scores[metric]:z.4f} is still worse than"
            f" {whose} {start.scores[metric]:z.4f}; if it stays so, try {remedy}, under another --name"
        )


# --- the starts ----------------------------------------------------------------------------------


def _end_of(source: Run, learner: Learner) -> list[EpochRecord]:
    """Returns the record of the run that this one goes on from, with this run's learning rate; none if it is lost.

    A head that left little to learn leaves as little to a run that goes on.
    """
    competition, fold, rate = learner.context.competition, learner.fold, learner.recipe.lr
    labels = competition.label_of
    known = source.out_of_fold(fold, competition.classes).with_labels(labels)
    try:
        history = source.history(fold)
    except PodiumError as problem:
        say(f"podium: warning: {problem}, but the learning rate may be too high for this start; --lr sets another")
        return []
    first, last = history[0], history[-1]
    share = kept_rate_share(source, fold)
    if share is None:  # the run is older
        share = first.lr / source.recipe["lr"] if first.is_start else 1.0
    why = f"{source.name} was trained at a lower learning rate, because its start left little to learn"
    if math.isclose(share, _share_for(learner, last.step), rel_tol=0.01):  # not because of its start
        steps = learner.progress.total_steps
        share, why = _share_for(learner, steps), _few(steps)
    if share < 1 and not _is_given(learner):
        rate = _lowered(learner, share, why)
    learner.progress.rate_share = rate / learner.recipe.lr
    scores = score_held_out(competition.metric, known.target, known.probs)
    record = replace(last, epoch=0, step=0, lr=rate, scores=scores, seconds=0.0, validation_seconds=0.0, kept=None)
    say(f"  {fold_name(fold)}  {source.name}  {record.text(competition.task)}")
    return [record]


def left_out_by(run: Run) -> float:
    """Returns which part of the classes' frequencies the head of a finished run need not know."""
    moves = [move(**recorded_values(run.recipe, [own.name for own in fields(move)])) for move in MOVES]
    return sum(move.shares_left_out for move in moves)


def _is_given(learner: Learner) -> bool:
    """Returns whether the user chose the learning rate."""
    return learner.context.plan.origins.get("lr") in ("flag", "card")


def _fit(learner: Learner) -> FittedHead | None:
    context, fold, spec = learner.context, learner.fold, learner.spec
    started = time.monotonic()
    try:
        fitted = fit_head_of(context, fold, learner.model, spec, learner.normalise, MOST_IMAGES)
    except NotLinear as problem:
        say(f"podium: note: {problem.fact}, so its head starts from the shares of the classes")
        return None
    targets, metric = context.images.targets, context.competition.metric
    held_out = fitted.features.known_among(context.images.held_out_rows(fold))
    training = fitted.features.known_among(context.images.training_rows(fold))
    seconds = time.monotonic() - started
    record = EpochRecord(
        epoch=0,
        step=0,
        lr=_peak_rate(learner, fitted),
        loss=loss_of_head(targets[training], fitted.predict(context, training, spec), spec),
        scores=score_held_out(
            metric, context.images.scored_targets(fold, held_out), fitted.predict(context, held_out, spec)
        ),
        views=learner.recipe.views,
        images_per_s=len(training) / max(seconds, 1e-9),
        seconds=seconds,
        validation_seconds=0.0,
        l2=fitted.l2,
    )
    learner.progress.history.append(record)
    learner.progress.rate_share = record.lr / learner.recipe.lr
    say(f"  {fold_name(fold)}  frozen head  {record.text(context.competition.task)}")
    return fitted


@torch.no_grad()
def imprint(learner: Learner) -> None:
    """Gives each class of a cosine head the mean direction of its features (Qi et al., 2018)."""
    context, model = learner.context, learner.model.eval()
    features = compute_features(context, model, learner.spec, learner.normalise, MOST_IMAGES)
    rows = np.concatenate(
        [features.known_among(part) for part in (context.images.training_rows(learner.fold), context.images.extra_rows)]
    )
    owners = rows.repeat(features.counts_of(rows))  # every box of an image counts
    labels = torch.from_numpy(context.images.targets[owners].values)
    directions = F.normalize(torch.from_numpy(features.of(rows)), dim=2).mean(0)
    directions *= torch.from_numpy(context.images.weights(owners)[:, None]).float()
    (layer,) = output_layers(model, len(learner.spec.classes))
    means = torch.zeros(layer.weight.shape, device=CPU).index_add_(0, labels, directions)
    has_images = torch.from_numpy(context.images.targets[rows].counts(len(means)) > 0)
    layer.weight.copy_(torch.where(has_images[:, None], F.normalize(means), layer.weight.cpu()))


def _peak_rate(learner: Learner, fitted: FittedHead) -> float:
    """Returns the recipe's learning rate; a lower one where it would do harm, if none was given."""
    context, rate, steps = learner.context, learner.recipe.lr, learner.progress.total_steps
    if _is_given(learner):
        return rate
    images, loss = len(context.images.training_rows(learner.fold)), context.competition.task.loss
    if fitted.inner and fitted.inner.leaves_little(loss, images):
        share, why = CAUTIOUS, "the frozen head leaves little to learn"
    else:
        share, why = _share_for(learner, steps), _few(steps)
    return rate if share == 1 else _lowered(learner, share, why)


def _share_for(learner: Learner, steps: int) -> float:
    """Returns how much of the learning rate a training of so many steps can bear."""
    recipe = learner.recipe
    kind = backbone_of(recipe.model, learns_anew(recipe.weights)).kind
    return min(1.0, steps / FEW_STEPS) if kind == "batch norm" else 1.0


def _few(steps: int) -> str:
    return f"it makes only {plural(steps, 'step')}"


def _lowered(learner: Learner, share: float, why: str) -> float:
    usual = learner.recipe.lr
    rate = float(f"{usual * share:.3g}")
    whose = f"podium: {fold_name(learner.fold)}"
    say(f"{whose}: {why}, so the learning rate is {rate} instead of {usual}; --lr sets another")
    return rate


def set_prior(learner: Learner) -> None:
    """Makes the head say the shares of the classes, whatever the image is."""
    context = learner.context
    labels = context.images.targets[context.images.training_rows(learner.fold)]
    set_head_to(learner.model, prior_bias(labels, learner.spec))


@torch.no_grad()
def shift_bias_by_prior(learner: Learner, strength: float) -> None:
    """Lets the head say what it would say if the classes were as frequent as the loss takes them for."""
    if not strength:
        return
    labels = learner.context.images.targets[learner.context.images.training_rows(learner.fold)]
    shift = torch.from_numpy(strength * log_shares(labels, len(learner.spec.classes)))
    for model in (learner.model, *([learner.average.module] if learner.average else [])):
        for layer in output_layers(model, len(shift)):
            if layer.bias is not None:
                layer.bias.sub_(shift.to(layer.bias))


@torch.no_grad()
def set_head_to(model: nn.Module, bias: torch.Tensor) -> None:
    """Makes the head say nearly the same of all images."""
    for layer in output_layers(model, len(bias)):
        layer.weight.mul_(NEW_WEIGHTS)
        if layer.bias is not None:
            layer.bias.copy_(bias)


# --- batch norm --------------------------------------------------------------------------------------


@torch.no_grad()
def adapt_statistics(learner: Learner) -> None:
    """Computes the statistics of batch norm anew, from training images at the run's size."""
    context, model = learner.context, learner.model
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    rows = context.images.some_training_rows(learner.fold, ADAPTING_IMAGES)
    batches = [batch for batch in batches_in_order(len(rows), learner.recipe.part_size) if len(batch) > 1]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all batches
        norm.train()
    for images, _ in load_batches(context.images.of_rows(rows, TestView(learner.spec)), batches, context.workers):
        with autocast(context.device, context.precision):
            model(learner.normalise(images))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
