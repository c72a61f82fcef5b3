"""--accumulate auto and --compile auto: found out once, by trial steps, and kept for the command that resumes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from podium.models.hardware_errors import CompilerFails, OutOfMemory
from podium.training import fit_to_machine
from podium.training.learner import Learner
from podium.training.timing.forecast import Forecast
from podium.training.trial_steps import Measured
from tiny import FAST, Podium, assert_same_fold, assert_says, done, one_line, run_of, stop_in_step
from training.learners import context_of
from training.test_hardware import with_memory_for

TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--folds", "0", "--batch-size", "12")
AUTO = (*TRAIN, "--accumulate", "auto", "--epochs", "6")
COMPILE = (*TRAIN, "--batch-size", "4", "--epochs", "3", "--compile", "auto")


@pytest.fixture
def small_gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Returns a function that gives the device memory for so many images."""
    original = Learner.loss
    monkeypatch.setattr(fit_to_machine, "is_cpu", lambda device: False)
    return lambda images: monkeypatch.setattr(Learner, "loss", with_memory_for(images, original))


def accumulated(root: Path, name: str) -> Any:
    return json.loads((root / "runs" / "tiny" / name / "recipe.json").read_text())["accumulate"]


# --- parts of a batch --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "parts"),
    [(12, 1), (11, 2), pytest.param(4, 3, marks=pytest.mark.all), pytest.param(3, 4, marks=pytest.mark.all), (2, 6)],
)
def test_a_batch_is_computed_in_the_fewest_parts_that_fit(
    tiny: Path, podium: Podium, small_gpu: Callable[[int], None], images: int, parts: int
) -> None:
    small_gpu(images)
    _, err = done(podium(*AUTO, "--epochs", "1"))
    assert accumulated(tiny, "test_vit") == parts
    assert ("memory holds a batch of 12" in err) == (parts > 1)
    assert not list(tiny.rglob(".trial-*"))


@pytest.mark.parametrize(
    ("batch", "images"),
    [pytest.param(64, 25, marks=pytest.mark.all), pytest.param(32, 12, marks=pytest.mark.all), (20, 9)],
)
def test_a_part_that_training_computes_is_never_larger_than_a_trial(
    tiny: Path, small_gpu: Callable[[int], None], batch: int, images: int
) -> None:
    small_gpu(images)
    with context_of(tiny, model="test_vit", batch_size=batch, accumulate="auto") as context:
        parts = fit_to_machine.fit_to_machine(context).recipe.accumulate
        learner = Learner(context.with_recipe(context.recipe.but(accumulate=parts)), fold=0)
    learner.try_batch(batch)


