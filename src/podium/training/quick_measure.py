"""Measures in seconds how fast this machine trains a model, without images, and estimates how long a run takes.

The images of a measurement are random, so the time to load images does not count. Training itself measures again, with
real images, and says how long it will take.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F

from podium.image_size import area_of, sides_of
from podium.models.build import build_model
from podium.models.device import autocast, pick_device, pick_precision, prepare_device
from podium.models.hardware_errors import explain_hardware_errors
from podium.models.place import place_model
from podium.recipe import Recipe, image_size_at, relative_area
from podium.training.forecast import FORWARD_SHARE
from podium.training.frozen_layers import set_training
from podium.training.kept_start import images_checked

CPU_PIXELS = 4 * 224**2  # of a step on a CPU: larger batches take longer, and are hardly faster per image
LONGEST = 2.0  # seconds; then the measurement ends after the current step
MOST_STEPS = 5
OPTIMIZER_COST = {"muon": 1.25}  # of a step, relative to one with AdamW


def measure_training(recipe: Recipe, classes: Sequence[str], device_choice: str) -> float:
    """Returns the training images per second of the recipe's model, at its image size and precision."""
    device = pick_device(device_choice)
    prepare_device(device, deterministic=False)
    precision = pick_precision(recipe.precision, device)
    model, spec = build_model(replace(recipe, weights="none"), classes)
    layout = place_model(model, spec, device, precision).layout
    set_training(model, recipe.norm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
    count = recipe.part_size
    if device.type == "cpu":
        count = min(count, max(2, CPU_PIXELS // area_of(recipe.image_size)))
    images = torch.randn(count, 3, *sides_of(recipe.image_size), device=device).to(memory_format=layout)
    targets = torch.zeros(count, dtype=torch.int64, device=device)

    def step() -> None:
        optimizer.zero_grad()
        with autocast(device, precision):
            loss = F.cross_entropy(model(images).float(), targets)
        loss.backward()
        optimizer.step()
        loss.item()  # waits for the device

    with explain_hardware_errors(recipe.batch_size):
        step()  # allocates memory and chooses kernels
        seconds: list[float] = []
        while len(seconds) < MOST_STEPS and sum(seconds) < LONGEST:
            started = time.monotonic()
            step()
            seconds.append(time.monotonic() - started)
    step_cost = OPTIMIZER_COST.get(recipe.optimizer, 1.0) * (2 if recipe.sam else 1)
    return count / statistics.median(seconds) / step_cost


def estimate_seconds(recipe: Recipe, training_images: int, held_out_images: int, images_per_s: float) -> float:
    """Returns the seconds that one fold takes at this speed."""
    features = (training_images + held_out_images) * recipe.view_count * FORWARD_SHARE / images_per_s
    if recipe.linear:
        return features
    epochs = sum(relative_area(image_size_at(epoch, recipe), recipe) for epoch in range(recipe.epochs))
    predicted = held_out_images * (recipe.epochs - 1 + recipe.view_count)
    predicted += images_checked(recipe.keep, training_images) * recipe.epochs
    forward = predicted * FORWARD_SHARE * relative_area(recipe.test_size, recipe)
    seconds = (training_images * epochs + forward) / images_per_s
    return seconds + (features if recipe.head_first else 0.0)
