"""Linear evaluation: a logistic head (linear for numbers) on the features of a frozen model, one head per fold.

    podium train --model convnext_small --linear

Here is the fit; train_head.py writes the files of a fold. Training of all weights starts from such a head, too
(head_start.py).
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium.basics.image_size import sides_of
from podium.basics.randomness import seed_torch
from podium.basics.terminal import busy_with
from podium.models.build import ModelSpec, build_model
from podium.models.device import CPU, autocast, full_float32
from podium.models.model_file import read_spec
from podium.models.normalise import Normaliser
from podium.models.place import place_model
from podium.models.predict import probs_of, wanted
from podium.options.layers.column_layers import drop_columns
from podium.options.layers.heads import output_layers, put_linear_head
from podium.options.moves.joined_columns import NONE
from podium.options.moves.loss_functions import cross_entropy, loss_of_columns, squared_error
from podium.options.moves.move import Loss
from podium.options.recipe_options import LINEAR
from podium.tasks.metrics import evaluate
from podium.tasks.number_scale import to_scale
from podium.tasks.pool import Answers, pool_parts
from podium.tasks.task import Targets, are_right
from podium.training.context import Context
from podium.training.frozen_features import Features, compute_features, features_of
from podium.training.training_images import Ints, TrainingImages, complete_spec

STRENGTHS = tuple(10 ** (-n / 2) for n in range(2, 11))  # of L2, added to the mean log loss: 0.1 to 0.00001
# The gradient, or the change of the loss, that ends a fit. A tenth of it takes twice as long and scores the same.
TOLERANCE = 1e-4
# A head leaves little to learn if its loss is a smaller share of the loss of the classes' shares, or if it is wrong
# about fewer training images: fine-tuning then loses more than it gains (docs/benchmarks.md).
LITTLE_LEFT = 0.03
FEW_MISTAKES, MOSTLY_KNOWN = 25, 0.25  # few mistakes of a head that knows nothing show only that a class is rare
USUAL_SHARE = 0.3  # of the mean variance of all features, in the one that a feature is divided by


class Head(NamedTuple):
    weight: Tensor  # [classes, features]
    bias: Tensor


class Inner(NamedTuple):
    """What a head says of the training images that chose its L2, and to which it was not fitted."""

    targets: Targets
    probs: NDArray[np.float32]
    prior: NDArray[np.float32]  # from the shares of the classes alone

    def loss_left(self, loss: str) -> float:
        """Returns the head's loss as a share of the loss of the prior."""
        return evaluate(loss, self.targets, self.probs) / max(evaluate(loss, self.targets, self.prior), 1e-9)

    def leaves_little(self, loss: str, images: int) -> bool:
        """Returns whether so many images would teach a fine-tuning little: the head is wrong about few of them."""
        left = self.loss_left(loss)
        if left < LITTLE_LEFT:
            return True
        is_one_label = self.targets.task.sums_to_one
        mistakes = float((~are_right(self.targets, self.probs)).mean()) if is_one_label else 1.0
        return left < MOSTLY_KNOWN and mistakes * images < FEW_MISTAKES


class NotLinear(PodiumError):
    """The model's output is not one linear layer on its features."""

    def __init__(self, architecture: str) -> None:
        self.fact = f"the output of {architecture} is not one linear layer on its features"
        super().__init__(f"{self.fact}, so no head can be fitted; leave out --linear, or take another model")


def build_frozen(context: Context, fold: int) -> tuple[nn.Module, ModelSpec, Normaliser]:
    """Returns the pretrained model of a fold, or with --linear that of the earlier run's fold, and what feeds it."""
    seed_torch(context.recipe.seed, 0, 0)  # if the weights are random, they are the same for all folds
    recipe, earlier = context.recipe.but(drop_path=0.0), context.plan.start
    # Else the weights are the hub's, also of a run that goes on: the heads of --clean judge labels that it has learned.
    start = earlier.weights_path(fold) if earlier and not recipe.takes_steps else None
    own = read_spec(start) if start else None
    model, spec = build_model(
        recipe.but(head=own.head, columns=own.columns) if own else recipe,
        context.competition.classes,
        start=start,
        backbone=context.plan.backbone,
        recorded_source=context.run.recorded_source,
        column_count=own.column_count if own else 0,
        channels=context.images.channels,
    )
    if own and own.column_count:
        drop_columns(model)
        spec = replace(spec, columns=NONE, column_count=0)
    if start and spec.head != LINEAR:
        put_linear_head(model)
        spec = replace(spec, head=LINEAR)
    spec = complete_spec(context.images, spec, fold)
    return model, spec, place_model(model, spec, context.device, context.precision)


