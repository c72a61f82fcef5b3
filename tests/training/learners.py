"""Contexts and learners on the tiny competition, for tests of single parts of training."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

import bars
import marks
import several_labels as stripes
from podium.basics.machine import Machine
from podium.training.context import Context, open_context
from podium.training.learner import Learner
from podium.training.plan import Plan, make_plan
from podium.training.request import Request, check_before_plan
from tiny import podium_at

CPU = torch.device("cpu")
SMALL = {"weights": "none", "image_size": 32, "batch_size": 8, "epochs": 3, "precision": "float32"}


def plan_of(root: Path, name: str | None = None, **options: object) -> Plan:
    """Returns the plan of one fold, with a small recipe."""
    machine = Machine(device="cpu", workers=0)
    request = Request({**SMALL, **options}, folds=(0,), name=name, machine=machine)
    return make_plan(check_before_plan("tiny", root, request))


@contextmanager
def context_of(root: Path, name: str | None = None, **options: object) -> Iterator[Context]:
    with open_context(plan_of(root, name, **options)) as context:
        yield context


def learner_of(root: Path, name: str | None = None, **options: object) -> Learner:
    """Returns a learner of fold 0 before its first step."""
    with context_of(root, name, **options) as context:
        return Learner(context, fold=0)


def a_batch(columns: int = 0, channels: int = 3) -> tuple[Tensor, Tensor]:
    """Returns eight images and their labels, or what they teach and so many numbers beside the images."""
    images, labels = torch.randint(0, 256, (8, 32, 32, channels), dtype=torch.uint8), torch.arange(8) % 4
    if not columns:
        return images, labels
    return images, torch.cat([torch.eye(4)[labels], torch.randn(8, columns)], 1)


def copy_state(learner: Learner) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}


def spoil_inputs(learner: Learner) -> None:
    """Makes the inputs of the model not finite, and so its loss and gradients."""
    learner.normalise.scale = learner.normalise.scale * float("nan")


TASKS: list[tuple[str, Callable[[Path], object]]] = [
    (stripes.SLUG, partial(stripes.write_competition, as_tags=True)),
    (marks.SLUG, marks.write_competition),
    (bars.SLUG, partial(bars.write_competition, columns=bars.COLUMNS["two"])),
]
other_tasks = pytest.mark.parametrize(("slug", "write"), TASKS, ids=["several labels", "several targets", "numbers"])


def learner_of_task(root: Path, slug: str, write: Callable[[Path], object]) -> tuple[Learner, Tensor]:
    """Writes a competition of another task; returns a learner of it, and the targets of eight images."""
    write(root)
    podium_at(root, "folds", "-c", slug, "--k", "3")
    with open_context(plan_of_task(root, slug, model="test_resnet")) as context:
        learner = Learner(context, fold=0)
        return learner, torch.from_numpy(context.images.targets.values[context.images.training_rows(0)[:8]])


def plan_of_task(root: Path, slug: str, **options: object) -> Plan:
    machine = Machine(device="cpu", workers=0)
    return make_plan(check_before_plan(slug, root, Request({**SMALL, **options}, folds=(0,), machine=machine)))
