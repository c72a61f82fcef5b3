"""A GPU too small for a batch, and a compiler that does not work: one line that names what works instead."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from podium.training import frozen_features, loop
from podium.training.learner import Learner
from tiny import FAST, Podium, done, one_line, run_of
from training.resuming import assert_resumes_to_the_same_bits

TRAIN = ("train", *FAST, "--model", "test_vit", "--folds", "0", "--epochs", "2")


def with_memory_for(images: int, compute: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that computes at most so many images at once, as a GPU does."""

    def limited(owner: Any, batch: Tensor, *arguments: Any) -> Any:
        if len(batch) > images:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return compute(owner, batch, *arguments)

    return limited


def test_a_batch_that_does_not_fit_is_answered_with_one_that_does(tiny: Path, podium: Podium) -> None:
    command = (*TRAIN, "--batch-size", "12")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "loss", with_memory_for(3, Learner.loss))
        one_line(
            podium(*command),
            "does not hold a batch of 12, but holds one of 3",
            "use --accumulate 4, which takes the same steps, or --batch-size 3, under another --name",
        )
        done(podium(*TRAIN, "--batch-size", "3", "--name", "smaller"))
        done(podium(*command, "--accumulate", "4", "--name", "in-parts"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "loss", with_memory_for(1, Learner.loss))
        one_line(podium(*command), "nor one of 2", "use a smaller model")
    assert not run_of(tiny).finished()
    assert_resumes_to_the_same_bits(tiny, podium, command)


def test_features_that_do_not_fit_are_answered_alike(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen_features, "features_of", with_memory_for(7, frozen_features.features_of))
    one_line(
        podium(*TRAIN, "--linear", "--batch-size", "20"),
        "does not hold a batch of 20, but holds one of 5; use --accumulate 4",
    )


def test_a_validation_that_does_not_fit_is_answered_alike(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(loop, "predict_proba", fail)
    assert "holds one of 4; use --accumulate 2" in one_line(podium(*TRAIN))


def test_a_compiler_that_does_not_work_is_reported_in_one_line(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor.exc import CppCompileError

    def compile_nothing(model: torch.nn.Module, mode: str) -> Any:
        def forward(images: Tensor) -> Tensor:
            raise CppCompileError(["g++"], "no such compiler")

        return forward

    monkeypatch.setattr(torch, "compile", compile_nothing)
    one_line(podium(*TRAIN, "--compile"), "torch.compile does not work here", "leave out --compile")