def loss_of_head(targets: Targets, probs: NDArray[np.float32], spec: ModelSpec) -> float:
    """Returns the loss in the unit of training; for numbers, the squared error in deviations, as `squared_error`."""
    if not spec.scales:
        return evaluate(targets.task.loss, targets, probs)
    deviations = np.array([deviation for _, deviation in spec.scales])
    said, true = (
        to_scale(torch.from_numpy(numbers.astype(np.float64)), spec.target_scale, spec.curves).numpy()
        for numbers in (probs, targets.values)
    )
    return float(np.nanmean(((said - true) / deviations) ** 2))


class FittedHead(NamedTuple):
    head: Head
    l2: float  # strength of the regularisation
    features: Features
    inner: Inner | None = None  # of a fold with too few images: none

    def predict(self, context: Context, rows: NDArray[np.int64], spec: ModelSpec) -> NDArray[np.float32]:
        return predict_head(context, self.head, self.features, rows, spec)


def fit_head_of(
    context: Context,
    fold: int,
    model: nn.Module,
    spec: ModelSpec,
    normalise: Normaliser,
    most_images: int | None = None,
) -> FittedHead:
    """Fits a model's last layer to its features, of all images or of a sample."""
    layers = linear_layers(model, spec, normalise)
    features = compute_features(context, model, spec, normalise, most_images)
    head, l2, inner = fit_head(context, fold, features, spec)
    for layer in layers:
        set_layer(layer, head)
    return FittedHead(head, l2, features, inner)


@torch.no_grad()
def linear_layers(model: nn.Module, spec: ModelSpec, normalise: Normaliser) -> list[nn.Linear | nn.Conv2d]:
    """Returns the last layers of the model, with the same fixed random weights; refuses models that are not linear.

    A model with several heads predicts their mean, so with the same weights they are one head on the mean features.
    With random weights the comparison is a real test: some models start with a layer of zeros, which would always pass.
    """
    model.eval()
    rng = torch.Generator().manual_seed(0)
    with suppress(Exception):  # each family may lack something, or return something else
        layers = output_layers(model, len(spec.classes))
        shapes = [part.shape for part in (layers[0].weight, layers[0].bias)]  # type: ignore[union-attr]
        weight, bias = (torch.randn(shape, generator=rng, device=CPU) for shape in shapes)
        head = Head(weight.flatten(1), bias)
        for layer in layers:
            set_layer(layer, head)
        shape = 2, *sides_of(spec.test_size), spec.channel_count
        images = normalise(torch.randint(256, shape, generator=rng, dtype=torch.uint8, device=CPU))
        logits = F.linear(features_of(model, images), *(part.to(images.device) for part in head))
        if torch.allclose(logits, model(images), rtol=1e-3, atol=1e-3):
            return layers
    raise NotLinear(spec.architecture)


@torch.no_grad()
def set_layer(layer: nn.Linear | nn.Conv2d, head: Head) -> None:
    """Gives a layer the weights of a head; as a convolution, it sees one pixel."""
    layer.weight.copy_(head.weight.view_as(layer.weight))
    layer.bias.copy_(head.bias)  # type: ignore[union-attr]


def predict_head(
    context: Context, head: Head, features: Features, rows: NDArray[np.int64], spec: ModelSpec
) -> NDArray[np.float32]:
    """Returns probabilities as training predicts them: the mean of the views, then that of an image's boxes."""
    return answers_of_head(context, head, features, rows, spec).probs


@torch.inference_mode()
def answers_of_head(
    context: Context, head: Head, features: Features, rows: NDArray[np.int64], spec: ModelSpec
) -> Answers:
    with autocast(context.device, context.precision):
        logits = F.linear(torch.from_numpy(features.of(rows)).to(context.device), head.weight, head.bias)
    task = context.competition.task
    return pool_parts(probs_of(logits, spec).mean(0).cpu().numpy(), features.counts_of(rows), task)


