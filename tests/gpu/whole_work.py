"""Whole steps, heads, predictions and pretraining on an accelerator of torch's for tests, which has backward passes.

`failures` runs them in a process of their own: torch can have one such accelerator, and keeps it.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from forked_podium import SERVER, exit_status
from gpu.fake_gpu import a_fake_batch, answered, fake, move, move_learner
from podium.training.augment import TrainView
from podium.training.drawn_changes import ChangesView
from podium.training.gpu_images import GpuImages
from podium.training.head_start import start_head
from podium.training.learner import Learner
from podium.training.loader import ImageDataset
from podium.training.loop import validate
from podium.training.optimizer import create_optimizer
from podium_annex.pretraining.pretraining_learner import EpochSums
from pretraining.pretrainings import dino_learner_of
from training.learners import learner_of, learner_of_task

Work = Callable[[torch.device], Mapping[str, Callable[[], object]]]
ON_ACCELERATOR = {"name": "student", "operators": "timm"}  # without the operators that only a CPU has


def failures(work: Work, folder: Path) -> dict[str, str]:
    """Returns the errors of all that the work consists of."""
    report = folder / "report.json"
    process = SERVER.Process(target=_run, args=(work, report))
    process.start()
    assert exit_status(process) == 0
    problems: dict[str, str] = json.loads(report.read_text())
    return problems


def _run(work: Work, report: Path) -> None:
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend("fakegpu")
    problems = {}
    for name, part in work(torch.device("fakegpu")).items():
        try:
            part()
        except Exception as problem:
            problems[name] = f"{type(problem).__name__}: {problem}"
    report.write_text(json.dumps(problems))
    os._exit(0)  # at the end of Python, torch's threads for this accelerator would crash


# --- steps -------------------------------------------------------------------------------------------


def steps_with_options(
    root: Path, model: str, options: Sequence[dict[str, Any]], device: torch.device
) -> dict[str, Callable[[], object]]:
    def step(some: dict[str, Any]) -> None:
        take_steps(learner_of(root, **{**ON_ACCELERATOR, "model": model, **some}), device)

    return {str(some): partial(step, some) for some in options}


def steps_of_tasks(
    root: Path, tasks: Sequence[tuple[str, Callable[[Path], object]]], device: torch.device
) -> dict[str, Callable[[], object]]:
    def step(slug: str, write: Callable[[Path], object]) -> None:
        learner, labels = learner_of_task(root / slug, slug, write)
        take_steps(learner, device, labels)

    return {slug: partial(step, slug, write) for slug, write in tasks}


def take_steps(learner: Learner, device: torch.device, labels: Tensor | None = None) -> None:
    """Takes two whole steps, in which nobody may ask for a value."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        move_learner(learner, torch.float32, device)
        for _ in range(2):  # the second finds the state of the optimiser
            learner.step(*a_fake_batch(labels))
        gradients = [weight.grad for weight in learner.model.parameters() if weight.grad is not None]
        assert gradients
        assert {gradient.device.type for gradient in gradients} == {device.type}


# --- the rest ----------------------------------------------------------------------------------------


def the_rest(root: Path, device: torch.device) -> dict[str, Callable[[], object]]:
    works = (fit_a_head, adapt_statistics, predict_all_views, pretrain, change_images)
    return {work.__name__: partial(work, root, device) for work in works}


def fit_a_head(root: Path, device: torch.device) -> None:
    learner = learner_of(root, **ON_ACCELERATOR, model="test_vit", head_first=True, keep=0.5)
    with answered():
        move_learner(learner, torch.float32, device)
        start_head(learner)
        assert learner.progress.start_record is not None


def adapt_statistics(root: Path, device: torch.device) -> None:
    learner = learner_of(root, **ON_ACCELERATOR, model="test_resnet", norm="adapt", head_first=True)
    with answered():
        move_learner(learner, torch.float32, device)
        start_head(learner)


def predict_all_views(root: Path, device: torch.device) -> None:
    """The values are asked for once, at the end: not batch by batch."""
    learner = learner_of(root, **ON_ACCELERATOR, model="test_resnet")
    with answered() as questions:
        move_learner(learner, torch.float32, device)
        assert len(validate(learner, "mirror+flip+turn+zoom").answers.probs) > 8
        assert not questions


def pretrain(root: Path, device: torch.device) -> None:
    """A step asks once whether its gradients are finite."""
    learner = dino_learner_of(root)
    normalise, sizes = learner.normalise, learner.sizes
    with answered() as questions:
        learner.device = normalise.device = device
        for network in (learner.student, learner.teacher):
            move(network, device)
        normalise.scale, normalise.shift = fake(normalise.scale, device), fake(normalise.shift, device)
        learner.centre = fake(learner.centre, device)
        learner.progress.sums = EpochSums.zeros(len(learner.centre), device)
        learner.optimizer = create_optimizer(learner.student, learner.recipe)
        pixels = sizes.large_bytes + sizes.small_crops * sizes.small**2 * 3
        for _ in range(2):
            learner.step(torch.zeros(8, pixels, dtype=torch.uint8))
        assert questions == [torch.bool, torch.bool]


def change_images(root: Path, device: torch.device) -> None:
    """Images in the GPU's memory are changed there without a wait."""
    learner = learner_of(root, model="test_vit", colour=0.3, erase=0.5)
    recipe, spec, rows = learner.recipe, learner.spec, np.arange(4)
    image = np.zeros((40, 60, 3), np.uint8)
    view = ChangesView(recipe, spec)
    images = ImageDataset(lambda index: image, rows, view, rows)
    changes = np.stack([view(image, 0, row) for row in rows.tolist()]).view(np.float64)
    with answered() as questions:
        made = GpuImages(images, spec, device).changed(changes)
        assert not questions
    assert made.device.type == device.type
    assert made.shape[1:] == TrainView(recipe, spec)(image, 0, 0).shape
