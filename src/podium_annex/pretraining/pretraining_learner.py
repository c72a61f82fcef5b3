"""The student, the teacher, and everything else that changes with a step of DINO.

`DinoLearner.step` is one step: the teacher sees the large crops, the student all crops, and the teacher follows.
"""

from typing import TYPE_CHECKING, Any

from podium.basics.errors import PodiumError
from podium.basics.image_size import square_side
from podium.models.build import ModelSpec, build_model, sizes_near, try_size
from podium.options.recipe import Options, Recipe

if TYPE_CHECKING:
    from torch import nn
import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor, nn

from podium.basics.image_size import sides_of
from podium.basics.randomness import seed_torch
from podium.models.device import CPU, autocast, micro_batch_limit
from podium.models.place import place_model
from podium.training.learner import MAX_BAD_STEPS, Diverged
from podium.training.learner_state import optimizer_tensors, restore_optimizer
from podium.training.loader import BatchSampler
from podium.training.optimizer import create_optimizer
from podium_annex.pretraining.crops import LARGE_CROPS, CropSizes, unpack
from podium_annex.pretraining.dino import (
    Head,
    Network,
    dino_loss,
    momentum_at,
    move_centre,
    move_teacher,
    teacher_probs,
    teacher_temperature_at,
)
from podium_annex.pretraining.pretraining_folder import PretrainingEpoch
from podium_annex.pretraining.pretraining_plan import PretrainingPlan

# Of the gradient, as in the paper: longer ones come from a teacher that has just changed its mind.
LARGEST_NORM = 3.0
FROZEN_EPOCHS = 1  # of the head's last layer: at first it would learn to follow the noise of the features


@dataclass
class EpochSums:
    """Sums over the steps of an epoch, on the device."""

    loss: Tensor
    probs: Tensor  # the teacher's mean output
    image_entropy: Tensor

    @staticmethod
    def zeros(outputs: int, device: torch.device) -> "EpochSums":
        return EpochSums(*(torch.zeros(shape, device=device) for shape in ((), (outputs,), ())))

    def add(self, loss: Tensor, targets: Tensor, weight: float) -> None:
        """Adds a part of a batch; `targets` are the teacher's probabilities [crops, images, outputs]."""
        self.loss += loss.detach() * weight
        self.probs += targets.mean((0, 1)) * weight
        self.image_entropy += torch.special.entr(targets).sum(-1).mean() * weight

    def clear(self) -> None:
        for total in vars(self).values():
            total.zero_()


@dataclass
class DinoProgress:
    total_steps: int
    sums: EpochSums
    step: int = 0
    bad_steps: int = 0  # in a row
    seconds: float = 0.0  # spent on this epoch
    history: list[PretrainingEpoch] = field(default_factory=list)


