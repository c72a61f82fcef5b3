"""What a step does on a GPU, shown without one by fake tensors: types, devices, and that it waits for nothing.

With CUDA's name, types are right but backward passes fail, so gradients are set by hand; with an accelerator of torch's
for tests, a whole step runs, without autocast.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorDeviceMismatchError

from gpu.fake_gpu import GPU, a_fake_batch, fake_gpu, move_learner
from gpu.whole_work import failures, steps_of_tasks, steps_with_options, the_rest
from podium.models.predict import predict_proba, probs_of
from podium.training.learner import Learner
from second_round import first_of
from tiny import FAST, Podium, done
from training.learners import TASKS, learner_of, learner_of_task, other_tasks

TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_resnet", "--folds", "0", "--epochs", "1")
PRECISIONS = [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.all)]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"mix": 1.0, "smoothing": 0.1},
    {"class_weights": "balanced"},
    {"loss": "focal"},
    {"ema": 0.5},
    {"drop_path": 0.1, "norm": "frozen"},
    {"freeze": 0.5, "layer_decay": 0.8},
]


@pytest.mark.parametrize("precision", PRECISIONS, ids=["float16", "bfloat16"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("model", first_of(["test_vit"], ["test_vit", "test_resnet"]))
def test_a_step(tiny: Path, model: str, options: dict[str, Any], precision: torch.dtype) -> None:
    take_a_step(learner_of(tiny, model=model, **options), precision, torch.zeros(8, dtype=torch.int64))


@other_tasks
@pytest.mark.all
def test_a_step_of_any_task(tmp_path: Path, slug: str, write: Callable[[Path], object]) -> None:
    learner, labels = learner_of_task(tmp_path, slug, write)
    take_a_step(learner, torch.float16, labels)


def take_a_step(learner: Learner, precision: torch.dtype, labels: Tensor) -> None:
    """Checks the types and the devices of all that a step makes."""
    types: list[torch.dtype] = []
    learner.model.register_forward_hook(lambda module, inputs, output: types.append(output.dtype))
    with fake_gpu():
        move_learner(learner, precision)
        inputs, targets = learner.prepare(*a_fake_batch(labels))
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


@pytest.mark.parametrize("precision", PRECISIONS, ids=["float16", "bfloat16"])
def test_predictions_are_floats_of_32_bits(tiny: Path, precision: torch.dtype) -> None:
    learner = learner_of(tiny, model="test_vit")
    with fake_gpu():
        move_learner(learner, precision)
        images, _ = a_fake_batch()
        with torch.autocast("cuda", precision):
            logits = learner.model(learner.normalise(images))
        assert logits.dtype == precision
        assert probs_of(logits, learner.spec).dtype == torch.float32
        with pytest.raises((DataDependentOutputException, RuntimeError)):  # numpy needs the values, once at the end
            predict_proba(learner.model, [(images, images)], learner.normalise, precision, "mirror")


@pytest.mark.parametrize("precision", PRECISIONS, ids=["float16", "bfloat16"])
def test_a_teacher(tiny: Path, podium: Podium, precision: torch.dtype) -> None:
    done(podium(*TRAIN, "--name", "teacher"))
    learner = learner_of(tiny, name="student", model="test_vit", teacher="teacher")
    assert learner.teacher
    with fake_gpu():
        move_learner(learner, precision)
        inputs, targets = learner.prepare(*a_fake_batch())
        assert learner.teacher(inputs).dtype == torch.float32
        assert learner.loss(inputs, targets).dtype == torch.float32


# --- whole steps -------------------------------------------------------------------------------------

MUON: dict[str, Any] = {"optimizer": "muon"}
FIRST = [OPTIONS[0], OPTIONS[-1], {"sam": 0.05}, {"accumulate": 2}, MUON, {"teacher": "teacher"}]
FURTHER = [*OPTIONS[1:-1], MUON]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("test_vit", FIRST),
        pytest.param("test_vit", FURTHER, marks=pytest.mark.all),
        pytest.param("test_resnet", [*FIRST, *FURTHER], marks=pytest.mark.all),
        pytest.param("test_convnext", [*FIRST, *FURTHER], marks=pytest.mark.all),
    ],
    ids=["test_vit", "test_vit, further", "test_resnet", "test_convnext"],
)
def test_whole_steps_stay_on_their_device_and_wait_for_nothing(
    tiny: Path, podium: Podium, model: str, options: list[dict[str, Any]]
) -> None:
    done(podium(*TRAIN, "--name", "teacher"))
    problems = failures(partial(steps_with_options, tiny, model, options), tiny)
    # On a GPU, timm's Muon reads whether its products are finite; on a CPU, ours does not.
    assert "DataDependentOutputException" in problems.pop(str(MUON))
    assert problems == {}


def test_whole_steps_of_other_tasks(tmp_path: Path) -> None:
    assert failures(partial(steps_of_tasks, tmp_path, TASKS), tmp_path) == {}


def test_heads_predictions_and_pretraining_stay_on_their_device(tiny: Path) -> None:
    assert failures(partial(the_rest, tiny), tiny) == {}


def test_tensors_of_two_devices_are_noticed(tiny: Path) -> None:
    learner = learner_of(tiny, model="test_vit")
    with fake_gpu():
        move_learner(learner, torch.bfloat16)
        learner.classes = torch.arange(len(learner.spec.classes))
        with pytest.raises(FakeTensorDeviceMismatchError):
            learner.prepare(*a_fake_batch())


def test_a_wait_is_noticed() -> None:
    with fake_gpu(), pytest.raises(DataDependentOutputException):
        torch.zeros(3, device=GPU).sum().item()
