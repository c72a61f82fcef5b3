"""The quick measurement: how long a run would take, before it begins."""

import re
from pathlib import Path

import pytest
import torch

from podium import PodiumError
from podium.training import quick_measure
from podium.training.quick_measure import estimate_seconds, measure_training
from tiny import Podium, recipe_of


def test_folds_tell_how_long_models_take_and_what_to_train(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick_measure, "USUAL_MODELS", ("test_vit", "test_convnext"))
    _, _, err = podium("folds", "-c", "tiny", "--k", "3")
    assert re.search(r"3 folds take about \d+ (s|min) with test_vit, \d+ (s|min) with test_convnext", err)
    assert err.endswith("train -c tiny --model auto\n")  # there is no GPU


def test_with_a_gpu_the_next_step_is_a_large_model(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_measure, "pick_device", lambda _: torch.device("cuda"))
    assert podium("folds", "-c", "tiny", "--k", "3")[2].endswith("train -c tiny --model vit_small_patch32_224\n")


def test_a_gpu_that_does_not_work_does_not_fail_the_folds(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise PodiumError("--device cuda does not work here")

    monkeypatch.setattr(quick_measure, "pick_device", fail)
    status, _, err = podium("folds", "-c", "tiny", "--k", "3")
    assert status == 0
    assert "warning: --device cuda does not work here" in err


def test_the_estimate_counts_epochs_views_and_growth() -> None:
    plain = recipe_of("test_vit", epochs=10, views="none")
    assert estimate_seconds(plain, 300, 0, 100.0) == pytest.approx(30)
    assert estimate_seconds(plain, 0, 300, 100.0) == pytest.approx(10)  # a forward pass is a third of a step
    assert estimate_seconds(recipe_of("test_vit", epochs=10, views="mirror"), 0, 300, 100.0) == pytest.approx(11)
    growing = estimate_seconds(recipe_of("test_vit", epochs=10, views="none", grow=0.5), 300, 0, 100.0)
    assert 15 < growing < 30
    linear = recipe_of("test_vit", views="none", linear=True)
    assert estimate_seconds(linear, 200, 100, 100.0) == pytest.approx(1)


def test_a_rate_is_measured_and_a_wrong_size_is_refused() -> None:
    assert measure_training(recipe_of("test_vit", image_size=32, batch_size=4), "ab", "cpu") > 0
    with pytest.raises(PodiumError, match="test_vit"):
        measure_training(recipe_of("test_vit", image_size=40), "ab", "cpu")
