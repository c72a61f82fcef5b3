"""The step that is measured, before a run begins."""

from pathlib import Path

import pytest

from podium.basics.errors import PodiumError
from podium.training.timing.measure_step import measure_training
from tiny import Podium, recipe_of


def test_folds_answer_at_once_and_say_what_to_train(tiny: Path, podium: Podium) -> None:
    _, _, err = podium("folds", "-c", "tiny", "--k", "3")
    assert err.endswith("compete -c tiny\n")
    assert "take" not in err


def test_a_rate_is_measured_and_a_wrong_size_is_refused() -> None:
    assert measure_training(recipe_of("test_vit", image_size=32, batch_size=4), "ab", "cpu") > 0
    with pytest.raises(PodiumError, match="test_vit"):
        measure_training(recipe_of("test_vit", image_size=40), "ab", "cpu")
