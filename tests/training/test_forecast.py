"""The forecast of a fold's time, and the schedule that a deadline shortens."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.recipe_defaults import Backbone, fill_in_defaults
from podium.training.forecast import Forecast
from podium.training.loader import BatchSampler
from training.clock import Clock

SMALL = fill_in_defaults({"model": "m", "weights": "none", "image_size": 64}, {}, Backbone("", "batch norm", 224, 224))


def sampler_of(epochs: int) -> BatchSampler:
    """Returns the batches of a fold of 30 steps per epoch."""
    return BatchSampler(300, 10, epochs, (0, 0))


@given(
    st.floats(0.01, 10),  # seconds of a step at first
    st.lists(st.floats(0.5, 3), min_size=4, max_size=4),  # by how much steps get slower, in each quarter of the time
    st.floats(0.2, 1.5),  # the available time, as a share of what the schedule needs at first
    st.sampled_from([0.0, 0.5]),
)
def test_a_schedule_ends_in_time_however_the_speed_changes(
    seconds_per_step: float, slowdowns: list[float], share: float, grow: float
) -> None:
    """Simulates a fold of 40 epochs, whose validations take as long as prediction does."""
    sampler, recipe = sampler_of(40), replace(SMALL, epochs=40, batch_size=10, grow=grow)
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        forecast = Forecast(sampler, 75 / 300, recipe)
        available = share * seconds_per_step * forecast.work_left(0)
        started, forecast.deadline = clock.now, clock.now + available
        total, step = sampler.stop, 0
        while step < total:
            forecast.start_step(step)
            epoch = step // sampler.per_epoch
            work = (forecast.training_work[epoch + 1] - forecast.training_work[epoch]) / sampler.per_epoch
            slowdown = slowdowns[min(3, int(4 * (clock.now - started) / available))]
            clock.now += work * seconds_per_step * slowdown
            step += 1
            total = forecast.last_step(step, sampler.stop)
            if step % sampler.per_epoch == 0 and step < total:
                clock.now += forecast.validation_work * seconds_per_step * slowdown
        last_validation = forecast.last_validation_work * seconds_per_step * slowdown
        clock.now += last_validation
        taken = clock.now - started
    unforeseeable = last_validation * max(0.0, 1 - 1 / slowdown)  # of the last validation, which nothing follows
    assert taken <= available * 1.02 + 4 * seconds_per_step * slowdown + unforeseeable
    assert step == sampler.stop or taken >= 0.7 * available


def test_a_deadline_shortens_a_schedule_and_never_lengthens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    forecast = Forecast(sampler_of(4), 0.25, replace(SMALL, epochs=4), deadline=clock.now + 10_000)
    for step in range(30):
        forecast.start_step(step)
        clock.now += 1
    assert forecast.last_step(30, planned=60) == 60
    forecast.deadline = clock.now + 5
    assert 30 <= forecast.last_step(30, planned=60) < 60


def test_nothing_is_shortened_without_a_deadline() -> None:
    forecast = Forecast(sampler_of(4), 0.25, replace(SMALL, epochs=4))
    assert forecast.deadline == math.inf
    forecast.start_step(0)
    forecast.start_step(1)
    assert forecast.last_step(3, planned=77) == 77


def test_the_time_left_counts_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    forecast = Forecast(sampler_of(2), 0.5, replace(SMALL, epochs=2, views="none"))
    for step in range(30):  # of 60, two seconds each; a validation takes ten
        forecast.start_step(step)
        clock.now += 2
    assert forecast.seconds_left(30 - 1) == pytest.approx(31 * 2 + 2 * 10, rel=0.05)
    checking = Forecast(sampler_of(2), 0.5, replace(SMALL, epochs=2, views="mirror"), checked_ratio=0.25)
    assert checking.prediction_work == pytest.approx(30 * 0.5 / 3 * 2)  # that of the test images checks nothing
    assert checking.work_left(0) == pytest.approx(60 + 30 * (0.5 + 0.25) / 3 + 30 * (0.5 * 2 + 0.25) / 3)
    forecast.deadline = clock.now + 7
    assert forecast.seconds_left(30 - 1) == pytest.approx(7)
