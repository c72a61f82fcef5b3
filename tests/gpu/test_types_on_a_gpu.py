"""The types and devices of a step's tensors on a GPU, without one: fake tensors have them, and no values.

Backward passes fail on fake tensors of a GPU, so gradients are set by hand. What needs a value fails too: on a GPU it
would wait for all that is queued.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import bars
import marks
import several_labels as stripes
from podium.models.predict import predict_proba, probs_of
from podium.training.context import open_context
from podium.training.learner import Learner
from podium.training.losses import make_label_loss
from podium.training.optimizer import create_optimizer
from podium.training.plan import make_plan
from podium.training.request import Request, check_before_plan
from tiny import Podium, podium_at
from training.learners import SMALL, learner_of

GPU = torch.device("cuda")
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


def fake(tensor: Tensor) -> Tensor:
    """Returns a fake tensor of the GPU that has this one's shape and type."""
    return torch.empty_like(tensor, device=GPU)


def move(module: nn.Module) -> None:
    """Gives the module fake parameters and buffers: `module.to` fails, because they are tensors of another kind."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(fake(parameter), requires_grad=parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = fake(buffer)


def move_learner(learner: Learner, precision: torch.dtype) -> None:
    """Moves all that a step uses to the fake GPU."""
    labels = learner.context.target_of_image
    learner.device, learner.context = GPU, replace(learner.context, device=GPU, precision=precision)
    for module in filter(None, (learner.model, learner.average and learner.average.module)):
        move(module)
    for member in learner.teacher.members if learner.teacher else []:
        move(member.model)
        member.scale, member.shift = fake(member.scale), fake(member.shift)
    if learner.teacher:
        learner.teacher.device, learner.teacher.precision = GPU, precision
    normalise = learner.normalise
    normalise.device, normalise.scale, normalise.shift = GPU, fake(normalise.scale), fake(normalise.shift)
    learner.classes = torch.arange(len(learner.spec.classes), device=GPU)
    learner.label_loss = make_label_loss(learner.recipe, labels, len(learner.spec.classes), GPU)
    progress = learner.progress
    for name in ("loss_sum", "skipped", "skipped_in_a_row"):
        setattr(progress, name, torch.zeros((), device=GPU))
    learner.optimizer = create_optimizer(learner.model, learner.recipe)
    learner.scaler = torch.amp.GradScaler("cuda", enabled=precision == torch.float16)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"mix": 1.0, "smoothing": 0.1},
    {"class_weights": "balanced"},
    {"loss": "focal"},
    {"ema": 0.5, "clip": 1.0},
    {"drop_path": 0.1, "norm": "frozen"},
    {"freeze": 0.5, "head_rate": 10.0, "layer_decay": 0.8},
]


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("model", ["test_vit", "test_resnet"])
def test_a_step(tiny: Path, model: str, options: dict[str, Any], precision: torch.dtype) -> None:
    take_a_step(learner_of(tiny, model=model, **options), precision, torch.zeros(8, dtype=torch.int64))


@pytest.mark.parametrize(
    ("slug", "write"),
    [
        (stripes.SLUG, partial(stripes.write_competition, as_tags=True)),
        (marks.SLUG, marks.write_competition),
        (bars.SLUG, partial(bars.write_competition, columns=bars.COLUMNS["two"])),
    ],
    ids=["several labels", "several targets", "numbers"],
)
def test_a_step_of_any_task(tmp_path: Path, slug: str, write: Callable[[Path], object]) -> None:
    write(tmp_path)
    podium_at(tmp_path, "folds", "-c", slug, "--k", "3")
    plan = make_plan(check_before_plan(slug, tmp_path, Request({**SMALL, "model": "test_resnet"}, folds=(0,))))
    with open_context(plan) as context:
        learner = Learner(context, fold=0)
        values = torch.from_numpy(context.target_of_image.values[context.training_rows(0)[:8]])
    take_a_step(learner, torch.float16, values)


def take_a_step(learner: Learner, precision: torch.dtype, labels: Tensor) -> None:
    """Checks the types and the devices of all that a step makes."""
    types: list[torch.dtype] = []
    learner.model.register_forward_hook(lambda module, inputs, output: types.append(output.dtype))
    with fake_gpu():
        move_learner(learner, precision)
        images, labels = torch.zeros(8, 32, 32, 3, dtype=torch.uint8), torch.zeros_like(labels)
        inputs, targets = learner.prepare(images, labels)
        assert (inputs.device.type, inputs.dtype, targets.device.type) == ("cuda", torch.float32, "cuda")
        loss = learner.loss(inputs, targets)
        assert types == [precision]  # autocast: the model computes in short numbers, and the loss does not
        assert (loss.device.type, loss.dtype) == ("cuda", torch.float32)
        learner.scaler.scale(loss)
        for parameter in learner.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        is_bad = learner.update()  # without waiting: a value would be needed
        learner.progress.count_step(loss.detach(), is_bad)
        if learner.average:
            learner.average.update(learner.model, step=0)
        for tensor in learner.trained_model.state_dict().values():
            assert tensor.device.type == "cuda"
            assert tensor.dtype in (torch.float32, torch.int64)
        for state in learner.optimizer.state.values():
            assert {value.dtype for value in state.values() if isinstance(value, Tensor)} == {torch.float32}


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_predictions_are_floats_of_32_bits(tiny: Path, precision: torch.dtype) -> None:
    learner = learner_of(tiny, model="test_vit")
    with fake_gpu():
        move_learner(learner, precision)
        images = torch.zeros(8, 32, 32, 3, dtype=torch.uint8)
        with torch.autocast("cuda", precision):
            logits = learner.model(learner.normalise(images))
        assert logits.dtype == precision
        assert probs_of(logits, learner.spec).dtype == torch.float32
        with pytest.raises((DataDependentOutputException, RuntimeError)):  # numpy needs the values, once at the end
            predict_proba(learner.model, [(images, images)], learner.normalise, precision, "mirror")


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_a_teacher(tiny: Path, podium: Podium, precision: torch.dtype) -> None:
    words = ("train", "-c", "tiny", "--weights", "none", "--image-size", "32", "--batch-size", "8", "--workers", "0")
    assert podium(*words, "--model", "test_resnet", "--name", "teacher", "--folds", "0", "--epochs", "1")[0] == 0
    learner = learner_of(tiny, name="student", model="test_vit", teacher="teacher")
    assert learner.teacher
    with fake_gpu():
        move_learner(learner, precision)
        images, labels = torch.zeros(8, 32, 32, 3, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64)
        inputs, targets = learner.prepare(images, labels)
        assert learner.teacher(inputs).dtype == torch.float32
        assert learner.loss(inputs, targets).dtype == torch.float32


def test_a_wait_is_noticed() -> None:
    with fake_gpu(), pytest.raises(DataDependentOutputException):
        torch.zeros(3, device=GPU).sum().item()
