"""The learning rate of every step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.options.recipe_defaults import Backbone, fill_in_defaults

STEPS_PER_EPOCH = 10


@given(st.integers(2, 400), st.floats(0, 8))
def test_the_rate_rises_to_one_peak_and_falls_to_zero(total: int, warmup_epochs: float) -> None:
    recipe = fill_in_defaults(
        {"model": "m", "lr": 1.0, "warmup": warmup_epochs}, {}, Backbone("", "batch norm", 224, 224)
    )
    rates = [recipe.rate_at(step, total, STEPS_PER_EPOCH) for step in range(total + 1)]
    peak = rates.index(max(rates))
    assert 0 < max(rates) <= 1
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] == pytest.approx(0, abs=1e-9)
    assert abs(peak - min(warmup_epochs * STEPS_PER_EPOCH, total / 5)) <= 1  # at most a fifth of the run warms up
