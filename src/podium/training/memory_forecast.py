"""Forecasts the memory that training needs on a GPU, by a step of tensors that have shapes and no contents.

Nothing is computed, so a large model takes seconds on any machine. A CPU needs more, as working memory of its own.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from podium.basics.image_size import sides_of
from podium.models.build import build_model
from podium.models.device import CPU, autocast
from podium.options.moves.move import set_training
from podium.options.recipe import Recipe
from podium.training.learner import recompute_in_backward

STATES = {"adamw": 2, "muon": 1}  # numbers that an optimizer keeps for each weight
MOST_STATES = 2  # of the usual ones


class Memory(NamedTuple):
    held: int  # bytes: the weights, copies of them, and what the optimizer keeps
    step: int  # bytes that a step needs at most: gradients, and what the forward pass keeps for the backward pass


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of the tensors that operators make, until they are freed."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.peak = 0, 0
        self.counted: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, operator: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        made = operator(*args, **(kwargs or {}))
        tree_map_only(Tensor, self.count, made)
        return made

    def count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key in self.counted:
            return

        def forget(_: object) -> None:
            del self.counted[key]
            self.now -= size

        self.counted[key] = weakref.ref(storage, forget)
        self.now += size
        self.peak = max(self.peak, self.now)


def forecast_memory(recipe: Recipe, classes: Sequence[str], checkpointing: bool) -> Memory:
    """Returns what a step of one part of a batch needs, at the largest size of the images in training."""
    model, _ = build_model(recipe.but(weights="none"), classes)
    if checkpointing:
        recompute_in_backward(model, recipe)
    for move in recipe.moves:
        move.learns(model, recipe.model, (recipe.seed, 0))
    set_training(model, recipe.moves)
    learned = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
    weights = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    added = recipe.added_cost
    copies = 1 + added.copies
    held = copies * weights + (STATES.get(recipe.optimizer, MOST_STATES) + added.copies_of_learned) * learned
    return Memory(held, live_bytes_of_step(model, recipe))


def live_bytes_of_step(model: nn.Module, recipe: Recipe) -> int:
    """Returns the most bytes that live at once in forward and backward pass, without the weights."""
    precision = torch.float32 if recipe.precision == "float32" else torch.bfloat16
    live = LiveBytes()
    with FakeTensorMode(allow_non_fake_inputs=True), live:
        images = torch.empty(recipe.part_size, 3, *sides_of(recipe.largest_size), device=CPU)
        labels = torch.zeros(recipe.part_size, dtype=torch.int64, device=CPU)
        with autocast(CPU, precision):
            outputs = model(images)
        F.cross_entropy(outputs.float(), labels).backward()
    return live.peak
