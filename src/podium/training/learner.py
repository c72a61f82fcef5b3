"""The learner: a model, the average of its weights, the optimiser, and how far a fold has come.

`Learner.step` is one training step: forward, backward, update. Below the class are the parts that
only some runs use.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from timm.utils import ModelEmaV3
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from podium.basics.errors import PodiumError
from podium.basics.image_size import sides_of
from podium.basics.randomness import seed_torch
from podium.models.build import ModelSpec, build_model, check_sizes
from podium.models.device import CPU, autocast, is_cpu, is_gpu, micro_batch_limit
from podium.models.place import place_model
from podium.models.predict import wanted
from podium.options.layers.heads import add_further_outputs
from podium.options.moves.move import Backward, Change, Moment, set_training
from podium.options.recipe import Recipe
from podium.options.recipe_options import ARCFACE
from podium.saved_runs.epoch_record import EpochRecord
from podium.training.context import Context
from podium.training.distill import Teacher, separate_heads
from podium.training.fold_loss import and_further, make_label_loss
from podium.training.lessons import make_lessons
from podium.training.optimizer import create_optimizer
from podium.training.training_images import complete_spec

CHECK_EVERY = 50  # steps between checks of the loss: each one makes a GPU wait
TEACHERS_SHARE = 0.5  # of the loss: the labels correct its mistakes, and it shows which classes are similar
MAX_BAD_STEPS = 10  # in a row: a step with non-finite gradients is skipped, but so many mean that training diverged

LARGEST_NORM = 1.0  # of the gradient: cuts off the rare large one and leaves the others
MOST_SIZES = 1_000  # of images, each of which torch.compile compiles anew: with --grow a run has several


class Diverged(PodiumError):
    """The loss, the gradients or the weights are not finite."""


@dataclass
class Progress:
    """How far a fold has come. The tensors stay on the device: to read them makes it wait."""

    total_steps: int
    loss_sum: Tensor  # over the steps of this epoch
    skipped: Tensor  # steps of this epoch whose gradients were not finite
    skipped_in_a_row: Tensor  # up to the last step
    step: int = 0
    seconds: float = 0.0  # spent on this epoch
    rate_share: float = 1.0  # of the recipe's learning rate that the start can bear (head_start.py)
    history: list[EpochRecord] = field(default_factory=list)

    @staticmethod
    def start(total_steps: int, device: torch.device) -> "Progress":
        loss_sum, skipped, skipped_in_a_row = (torch.zeros((), device=device) for _ in range(3))
        return Progress(total_steps, loss_sum, skipped, skipped_in_a_row)

    @property
    def start_record(self) -> EpochRecord | None:
        """The record of what training started from: a fitted head, or another run; None for anything else."""
        return next((record for record in self.history[:1] if record.is_start), None)

    @property
    def losses(self) -> list[float]:
        """The mean losses of the epochs that have ended."""
        return [record.loss for record in self.history if not record.is_start]

    def count_step(self, loss: Tensor, is_bad: Tensor) -> None:
        self.loss_sum += torch.where(loss.isfinite(), loss, 0)
        self.skipped += is_bad
        self.skipped_in_a_row.add_(1).mul_(is_bad)
        self.step += 1

    def start_epoch(self) -> None:
        self.loss_sum.zero_()
        self.skipped.zero_()
        self.seconds = 0.0


class Learner:
    """The model of one fold and everything that changes with a step."""

    def __init__(self, context: Context, fold: int) -> None:
        recipe, device = context.recipe, context.device
        self.context, self.fold, self.recipe, self.device, self.moves = context, fold, recipe, device, recipe.moves
        self.lessons = make_lessons(context, fold)
        self.sampler = context.batch_sampler(fold, self.lessons.confidence)
        self.model, self.spec = _initial_model(context, fold)
        self.normalise = place_model(self.model, self.spec, device, context.precision, context.machine.compiled)
        labels = context.images.targets[context.images.training_rows(fold)]
        self.classes = torch.arange(len(self.spec.classes), device=device)
        self.label_loss = make_label_loss(recipe, labels, len(self.spec.classes), device, self.spec.classes)
        if context.further:
            self.label_loss = and_further(self.label_loss, len(self.spec.classes), context.further)
        self.teacher = None
        if context.plan.teachers:
            self.teacher = Teacher(context.plan.teachers, fold, self.normalise, context.precision)
            separate_heads(self.model)
        for move in self.moves:
            move.learns(self.model, recipe.model, (recipe.seed, fold))
        self.optimizer = create_optimizer(self.model, recipe)
        self.scaler = torch.amp.GradScaler(device.type, enabled=context.precision == torch.float16)
        self.change: Change = unchanged
        self.average: ModelEmaV3 | None = None
        for move in self.moves:
            self.change = move.batch(self.change)
            self.average = move.average(self.average, self.model, self.sampler.stop)
        self.progress = Progress.start(self.sampler.stop, device)
        set_training(self.model, self.moves)
        norms = [module for module in self.model.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]
        self.batch_statistics = [buffer for norm in norms if norm.training for buffer in norm.buffers()]
        self.kept = next((kept for move in self.moves if (kept := move.kept_start(self.model))), None)
        self.network = _network(self.model, context)

    @property
    def trained_model(self) -> nn.Module:
        """The model with the averaged weights if there are any."""
        return self.average.module if self.average else self.model

    @property
    def learning_rate(self) -> float:
        progress = self.progress
        rate = self.recipe.rate_at(progress.step, progress.total_steps, self.sampler.per_epoch)
        return progress.rate_share * rate

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        """Forward, backward, update; returns the mean loss.

        With non-finite gradients, the weights and the batch statistics stay as they were.
        """
        inputs, targets = self.prepare(images, labels)
        set_training(self.model, self.moves)
        statistics = [buffer.clone() for buffer in self.batch_statistics]
        backward: Backward = self.forward_backward
        for move in self.moves:
            backward = move.gradient(backward, self.model, self.batch_statistics)
        loss = backward(inputs, targets)
        is_bad = self.update()
        restore_where(is_bad, self.batch_statistics, statistics)
        if self.average:
            self.average.update(self.model, step=self.progress.step)
        self.progress.count_step(loss, is_bad)
        if self.progress.step % CHECK_EVERY == 0:
            self.check_gradients()
        return loss

    def prepare(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Normalises the images, and changes the batch; the targets become probabilities, or scaled numbers."""
        inputs = self.normalise(images)
        targets = wanted(labels.to(self.device, non_blocking=True), self.spec)
        if targets.ndim == 1:
            targets = (targets[:, None] == self.classes).float()  # F.one_hot checks targets, and waits for the result
        return self.change(inputs, targets, self.moment(len(inputs)))

    def moment(self, images: int) -> Moment:
        """Returns what moves may know of the step, for a batch of so many images."""
        progress, sampler, rows = self.progress, self.sampler, self.lessons.rows
        return Moment(
            self.recipe.seed,
            self.fold,
            progress.step,
            progress.total_steps,
            epoch=progress.step // sampler.per_epoch,
            classes=len(self.spec.classes),
            find_rows=lambda: np.resize(rows[sampler.images_of(progress.step)], images),  # batches of trials are others
            find_losses=lambda: progress.losses,
        )

    def forward_backward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Computes the gradients of the batch, in micro-batches; returns the mean loss."""
        processes = self.context.processes
        seed_torch(self.recipe.seed, self.fold, self.progress.step + 1, processes.rank)  # for dropout and drop path
        self.optimizer.zero_grad()
        # The weight of an image. The processes' gradients are averaged, so their number cancels out.
        weight = processes.size / self.sampler.batch_size
        loss = torch.zeros((), device=self.device)
        limit = min(self.recipe.part_size, micro_batch_limit(self.device, self.recipe.largest_size))
        micro_batches = split(inputs, targets, limit)
        for number, (part, part_targets) in enumerate(micro_batches, 1):
            with self.gradients_shared(number == len(micro_batches)):
                part_loss = self.loss(part, part_targets) * (len(part) * weight)
                self.scaler.scale(part_loss).backward()
            loss += part_loss.detach()
        return loss

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        columns: tuple[Tensor, ...] = ()
        if count := self.spec.column_count:  # they are the last of the targets: what mixes these mixes them, too
            columns, targets = (targets[:, -count:],), targets[:, :-count]
        with autocast(self.device, self.context.precision):
            output = self.network(inputs, *columns)
        logits, token_logits = output if isinstance(output, tuple) else (output, None)
        loss = self.label_loss(logits.float(), targets)
        if self.teacher:
            loss = loss.lerp(self.teacher.loss(inputs, logits, token_logits), TEACHERS_SHARE)
        return loss

    def gradients_shared(self, is_last: bool) -> AbstractContextManager[None]:
        """Several processes average their gradients once per step, with the last micro-batch."""
        if self.context.processes.size == 1 or is_last:
            return nullcontext()
        no_sync: AbstractContextManager[None] = self.network.no_sync()
        return no_sync

    def update(self) -> Tensor:
        """Clips the gradients and updates the weights; returns 1 where the gradients were not finite, else 0."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * group.get("lr_scale", 1.0)
        self.scaler.unscale_(self.optimizer)
        norm = clip_gradients(self.model, LARGEST_NORM)
        is_bad = (~norm.isfinite()).float()
        if self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
        else:
            step_unless_bad(self.optimizer, is_bad)
        self.scaler.update()
        return is_bad

    def check_gradients(self) -> None:
        if self.progress.skipped_in_a_row.item() >= MAX_BAD_STEPS:
            raise Diverged(f"the loss or its gradients were not finite for {MAX_BAD_STEPS} steps in a row or more")

    def check_weights(self) -> None:
        if not nn.utils.get_total_norm(self.model.parameters()).isfinite():
            raise Diverged("the weights are not finite")

    @property
    def batch_trial(self) -> Callable[[int], None] | None:
        """The function that tries a batch size; None with several processes, of which none can take a step alone."""
        return self.try_batch if self.context.processes.size == 1 else None

    def try_batch(self, images: int) -> None:
        """Takes steps with so many blank images, to test whether they fit into memory.

        Do not use the learner afterwards.
        """
        # A new scaler: the old one is in the middle of the step that failed.
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.scaler.is_enabled())
        height, width = sides_of(self.recipe.largest_size)
        for _ in range(2):  # the optimiser's own memory is there from its first update on
            labels = torch.from_numpy(self.lessons.targets[[0]]).repeat_interleave(images, 0)
            self.step(
                torch.zeros(images, height, width, self.spec.channel_count, dtype=torch.uint8, device=CPU), labels
            )


