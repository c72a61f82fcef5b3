"""The work of a fold, in images and in steps, and the time that it takes at a rate."""

import pytest

from podium.training.timing.fold_work import FoldWork, estimate_seconds
from tiny import recipe_of


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


def test_work_in_steps_is_that_in_images() -> None:
    recipe = recipe_of("test_vit", epochs=10, views="mirror", grow=0.5, keep=0.5)
    in_images, in_steps = FoldWork(recipe, 300, 75), FoldWork(recipe, 300, 75, 30)
    assert in_steps.total == pytest.approx(in_images.total / 10)
    assert in_steps.prediction == pytest.approx(in_images.prediction / 10)
