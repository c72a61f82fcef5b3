"""The quick measurement: how long a run would take, before it begins."""

from pathlib import Path

import pytest

from podium.errors import PodiumError
from podium.training.quick_measure import estimate_seconds, measure_training
from tiny import Podium, recipe_of


def test_folds_answer_at_once_and_say_what_to_train(tiny: Path, podium: Podium) -> None:
    _, _, err = podium("folds", "-c", "tiny", "--k", "3")
    assert err.endswith("train -c tiny --model auto\n")
    assert "take" not in err


def test_the_estimate_counts_epochs_views_and_growth() -> None:
    plain = recipe_of("test_vit", epochs=10, views="none")
    assert estimate_seconds(plain, 300, 0, 100.0) == pytest.approx(30)
    assert estimate_seconds(plain, 0, 300, 100.0) == pytest.approx(10)  # a forward pass is a third of a step
    assert estimate_seconds(recipe_of("test_vit", epochs=10, views="mirror"), 0, 300, 100.0) == pytest.approx(11)
    growing = estimate_seconds(recipe_of("test_vit", epochs=10, views="none", grow=0.5), 300, 0, 100.0)
    assert 15 < growing < 30
    kept = recipe_of("test_vit", epochs=10, views="none", keep=0.5)
    assert estimate_seconds(kept, 300, 0, 100.0) == pytest.approx(30 + 2 * 256 * 10 / 3 / 100)  # the check of its start
    linear = recipe_of("test_vit", views="none", linear=True)
    assert estimate_seconds(linear, 200, 100, 100.0) == pytest.approx(1)


def test_a_rate_is_measured_and_a_wrong_size_is_refused() -> None:
    assert measure_training(recipe_of("test_vit", image_size=32, batch_size=4), "ab", "cpu") > 0
    with pytest.raises(PodiumError, match="test_vit"):
        measure_training(recipe_of("test_vit", image_size=40), "ab", "cpu")
