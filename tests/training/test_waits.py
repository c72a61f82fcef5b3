"""How often training waits for the device. A step must not: a GPU would idle while Python goes on to queue the next."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from podium.training.learner import Learner
from second_round import first_of
from training.learners import a_batch, learner_of, learner_of_task, other_tasks

# Operators whose result Python needs at once: a GPU would first compute all that is queued.
WAITING = {"_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "unique_dim", "_unique2"}


class Waits(TorchDispatchMode):
    """Counts these operators."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        has_mask = name == "index" and any(index is not None and index.dtype == torch.bool for index in args[1])
        self.count += has_mask or name in WAITING
        return function(*args, **(kwargs or {}))


def waits_of_a_step(learner: Learner, targets: Tensor | None = None) -> int:
    """Counts those of the second step: the first one makes the state of the optimiser."""
    images, labels = a_batch()
    batch = images, labels if targets is None else targets
    learner.step(*batch)
    waits = Waits()
    with waits:
        learner.step(*batch)
    return waits.count


def test_waits_are_counted() -> None:
    tensor = torch.arange(3)
    with Waits() as waits:
        assert tensor[1].item()
        assert tensor.any()
        assert len(tensor[tensor > 0]) == 2
    assert waits.count == 3


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mix": 1.0},
        {"sam": 0.05},
        {"ema": 0.5},
        {"accumulate": 3},
        {"class_weights": "balanced"},
        {"loss": "focal"},
        {"drop_path": 0.1, "smoothing": 0.1},
        {"norm": "frozen"},
        {"freeze": 0.5},
        {"layer_decay": 0.8},
    ],
    ids=str,
)
@pytest.mark.parametrize("model", first_of(["test_vit"], ["test_vit", "test_resnet", "test_convnext"]))
def test_a_step_waits_for_nothing(tiny: Path, model: str, options: dict[str, Any]) -> None:
    assert waits_of_a_step(learner_of(tiny, model=model, **options)) == 0


@other_tasks
@pytest.mark.all
def test_a_step_of_any_task_waits_for_nothing(tmp_path: Path, slug: str, write: Callable[[Path], object]) -> None:
    learner, targets = learner_of_task(tmp_path, slug, write)
    assert waits_of_a_step(learner, targets) == 0


def test_a_student_and_a_head_that_is_kept_wait_for_nothing(taught: Path) -> None:
    options = {"teacher": "test_convnext+test_vit", "head_first": True, "keep": 0.5}
    assert waits_of_a_step(learner_of(taught, name="student", model="test_resnet", **options)) == 0
