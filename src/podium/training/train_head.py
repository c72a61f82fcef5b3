"""Trains a fold of a run whose backbone stays as it is (--linear): only its head is made.

    podium train --model convnext_small --linear [--head neighbours]

Writes the files of a fold as training does, and the features once for all folds (frozen_features.py).
"""

import time
from typing import Any, NamedTuple

from torch import nn

from podium.basics.terminal import plural, say
from podium.models.build import ModelSpec
from podium.models.model_file import save_model
from podium.models.normalise import Normaliser
from podium.options.recipe import has_neighbours
from podium.saved_runs.epoch_record import EpochRecord, score_held_out
from podium.saved_runs.fold_names import fold_name
from podium.tasks.pool import Answers
from podium.training.at_chance import warn_if_at_chance
from podium.training.context import Context
from podium.training.linear_probe import answers_of_head, build_frozen, fit_head_of, loss_of_head
from podium.training.nearest_images import fit_neighbours


class HeadOfFold(NamedTuple):
    """A head that is made, and what it says of the held-out images."""

    spec: ModelSpec
    text: str
    loss: float
    answers: Answers
    settings: dict[str, Any]  # for the record


def train_head(context: Context, fold: int) -> None:
    """Makes the head of one fold and writes the same files as train_fold."""
    started, context = time.monotonic(), context.of_fold(fold)
    recipe, metric = context.recipe, context.competition.metric
    targets = context.images.scored_targets(fold, context.images.held_out_rows(fold))
    model, spec, normalise = build_frozen(context, fold)
    context.save_start(spec.source)
    head = (_neighbours if has_neighbours(recipe.head) else _logistic)(context, fold, model, spec, normalise)
    seconds = time.monotonic() - started
    record = EpochRecord(
        epoch=1,
        step=0,
        lr=0.0,
        loss=head.loss,
        scores=score_held_out(metric, targets, head.answers.probs),
        views=recipe.views,
        images_per_s=len(context.images.training_rows(fold)) / max(seconds, 1e-9),
        seconds=seconds,
        validation_seconds=0.0,
        **head.settings,
    )
    save_model(context.run.fold_folder(fold) / "model.safetensors", model, head.spec)
    context.save_history(fold, [record])
    context.save_predictions(fold, head.answers)
    say(f"  {fold_name(fold)}  {head.text}  {record.text(context.competition.task)}")
    warn_if_at_chance(context, fold, head.answers.probs, [record])


def _logistic(context: Context, fold: int, model: nn.Module, spec: ModelSpec, normalise: Normaliser) -> HeadOfFold:
    """Fits a logistic head, or a linear one for numbers."""
    fitted, training = fit_head_of(context, fold, model, spec, normalise), context.images.training_rows(fold)
    loss = loss_of_head(context.images.targets[training], fitted.predict(context, training, spec), spec)
    answers = answers_of_head(context, fitted.head, fitted.features, context.images.held_out_rows(fold), spec)
    return HeadOfFold(spec, f"a head with L2 {fitted.l2:.2g}", loss, answers, {"l2": fitted.l2})


def _neighbours(context: Context, fold: int, model: nn.Module, spec: ModelSpec, normalise: Normaliser) -> HeadOfFold:
    """Keeps the training images. Each is its own neighbour: the loss is that of those which chose how others vote."""
    fitted = fit_neighbours(context, fold, model, spec, normalise)
    voters, temperature, loss = fitted.voting
    text = f"{plural(voters, 'neighbour')} of {len(fitted.head.gallery):,}, temperature {temperature:.2g}"
    settings = {"neighbours": voters, "temperature": temperature}
    return HeadOfFold(fitted.spec, text, loss, fitted.predict(context.images.held_out_rows(fold)), settings)