# --- fitting -----------------------------------------------------------------------------------------


class Standardiser:
    """Brings features to about the same scale and turns them to their principal axes.

    Without this, L-BFGS needs many more steps.
    """

    def __init__(self, features: Tensor, precision: torch.dtype) -> None:
        """Changes `features` to the standardised ones, to save memory."""
        self.precision = precision
        self.mean = features.mean((0, 1))
        variance = features.flatten(0, 1).var(0, correction=0)
        usual = variance.mean()
        # Without a share of the usual variance, features that hardly vary would get weights of hundreds: a head that
        # breaks at the backbone's first change, and scores lower (docs/benchmarks.md).
        self.deviation = (variance.lerp(usual, USUAL_SHARE)).sqrt() if usual > 0 else torch.ones_like(variance)
        features.sub_(self.mean).div_(self.deviation)
        rows = features.flatten(0, 1)
        self.variances, self.axes = (part.to(features) for part in _principal_axes(rows.cpu().double()))
        self.features = features @ self.axes

    def head_for_raw_features(self, head: Head) -> Head:
        # Autocast will round the weight, so the bias is computed from the rounded weight.
        weight = (head.weight @ self.axes.T / self.deviation).to(self.precision).float()
        return Head(weight, head.bias - weight @ self.mean)


def _principal_axes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the variances along the axes, and the axes: no more of them than there are rows."""
    try:
        if len(rows) < rows.shape[1]:  # a covariance would have many zeros among its eigenvalues
            _, singular, axes = torch.linalg.svd(rows, full_matrices=False)
            return singular.square() / len(rows), axes.T
        variances, axes = torch.linalg.eigh(rows.T @ rows / len(rows))
        return variances, axes
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        # Both are fast methods, which may not converge if most features are constant.
        from scipy.linalg import eigh

        values, vectors = eigh((rows.T @ rows / len(rows)).numpy(), driver="ev")
        count = min(rows.shape)
        return torch.from_numpy(values[-count:].copy()), torch.from_numpy(vectors[:, -count:].copy())


@full_float32()
@busy_with("fitting a head")
def fit_head(
    context: Context, fold: int, features: Features, spec: ModelSpec, strengths: Sequence[float] = ()
) -> tuple[Head, float, Inner | None]:
    """Fits a head to all images but the fold's; returns it, the strength of its L2 and what that was chosen by.

    It is one of `strengths`, or else of STRENGTHS. Images from elsewhere are learned, and choose nothing.
    """
    own_rows, strengths = features.known_among(context.images.training_rows(fold)), strengths or STRENGTHS
    device, task_loss = context.device, context.competition.task.loss
    rows = np.append(own_rows, features.known_among(context.images.extra_rows))
    owners = np.repeat(np.arange(len(rows)), features.counts_of(rows))  # every box of an image is an example
    own = context.images.targets[rows[owners[owners < len(own_rows)]]]
    targets = wanted(torch.from_numpy(context.images.taught(rows[owners])).to(device), spec)
    standard = Standardiser(torch.from_numpy(features.of(rows)).to(device), context.precision)
    inputs, variances = standard.features, standard.variances
    bias = prior_bias(own, spec).to(device)
    start = Head(torch.zeros(len(bias), len(variances), device=device), bias)
    views, fit_loss, weights = len(inputs), _loss_of(own, len(spec.classes)), context.images.weights(rows[owners])

    learns, validates = inner_split(context.images, fold, own_rows)
    is_learned = np.append(learns, np.ones(len(rows) - len(own_rows), bool))[owners]
    trains = torch.from_numpy(np.flatnonzero(is_learned)).to(device)
    inner_loss = _weighing(fit_loss, weights[is_learned], views)
    judges = own_rows[validates]
    validation_targets = context.images.targets[judges]
    prior = predict_head(context, standard.head_for_raw_features(start), features, judges, spec)
    strength, lowest_loss, best, head, inner = strengths[0], math.inf, start, start, None
    for l2 in strengths if validates.any() else ():
        part = inputs[:, trains]
        repeated = _repeated(targets[trains], views)
        head = _fit(part.flatten(0, 1), repeated, inner_loss, l2, variances, head)
        probs = predict_head(context, standard.head_for_raw_features(head), features, judges, spec)
        loss = evaluate(task_loss, validation_targets, probs)
        if loss >= lowest_loss:
            break
        lowest_loss, strength, best = loss, l2, head
        inner = Inner(validation_targets, probs, prior)
    repeated, loss_of_all = _repeated(targets, views), _weighing(fit_loss, weights, views)
    head = _fit(inputs.flatten(0, 1), repeated, loss_of_all, strength, variances, best)
    return standard.head_for_raw_features(head), strength, inner


def prior_bias(targets: Targets, spec: ModelSpec) -> Tensor:
    """Returns the bias of a head that knows the shares of the classes and nothing else, or the mean of the numbers."""
    classes = len(spec.classes)
    if not targets.task.are_labels:
        return torch.zeros(classes, device=CPU)
    counts = torch.from_numpy(targets.counts(classes)).float()
    if targets.parts(classes):
        return ((counts + 1) / len(targets)).log()
    return ((counts + 1) / (len(targets) + 2)).logit()


def _repeated(targets: Tensor, views: int) -> Tensor:
    return torch.cat([targets] * views)


def inner_split(images: TrainingImages, fold: int, rows: Ints) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Marks the training images that a trial learns from, and those that choose the strength.

    The latter are those of another fold, which keeps groups whole. With images of one fold only, they are every fifth
    image, from the second on: of each class, if each has one label.
    """
    judge = images.folds.judge_within(fold, rows)
    if judge is not None:
        learns, validates = images.folds.trains(judge)[rows], images.folds.validates(judge)[rows]
        if images.competition.unknown:  # images that are unknown to the trial say nothing of it
            labels = images.targets.values[rows]
            validates = validates & np.isin(labels, labels[learns])
        return learns, validates
    if images.competition.task.sums_to_one:
        targets = images.competition.train["target"].iloc[rows]
        number = targets.groupby(targets).cumcount().to_numpy()
    else:
        number = np.arange(len(rows))
    return number % 5 != 1, number % 5 == 1