def unchanged(images: Tensor, targets: Tensor, moment: Moment) -> tuple[Tensor, Tensor]:
    return images, targets


# --- parts of a step ---------------------------------------------------------------------------------


def clip_gradients(model: nn.Module, most: float) -> Tensor:
    """Shrinks the gradients to this norm, as torch does; returns the norm that they had.

    torch multiplies by 1 what is small enough. Where to know the norm costs no waiting, this pass is left out.
    """
    norm = nn.utils.get_total_norm([grad for parameter in model.parameters() if (grad := parameter.grad) is not None])
    if not is_cpu(norm.device) or not float(norm.numpy()) + 1e-6 <= most:
        nn.utils.clip_grads_with_norm_(model.parameters(), most, norm)
    return norm


def split(inputs: Tensor, targets: Tensor, limit: int) -> list[tuple[Tensor, Tensor]]:
    """Splits a batch into micro-batches of at most `limit` images, and of two at least: batch norm needs them."""
    count = math.ceil(len(inputs) / limit)
    count = max(1, min(count, len(inputs) // 2))
    return list(zip(inputs.tensor_split(count), targets.tensor_split(count), strict=True))


def restore_where(is_bad: Tensor, tensors: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    """Restores the tensors if the step was bad, without making the GPU wait."""
    for tensor, value in zip(tensors, before, strict=True):
        tensor.copy_(torch.where(is_bad > 0, value, tensor))


def step_unless_bad(optimizer: torch.optim.Optimizer, is_bad: Tensor) -> None:
    """A fused optimiser checks `found_inf` on the device, so that the GPU does not wait."""
    if not optimizer.defaults.get("fused"):
        if not is_bad.item():
            optimizer.step()
        return
    optimizer.found_inf = is_bad  # type: ignore[attr-defined]
    optimizer.step()
    del optimizer.found_inf  # type: ignore[attr-defined]


# --- making a learner --------------------------------------------------------------------------------


def _initial_model(context: Context, fold: int) -> tuple[nn.Module, ModelSpec]:
    recipe, processes = context.recipe, context.processes
    # Features are computed once for all folds, so with --head-first all folds start from the same random weights.
    seed_torch(recipe.seed, 0 if recipe.fits_head else fold, 0)
    source = context.plan.start
    with processes.first_then_others():  # the first downloads the weights, the others find them in the cache
        model, spec = build_model(
            recipe,
            context.competition.classes,
            start=source.weights_path(fold) if source else None,
            backbone=context.plan.backbone,
            recorded_source=context.run.recorded_source,
            column_count=context.images.column_count,
            channels=context.images.channels,
        )
    if recipe.sizes != {recipe.image_size}:
        check_sizes(model, recipe.model, recipe.sizes, recipe.size_remedy)
    if context.machine.checkpointing:
        recompute_in_backward(model, recipe)
    if context.further and recipe.head == ARCFACE:
        raise PodiumError("--head arcface compares directions only; leave it out, or remove `also` from the card")
    if context.further and not add_further_outputs(model, len(spec.classes), context.further.outputs):
        raise PodiumError(f"{recipe.model} has no output layer that could learn the card's `also`; remove it")
    return model, complete_spec(context.images, spec, fold)


def recompute_in_backward(model: nn.Module, recipe: Recipe) -> None:
    """Lets the backward pass compute the activations again, which need most of the memory, in place of keeping them."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]
    if norms and recipe.gathers_statistics:
        raise PodiumError(
            "--checkpointing would count each batch twice in the statistics of batch norm; add --norm frozen"
        )
    try:
        model.set_grad_checkpointing(True)  # type: ignore[operator]
    except (AttributeError, AssertionError, NotImplementedError):
        raise PodiumError(f"{recipe.model} has no --checkpointing; leave it out, or take another model") from None


def _network(model: nn.Module, context: Context) -> Any:
    """Returns the model, or what wraps it for several processes and torch.compile."""
    network: Any = model
    if context.processes.size > 1:
        devices = [context.device] if is_gpu(context.device) else None
        network = DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
        network.broadcast_buffers = False  # Processes.broadcast_statistics does it, before they are needed
    if not context.machine.compiled:
        return network
    import torch._dynamo

    torch._dynamo.config.recompile_limit = MOST_SIZES
    return torch.compile(network, mode="reduce-overhead" if _repeats_one_pass(context) else "default")


def _repeats_one_pass(context: Context) -> bool:
    """Returns whether a step is one forward and one backward pass, always the same.

    Then a GPU repeats a recorded pass without waiting for the CPU. With several passes in a step, the gradients of the
    first lie in memory that the second would overwrite.
    """
    recipe = context.recipe
    is_alone = is_gpu(context.device) and context.processes.size == 1
    return is_alone and recipe.part_size == recipe.batch_size and not recipe.added_cost.passes