def test_pixels_that_the_gpu_holds_are_counted(
    tiny: Path, small_gpu: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    held, empty = [], torch.empty

    def hold(*size: Any, **options: Any) -> Tensor:
        held.append(size[0])
        return empty(*size, **options)

    monkeypatch.setattr(torch, "empty", hold)
    monkeypatch.setattr(fit_to_machine, "_why_not_on_gpu", lambda context: "")
    with context_of(tiny, model="test_vit", accumulate="auto") as context:
        fit_to_machine.fit_to_machine(fit_to_machine._with(context, store="gpu"))
        assert fit_to_machine.pixel_bytes(context.images, 0) in held


def test_an_error_of_a_trial_step_is_explained(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(learner: Learner, images: int) -> None:
        raise RuntimeError("scatter does not have a deterministic implementation")

    monkeypatch.setattr(fit_to_machine, "is_cpu", lambda device: False)
    monkeypatch.setattr(Learner, "try_batch", fail)
    assert "leave out --deterministic" in one_line(podium(*AUTO))


def test_the_choice_changes_nothing_else_and_is_kept(
    tiny: Path, podium: Podium, small_gpu: Callable[[int], None]
) -> None:
    small_gpu(3)
    stop_in_step(podium, 4, *TRAIN, "--accumulate", "4", "--epochs", "6", "--name", "given")
    stop_in_step(podium, 4, *AUTO, "--name", "chosen")
    small_gpu(100)  # another machine
    _, err = done(podium(*AUTO, "--name", "chosen"))
    assert_says(err, "in 4 parts", "resumes from step")
    assert "memory holds" not in err
    done(podium(*TRAIN, "--accumulate", "4", "--epochs", "6", "--name", "given"))
    assert_same_fold(run_of(tiny, "chosen"), run_of(tiny, "given"))
    assert "accumulate was 4" not in podium(*AUTO, "--name", "chosen", "--dry-run")[2]
    assert "accumulate was 4 and is 2" in one_line(podium(*TRAIN, "--accumulate", "2", "--name", "chosen"))


def test_a_memory_that_holds_nothing_is_reported(tiny: Path, podium: Podium, small_gpu: Callable[[int], None]) -> None:
    small_gpu(1)
    assert "does not hold a batch of two images; use a smaller model" in one_line(podium(*AUTO))


def test_a_cpu_needs_no_parts(tiny: Path, podium: Podium) -> None:
    done(podium(*AUTO, "--epochs", "1"))
    assert accumulated(tiny, "test_vit") == 1
    done(podium("train", *FAST, "--model", "test_vit", "--linear", "--accumulate", "auto", "--name", "head"))
    assert accumulated(tiny, "head") == 1


# --- torch.compile -----------------------------------------------------------------------------------


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[bool, Any]:
    """What trial steps measure, with torch.compile and without; compiled models are the models themselves."""
    times: dict[bool, Any] = {}

    def measure(context: Any, fold: int) -> Measured:
        found = times[context.machine.compiled]
        if isinstance(found, Exception):
            raise found
        return Measured(found, start_up=1.0, settling=30.0 if context.machine.compiled else 0.1)

    monkeypatch.setattr(fit_to_machine, "is_cpu", lambda device: False)
    monkeypatch.setattr(fit_to_machine, "measure_steps", measure)
    monkeypatch.setattr(torch, "compile", lambda model, mode: model)
    return times


@pytest.mark.parametrize(
    ("plain", "compiled", "answer"),
    [
        (10.0, 5.0, "on, because a step takes 10,000.0 ms, compiled 5,000.0 ms"),
        (10.0, 9.9, "and compiling takes 30 s"),
        pytest.param(10.0, 11.0, "that saves nothing", marks=pytest.mark.all),
        (10.0, CompilerFails("torch.compile does not work here (no cc); leave out --compile"), "(no cc)\n"),
        pytest.param(
            10.0,
            OutOfMemory("the GPU's memory does not hold a batch of 12; use --accumulate 2"),
            "a batch of 12\n",
            marks=pytest.mark.all,
        ),
        (0.001, None, "compiling would take longer than it saves"),
    ],
    ids=["gain", "small gain", "loss", "no compiler", "no memory", "short"],
)
def test_compiling_is_decided_by_forecast(
    tiny: Path, podium: Podium, measured: dict[bool, Any], plain: float, compiled: Any, answer: str
) -> None:
    measured |= {False: plain, True: compiled}
    _, err = done(podium(*COMPILE))
    assert answer in err
    pays = compiled == 5.0
    assert f"--compile auto: {'on' if pays else 'off'}, because" in err
    recipe = json.loads((run_of(tiny, "test_vit").path / "recipe.json").read_text())
    assert recipe.get("compiled", False) == pays


@pytest.mark.annex
def test_the_decision_is_kept_for_the_command_that_resumes(
    tiny: Path, podium: Podium, measured: dict[bool, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured |= {False: 10.0, True: 5.0}
    stop_in_step(podium, 4, *COMPILE)
    modes: list[str] = []

    def compile_model(model: Callable[[Tensor], Tensor], mode: str) -> Any:
        modes.append(mode)
        return model

    monkeypatch.setattr(torch, "compile", compile_model)
    measured.clear()
    done(podium(*COMPILE))
    assert modes == ["default"]
    done(podium("verify", "-c", "tiny", "test_vit", "--device", "cpu"))
    assert len(modes) == 2


def test_the_first_steps_with_a_compiler_do_not_count(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda model, mode: model)
    monkeypatch.setattr(fit_to_machine, "SHORTEST_COMPILATION", 0.0)
    monkeypatch.setattr(fit_to_machine, "is_cpu", lambda device: False)
    monkeypatch.setattr(Forecast, "is_settled", lambda forecast, step: step - forecast.start >= 2)
    _, err = done(podium(*COMPILE))
    assert_says(err, "--compile auto: o", ", compiled ")
    assert not list(tiny.rglob(".trial-*"))
