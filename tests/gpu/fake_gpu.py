"""A GPU that is not there: fake tensors have its device, a type and a shape, and no values.

What needs a value raises DataDependentOutputException: on a GPU it would wait for all that is queued. Tensors of two
devices in one operation raise, too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_impls import op_implementations_dict
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from podium.training.fold_loss import make_label_loss
from podium.training.learner import Learner
from podium.training.optimizer import create_optimizer

GPU = torch.device("cuda")
IMAGES = 8
MODULES_OF_AMP = ("torch.amp.autocast_mode", "torch.amp.grad_scaler")


@contextmanager
def fake_gpu() -> Iterator[None]:
    """Lets torch believe in a GPU: tensors that are made or moved there are fake."""
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode(allow_non_fake_inputs=True):
        for module in MODULES_OF_AMP:
            patch.setattr(f"{module}.amp_definitely_not_available", lambda: False, raising=False)
        patch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False, raising=False)
        patch.setattr("torch.cuda.is_bf16_supported", lambda *_, **__: True)
        yield


def fake(tensor: Tensor, device: torch.device = GPU) -> Tensor:
    """Returns a fake tensor that has this one's shape and type."""
    return torch.empty_like(tensor, device=device)


def move(module: nn.Module, device: torch.device) -> None:
    """Gives the module fake parameters and buffers: `module.to` fails, because they are tensors of another kind."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(fake(parameter, device), requires_grad=parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = fake(buffer, device)


def move_learner(learner: Learner, precision: torch.dtype, device: torch.device = GPU) -> None:
    """Moves all that a step uses to the fake GPU."""
    labels, progress, normalise = learner.context.images.targets, learner.progress, learner.normalise
    learner.device, learner.context = device, replace(learner.context, device=device, precision=precision)
    for module in filter(None, (learner.model, learner.average and learner.average.module)):
        move(module, device)
    norms = [module for module in learner.model.modules() if isinstance(module, nn.modules.batchnorm._NormBase)]
    learner.batch_statistics = [buffer for norm in norms if norm.training for buffer in norm.buffers()]
    for member in learner.teacher.members if learner.teacher else []:
        move(member.model, device)
        member.scale, member.shift = fake(member.scale, device), fake(member.shift, device)
    if learner.teacher:
        learner.teacher.device, learner.teacher.precision = device, precision
    normalise.device, normalise.scale, normalise.shift = (
        device,
        fake(normalise.scale, device),
        fake(normalise.shift, device),
    )
    learner.classes = torch.arange(len(learner.spec.classes), device=device)
    learner.label_loss = make_label_loss(learner.recipe, labels, len(learner.spec.classes), device)
    for name in ("loss_sum", "skipped", "skipped_in_a_row"):
        setattr(progress, name, torch.zeros((), device=device))
    learner.optimizer = create_optimizer(learner.model, learner.recipe)
    learner.scaler = torch.amp.GradScaler("cuda", enabled=precision == torch.float16)


def a_fake_batch(labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Returns images and labels in the CPU's memory, without values."""
    images = torch.zeros(IMAGES, 32, 32, 3, dtype=torch.uint8)
    return images, torch.zeros(IMAGES, dtype=torch.int64) if labels is None else torch.zeros_like(labels)


# --- what reads values -------------------------------------------------------------------------------


@contextmanager
def answered() -> Iterator[list[torch.dtype]]:
    """Answers what Python asks of a fake tensor, always with 1, and gives numpy equal shares for those of the CPU.

    Yields the types of what a device was asked for: a GPU waits for each.
    """
    original_numpy, original_to, questions = Tensor.numpy, Tensor.to, list[torch.dtype]()

    def answer(mode: object, function: object, tensor: Tensor) -> Any:
        if tensor.device.type != "cpu":
            questions.append(tensor.dtype)
        return True if tensor.dtype == torch.bool else 1.0 if tensor.is_floating_point() else 1

    def numpy(tensor: Tensor, **options: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return original_numpy(tensor, **options)
        if tensor.device.type != "cpu":
            raise TypeError(f"can't convert {tensor.device.type} device type tensor to numpy")
        shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        return np.full(shape, 1 / max(1, *shape[-1:]) if tensor.is_floating_point() else 0, dtype)

    def to(tensor: Tensor, *where: Any, **options: Any) -> Tensor:
        """Moves real tensors, too, such as those that a loader's thread has made."""
        is_real = not isinstance(tensor, FakeTensor) and where and getattr(where[0], "type", "") == "fakegpu"
        return original_to(mode.from_tensor(tensor) if is_real else tensor, *where, **options)

    with pytest.MonkeyPatch.context() as patch, FakeTensorMode(allow_non_fake_inputs=True) as mode:
        patch.setattr(Tensor, "numpy", numpy)
        patch.setattr(Tensor, "to", to)
        patch.setattr(torch, "allclose", lambda *_, **__: True)
        patch.setitem(op_implementations_dict, torch.ops.aten._local_scalar_dense.default, answer)
        yield questions
