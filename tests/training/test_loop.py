"""One fold's training: stopped anywhere it resumes to the same bits, and it saves when it should."""

import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from podium.options.recipe import Recipe
from podium.saved_runs.checkpoint import CheckpointWriter
from podium.training import learner as learner_module
from podium.training.learner import Learner
from podium.training.timing.forecast import Forecast
from tiny import FAST, Podium, assert_same_fold, done, one_line, run_of, signal_in_step, stop_in_step, weights_hash
from training.learners import copy_state, spoil_inputs

TRAIN = ("train", *FAST, "--model", "test_vit")
ONE_STEP_PER_EPOCH = (*TRAIN, "--folds", "0")


# --- stop and resume ---------------------------------------------------------------------------------


def scramble_generators() -> None:
    """Leaves the generators of the whole process in a state that no run has left; no result may depend on them."""
    random.seed()
    np.random.seed(random.randrange(2**32))
    torch.seed()


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("test_vit", ()),
        ("test_resnet", ("--grow", "0.6")),
        pytest.param("test_resnet", ("--optimizer", "muon"), marks=pytest.mark.all),
        pytest.param("test_convnext", (), marks=pytest.mark.all),
        pytest.param("test_vit", ("--optimizer", "muon"), marks=pytest.mark.all),
    ],
)
def test_a_run_stopped_anywhere_ends_with_the_same_bits(
    tiny: Path, podium: Podium, model: str, options: tuple[str, ...]
) -> None:
    schedule = ("--epochs", "3", "--batch-size", "4", "--image-size", "64")
    command = ("train", *FAST, "--model", model, "--folds", "0", *schedule, "--mix", "0.7", "--drop-path", "0.2")
    done(podium(*command, *options, "--name", "undisturbed"))
    for step, number in ((1, signal.SIGINT), (7, signal.SIGTERM)):  # of nine, in the first epoch and the last
        _, err = stop_in_step(podium, step, *command, *options, "--name", "stopped", number=number)
        assert "all is saved; run the same command again to resume" in err
        scramble_generators()
    _, err = done(podium(*command, *options, "--name", "stopped"))
    assert "fold 0 resumes from step 8 of 9" in err
    assert_same_fold(run_of(tiny, "stopped"), run_of(tiny, "undisturbed"))


def test_a_schedule_that_a_deadline_has_shortened_stays_short_when_it_resumes(tiny: Path, podium: Podium) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Forecast, "last_step", lambda self, step, planned: 5)
        signal_in_step(patch, 3, signal.SIGINT)
        assert podium(*ONE_STEP_PER_EPOCH, "--epochs", "20")[0] == 75
    _, err = done(podium(*ONE_STEP_PER_EPOCH, "--epochs", "20"))
    assert "resumes from step 4 of 5" in err
    assert run_of(tiny).history(0)[-1].step == 5


# --- saving ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("every", "saves"), [("0.001s", 12), ("1h30m", 2)])  # after each step; after each epoch
def test_it_saves_at_every_epoch_and_as_often_as_the_user_asks(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, every: str, saves: int
) -> None:
    saved, save = [], CheckpointWriter.save

    def count(writer: CheckpointWriter, step: int, tensors: Mapping[str, Tensor], progress: dict[str, Any]) -> None:
        saved.append(step)
        save(writer, step, tensors, progress)

    monkeypatch.setattr(CheckpointWriter, "save", count)
    words = ("--epochs", "2", "--batch-size", "2", "--save-every", every)
    done(podium(*ONE_STEP_PER_EPOCH, *words))
    assert len(saved) == saves


# --- numbers that are not finite ---------------------------------------------------------------------


def test_weights_that_are_not_finite_are_never_saved(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recipe, "rate_at", lambda *_: float("nan"))
    one_line(podium(*TRAIN, "--epochs", "3"), "fold 0, step 1: the weights are not finite", "try a lower --lr")
    assert not list((tiny / "runs").rglob("checkpoint-*"))


def test_a_few_steps_without_finite_gradients_are_skipped_and_many_end_the_run(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, spoilt = Learner.step, range(2, 4)

    def spoil(learner: Learner, images: Tensor, labels: Tensor) -> Tensor:
        if learner.progress.step not in spoilt:
            return step(learner, images, labels)
        before, scale = copy_state(learner), learner.normalise.scale
        spoil_inputs(learner)
        loss = step(learner, images, labels)
        learner.normalise.scale = scale
        assert all(torch.equal(before[name], tensor) for name, tensor in copy_state(learner).items())
        return loss

    monkeypatch.setattr(Learner, "step", spoil)
    _, err = done(podium(*ONE_STEP_PER_EPOCH, "--epochs", "6"))
    for epoch in (3, 4):
        assert f"fold 0: skipped 1 step of epoch {epoch}, whose gradients were not finite" in err
    assert err.count("  loss nan  ") == 2
    monkeypatch.setattr(learner_module, "CHECK_EVERY", 1)
    spoilt = range(4, 1000)
    one_line(
        podium(*ONE_STEP_PER_EPOCH, "--epochs", "99", "--name", "many"),
        "fold 0, step 14: the loss or its gradients were not finite for 10 steps in a row",
        "checkpoint-000000013.safetensors",
        "try a lower --lr",
    )


# --- several folds -----------------------------------------------------------------------------------


def test_when_one_fold_fails_the_others_are_kept_and_submit_names_what_is_missing(tiny: Path, podium: Podium) -> None:
    done(podium("folds", "-c", "tiny", "--k", "5"))
    command, rate = (*TRAIN, "--epochs", "1"), vars(Learner)["learning_rate"].fget
    with pytest.MonkeyPatch.context() as patch:
        spoilt_rate = property(lambda learner: float("nan") if learner.fold == 2 else rate(learner))
        patch.setattr(Learner, "learning_rate", spoilt_rate)
        one_line(podium(*command), "fold 2, step", "try a lower --lr")
        assert run_of(tiny).finished() == [0, 1]
        assert "test_vit lacks its folds 2, 3, 4" in podium("submit", "-c", "tiny")[2]
        done(podium(*command, "--folds", "3,4"))
    hashes = {fold: weights_hash(tiny, "test_vit", fold) for fold in (0, 1, 3, 4)}
    status, _, err = podium("submit", "-c", "tiny")
    assert (status, "warning: test_vit lacks its fold 2" in err) == (0, True)
    status, out, err = podium(*command)
    assert (status, "over 5 of 5 folds" in out) == (0, True)
    assert err.count("is trained already") == 4
    assert {fold: weights_hash(tiny, "test_vit", fold) for fold in hashes} == hashes
    assert "lacks its" not in podium("submit", "-c", "tiny")[2]