def _loss_of(targets: Targets, classes: int) -> Loss:
    if not targets.task.are_labels:
        return partial(squared_error, 1 - float(np.isnan(targets.values).mean()))
    if targets.columns:
        return partial(loss_of_columns, targets.parts(classes), cross_entropy, 0.0)
    return F.cross_entropy if targets.task.sums_to_one else F.binary_cross_entropy_with_logits


def _weighing(loss: Loss, weights: NDArray[np.float64], views: int) -> Loss:
    """Returns the loss in which examples have these weights; those of the same weight stand together."""
    if (weights == 1).all():
        return loss
    starts = np.append(0, np.flatnonzero(np.diff(weights)) + 1)
    counts = np.diff(np.append(starts, len(weights))).tolist()
    shares = (weights[starts] * counts / weights.sum()).tolist()

    def weighed(outputs: Tensor, targets: Tensor) -> Tensor:
        parts = (every.unflatten(0, (views, -1)).split(counts, 1) for every in (outputs, targets))
        losses = [loss(own.flatten(0, 1), wanted.flatten(0, 1)) for own, wanted in zip(*parts, strict=True)]
        return torch.stack([share * part for share, part in zip(shares, losses, strict=True)]).sum()

    return weighed


def _fit(inputs: Tensor, targets: Tensor, fit_loss: Loss, l2: float, variances: Tensor, start: Head) -> Head:
    """Minimises the mean loss plus L2; `variances` are those of the inputs along their axes."""
    scale = (variances.clamp(min=0) / len(start.bias) + l2).rsqrt()
    scaled_weight, bias = (start.weight / scale).requires_grad_(), start.bias.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [scaled_weight, bias],
        max_iter=200,
        tolerance_grad=TOLERANCE,
        tolerance_change=TOLERANCE,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        weight = scaled_weight * scale
        value = fit_loss(F.linear(inputs, weight, bias), targets) + l2 / 2 * weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    return Head((scaled_weight * scale).detach(), bias.detach())
