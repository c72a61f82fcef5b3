"""Going on from a finished run: what is taken over, and what is not."""

from pathlib import Path

import pytest

from podium.training.learner import MAX_BAD_STEPS, Learner
from tiny import FAST, Podium, done, one_line, run_of

MORE = ("train", "-c", "tiny", "--workers", "0", "--epochs", "1")


def test_another_image_size_brings_its_own_test_size(one_run: Path, podium: Podium) -> None:
    done(podium(*MORE, "--from", "test_vit", "--image-size", "48"))
    more = run_of(one_run, "test_vit-more")
    assert (more.recipe["image_size"], more.recipe["test_size"]) == (48, 48)
    assert more.finished() == [0]  # the folds that the first run has finished


def test_a_linear_head_is_not_trained_further(tiny: Path, podium: Podium) -> None:
    done(podium("train", *FAST, "--model", "test_vit", "--linear", "--folds", "0"))
    assert "--head-first" in one_line(podium(*MORE, "--from", "test_vit-linear"))


def test_a_level_replaces_the_options_that_it_sets(one_run: Path, podium: Podium) -> None:
    done(podium(*MORE, "--from", "test_vit", "--level", "strong"))
    recipe = run_of(one_run, "test_vit-more").recipe
    assert (recipe["ops"], recipe["crop"]) == (2, 0.4)


def test_a_loss_that_is_never_finite_is_found_at_the_end_of_an_epoch(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "loss", lambda learner, inputs, _: learner.network(inputs).sum() * float("nan"))
    words = ("--model", "test_vit", "--folds", "0", "--epochs", "30")
    one_line(podium("train", *FAST, *words), "were not finite", f"step {MAX_BAD_STEPS}")
