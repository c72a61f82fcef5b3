"""Measures a training step as everyone writes it with timm and torch, of images that are on the device already.

The time to load images does not count. --dry-run and --model auto multiply this step (fold_work.py), `podium bench`
compares training with it, and `podium doctor` finds out whether a device can take it. A run that has begun measures its
own steps, with real images (forecast.py).
"""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from podium.basics.image_size import area_of, sides_of
from podium.models.device import autocast, is_cpu, pick_device, pick_precision, prepare_device, wait_for
from podium.models.hardware_errors import explain_hardware_errors
from podium.options.moves.move import set_training
from podium.options.recipe import Recipe

CPU_PIXELS = 4 * 224**2  # of a step on a CPU: larger batches take longer, and are hardly faster per image
LONGEST = 2.0  # seconds; then the measurement ends after the current step
MOST_STEPS = 5
OPTIMIZER_COST = {"muon": 1.25}  # of a step, relative to one with AdamW


class PlainStep:
    """Forward, backward and update of one batch."""

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        optimizer: torch.optim.Optimizer,
        images: Tensor,
        labels: Tensor,
        precision: torch.dtype,
    ) -> None:
        self.model, self.optimizer, self.images, self.labels = model, optimizer, images, labels
        self.precision = precision
        self.scaler = torch.amp.GradScaler(images.device.type, enabled=precision == torch.float16)

    def __call__(self) -> Tensor:
        """Returns the loss."""
        self.optimizer.zero_grad()
        with autocast(self.images.device, self.precision):
            logits = self.model(self.images)
        loss = F.cross_entropy(logits.float(), self.labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss


def seconds_of(device: torch.device, work: Callable[[], object], times: int = 1) -> float:
    """Returns how long it takes to do the work so many times, until the device has finished."""
    wait_for(device)
    started = time.monotonic()
    for _ in range(times):
        work()
    wait_for(device)
    return time.monotonic() - started


def measure_training(recipe: Recipe, classes: Sequence[str], device_choice: str) -> float:
    """Returns the training images per second of the recipe's model, at its image size and precision: takes seconds."""
    from podium.models.build import build_model  # these import timm, which a plain step does not need
    from podium.models.place import place_model

    device = pick_device(device_choice)
    prepare_device(device, deterministic=False)
    precision = pick_precision(recipe.precision, device)
    model, spec = build_model(recipe.but(weights="none"), classes)
    layout = place_model(model, spec, device, precision).layout
    set_training(model, recipe.moves)
    count = recipe.part_size
    if is_cpu(device):
        count = min(count, max(2, CPU_PIXELS // area_of(recipe.image_size)))
    images = torch.randn(count, 3, *sides_of(recipe.image_size), device=device).to(memory_format=layout)
    labels = torch.zeros(count, dtype=torch.int64, device=device)
    step = PlainStep(model, torch.optim.AdamW(model.parameters(), lr=1e-6), images, labels, precision)
    with explain_hardware_errors(recipe.batch_size):
        step()  # allocates memory and chooses kernels
        seconds: list[float] = []
        while len(seconds) < MOST_STEPS and sum(seconds) < LONGEST:
            seconds.append(seconds_of(device, step))
    step_cost = OPTIMIZER_COST.get(recipe.optimizer, 1.0) * (1 + recipe.added_cost.passes)
    return count / statistics.median(seconds) / step_cost