class DinoLearner:
    def __init__(self, plan: PretrainingPlan, images: int, device: torch.device, precision: torch.dtype) -> None:
        recipe, request = plan.recipe, plan.request
        self.recipe, self.device, self.precision = recipe, device, precision
        self.sampler = BatchSampler(images, recipe.batch_size, recipe.epochs, (recipe.seed, 0))
        seed_torch(recipe.seed, 0, 0)
        backbone, self.spec, small_size = build_backbone(recipe)
        self.sizes = CropSizes(square_side(recipe.image_size, "pretraining"), small_size, request.small_crops)
        self.student = Network(backbone, Head(_feature_count(backbone, recipe), request.outputs)).to(device)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.normalise = place_model(self.student.backbone, self.spec, device, precision)
        place_model(self.teacher.backbone, self.spec, device, precision)
        self.centre = torch.zeros(request.outputs, device=device)
        self.optimizer = create_optimizer(self.student, recipe)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == torch.float16)
        self.progress = DinoProgress(self.sampler.stop, EpochSums.zeros(request.outputs, device))

    @property
    def epoch(self) -> int:
        return self.progress.step // self.sampler.per_epoch

    @property
    def learning_rate(self) -> float:
        return self.recipe.rate_at(self.progress.step, self.progress.total_steps, self.sampler.per_epoch)

    def step(self, rows: Tensor) -> None:
        """Takes the rows of a MultiCropView: forward, backward, update, and the teacher follows."""
        progress = self.progress
        seed_torch(self.recipe.seed, 0, progress.step + 1)  # for models with dropout of their own
        self.student.train()
        self.teacher.train()  # batch norm, where a model has it, normalises by the batch in both
        self.optimizer.zero_grad()
        teacher_outputs = []
        for part in self.micro_batches(rows):
            loss, outputs = self.loss(part, len(part) / len(rows))
            self.scaler.scale(loss).backward()
            teacher_outputs.append(outputs)
        is_good = self.update()
        progress.bad_steps = 0 if is_good else progress.bad_steps + 1
        if progress.bad_steps >= MAX_BAD_STEPS:
            raise Diverged(f"the loss or its gradients were not finite for {MAX_BAD_STEPS} steps in a row")
        if is_good:
            self.centre = move_centre(self.centre, torch.cat(teacher_outputs, 1))
            move_teacher(self.teacher, self.student, momentum_at(progress.step, progress.total_steps))
        progress.step += 1

    def loss(self, rows: Tensor, weight: float) -> tuple[Tensor, Tensor]:
        """Returns the part's share of the batch's loss, and what the teacher says [large crops, images, outputs]."""
        crops = [self.normalise(images) for images in unpack(rows.to(self.device, non_blocking=True), self.sizes)]
        with autocast(self.device, self.precision):
            with torch.no_grad():
                teacher_outputs = self.teacher(crops[0]).float().unflatten(0, (LARGE_CROPS, -1))
            student_outputs = [self.student(images).float().unflatten(0, (-1, len(rows))) for images in crops]
        temperature = teacher_temperature_at(self.epoch, self.recipe.epochs)
        targets = teacher_probs(teacher_outputs, self.centre, temperature)
        loss = dino_loss(torch.cat(student_outputs), targets)
        self.progress.sums.add(loss, targets, weight)
        return loss * weight, teacher_outputs

    def micro_batches(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Splits a batch so that the crops of a part have no more pixels than a micro-batch of training."""
        images_in_crops = rows.shape[1] / (self.sizes.large**2 * 3)
        limit = max(2, int(micro_batch_limit(self.device, self.sizes.large) / images_in_crops))
        count = max(1, min(math.ceil(len(rows) / limit), len(rows) // 2))
        return rows.tensor_split(count)

    def update(self) -> bool:
        """Clips the gradients and updates the student; returns False if they were not finite."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate
        if self.epoch < FROZEN_EPOCHS:
            self.student.head.last.grad = None
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.student.parameters(), LARGEST_NORM)
        is_good = bool(norm.isfinite())  # a GPU waits here, for less than a hundredth of a step
        if is_good:
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return is_good

    # --- checkpoints ---

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Returns what a checkpoint holds: the tensors, and the other values as JSON."""
        progress = self.progress
        tensors = {
            f"{name}.{key}": value
            for name, network in (("student", self.student), ("teacher", self.teacher))
            for key, value in network.state_dict().items()
        }
        tensors |= optimizer_tensors(self.optimizer) | {
            f"sum.{name}": total for name, total in vars(progress.sums).items()
        }
        values = {
            "step": progress.step,
            "bad_steps": progress.bad_steps,
            "seconds": progress.seconds,
            "history": [asdict(epoch) for epoch in progress.history],
            "scaler": self.scaler.state_dict(),
        }
        return {**tensors, "centre": self.centre}, values

    def restore(self, tensors: Mapping[str, Tensor], values: dict[str, Any]) -> None:
        """Puts a saved state into the learner; raises if it is of another model or other options."""
        for name, network in (("student", self.student), ("teacher", self.teacher)):
            network.load_state_dict({key: tensors[f"{name}.{key}"] for key in network.state_dict()})
        restore_optimizer(self.optimizer, tensors)
        self.scaler.load_state_dict(values["scaler"])
        self.centre.copy_(tensors["centre"])
        progress = self.progress
        for name, total in vars(progress.sums).items():
            total.copy_(tensors[f"sum.{name}"])
        progress.step, progress.bad_steps = int(values["step"]), int(values["bad_steps"])
        progress.seconds = float(values["seconds"])
        progress.history = [PretrainingEpoch(**epoch) for epoch in values["history"]]


@torch.inference_mode()
def _feature_count(backbone: nn.Module, recipe: Recipe) -> int:
    features: Tensor = backbone.eval()(torch.zeros(1, 3, *sides_of(recipe.image_size), device=CPU))
    return features.shape[-1]


# --- a backbone that takes crops of two sizes --------------------------------------------------------

# What timm's models need to take any size: most nothing, ViTs and Swin an option. The parameters stay the same.
ANY_SIZE: tuple[Options, ...] = ({}, {"dynamic_img_size": True}, {"strict_img_size": False})


def build_backbone(recipe: Recipe) -> tuple["nn.Module", ModelSpec, int]:
    """Returns a model whose output is its features, the description of its inputs, and the size of small images."""
    problems = []
    for further in ANY_SIZE:
        try:
            model, spec = build_model(recipe, (), further=further)
        except PodiumError as problem:
            problems.append(problem)
            continue
        size = small_size(model, square_side(recipe.image_size, "pretraining"))
        if size:
            return model, spec, size
    if len(problems) == len(ANY_SIZE):
        raise problems[0]  # the others say that the model has no such option
    raise PodiumError(
        f"{recipe.model} takes no images smaller than {recipe.image_size} pixels, which the small crops are; use a"
        " larger --image-size, or a model that takes any size: a ConvNet, a timm ViT or cpvt_nano"
    )


def small_size(model: "nn.Module", image_size: int) -> int | None:
    """Returns the size nearest to half of the image size that the model takes; None if it takes no smaller size.

    The last map should have more than one pixel: with one, torch 2.15 computes a wrong gradient of a bfloat16
    convolution, and a crop of a single token has nothing to attend to.
    """
    half, reduction = image_size // 2, _reduction(model)
    sizes = [size for size in (half, *sizes_near(half)) if max(reduction, 1) <= size < image_size]
    sizes.sort(key=lambda size: size <= reduction)
    return next((size for size in sizes if not try_size(model, size)[1]), None)


def _reduction(model: Any) -> int:
    """Returns how many pixels of the image a pixel of the last map stands for, as far as timm knows."""
    info = getattr(model, "feature_info", None) or [{"reduction": 1}]
    return max(int(layer["reduction"]) for layer in info)
