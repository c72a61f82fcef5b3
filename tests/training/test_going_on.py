"""Going on from a finished run: what is taken over, and what is not."""

from pathlib import Path

import pytest

from podium.training.learner import MAX_BAD_STEPS, Learner
from tiny import FAST, Podium, one_line, run_of

MORE = ("train", "-c", "tiny", "--workers", "0", "--epochs", "1")


def test_another_image_size_brings_its_own_test_size(tiny: Path, podium: Podium) -> None:
    assert podium("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0", "--name", "first")[0] == 0
    status, _, err = podium(*MORE, "--from", "first", "--image-size", "48")
    assert status == 0, err
    more = run_of(tiny, "first-more")
    assert (more.recipe["image_size"], more.recipe["test_size"]) == (48, 48)
    assert more.finished() == [0]  # the folds that the first run has finished


def test_a_linear_head_is_not_trained_further(tiny: Path, podium: Podium) -> None:
    status, _, err = podium("train", *FAST, "--model", "test_vit", "--linear", "--folds", "0")
    assert status == 0, err
    assert "--head-first" in one_line(podium(*MORE, "--from", "test_vit-linear"))


def test_a_level_replaces_the_options_that_it_sets(tiny: Path, podium: Podium) -> None:
    assert podium("train", *FAST, "--model", "test_vit", "--epochs", "1", "--folds", "0", "--name", "first")[0] == 0
    assert podium(*MORE, "--from", "first", "--level", "strong")[0] == 0
    assert (run_of(tiny, "first-more").recipe["ops"], run_of(tiny, "first-more").recipe["crop"]) == (2, 0.4)


def test_a_loss_that_is_never_finite_is_found_at_the_end_of_an_epoch(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "loss", lambda learner, inputs, _: learner.network(inputs).sum() * float("nan"))
    words = ("--model", "test_vit", "--folds", "0", "--epochs", "30")
    line = one_line(podium("train", *FAST, *words))
    assert "were not finite" in line
    assert f"step {MAX_BAD_STEPS}" in line
