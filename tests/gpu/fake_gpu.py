"""A GPU that is not there: fake tensors have its device, a type and a shape, and no values.

What needs a value raises DataDependentOutputException: on a GPU it would wait for all that is queued. Tensors of two
devices in one operation raise, too.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from podium.training.learner import Learner
from podium.training.losses import make_label_loss
from podium.training.optimizer import create_optimizer
from training.learners import learner_of

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
    labels, progress, normalise = learner.context.target_of_image, learner.progress, learner.normalise
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


def take_whole_steps(root: Path, model: str, options: Sequence[dict[str, Any]], report: Path) -> None:
    """Takes steps with backward passes on an accelerator of torch's for tests; reports what fails, by option.

    Call it in a process of its own: torch can have one such accelerator, and keeps it.
    """
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend("fakegpu")
    device, problems = torch.device("fakegpu"), {}
    for some in options:
        # Without the operators that only a CPU has.
        learner = learner_of(root, **{"name": "student", "model": model, "operators": "timm", **some})
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                move_learner(learner, torch.float32, device)
                for _ in range(2):  # the second finds the state of the optimiser
                    learner.step(*a_fake_batch())
                gradients = [weight.grad for weight in learner.model.parameters() if weight.grad is not None]
                assert gradients
                assert {gradient.device.type for gradient in gradients} == {device.type}
        except Exception as problem:
            problems[str(some)] = f"{type(problem).__name__}: {problem}"
    report.write_text(json.dumps(problems))
    os._exit(0)  # at the end of Python, torch's threads for this accelerator would crash
