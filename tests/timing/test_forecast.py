"""The forecast of a fold's time, and the schedule that a deadline shortens."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.options.recipe_defaults import Backbone, fill_in_defaults
from podium.training.timing.fold_work import FoldWork
from podium.training.timing.forecast import Forecast
from timing.clock import Clock

SMALL = fill_in_defaults({"model": "m", "weights": "none", "image_size": 64}, {}, Backbone("", "batch norm", 224, 224))


def work_of(held_out: int = 75, **options: Any) -> FoldWork:
    """Returns the work of a fold of 300 images, in 30 steps per epoch."""
    return FoldWork(SMALL.but(batch_size=10, **options), 300, held_out, 30)


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
    work, planned = work_of(epochs=40, grow=grow), 40 * 30
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        forecast = Forecast(work, 10)
        available = share * seconds_per_step * forecast.work_left(0)
        started, forecast.deadline = clock.now, clock.now + available
        total, step = planned, 0
        while step < total:
            forecast.start_step(step)
            epoch = step // work.per_epoch
            work_of_step = (work.training[epoch + 1] - work.training[epoch]) / work.per_epoch
            slowdown = slowdowns[min(3, int(4 * (clock.now - started) / available))]
            clock.now += work_of_step * seconds_per_step * slowdown
            step += 1
            total = forecast.last_step(step, planned)
            if step % work.per_epoch == 0 and step < total:
                clock.now += work.validation * seconds_per_step * slowdown
        last_validation = work.last_validation * seconds_per_step * slowdown
        clock.now += last_validation
        taken = clock.now - started
    unforeseeable = last_validation * max(0.0, 1 - 1 / slowdown)  # of the last validation, which nothing follows
    assert taken <= available * 1.02 + 4 * seconds_per_step * slowdown + unforeseeable
    assert step == planned or taken >= 0.7 * available


def test_a_deadline_shortens_a_schedule_and_never_lengthens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    forecast = Forecast(work_of(epochs=4), 10, deadline=clock.now + 10_000)
    for step in range(30):
        forecast.start_step(step)
        clock.now += 1
    assert forecast.last_step(30, planned=60) == 60
    forecast.deadline = clock.now + 5
    assert 30 <= forecast.last_step(30, planned=60) < 60


def test_nothing_is_shortened_without_a_deadline() -> None:
    forecast = Forecast(work_of(epochs=4), 10)
    assert forecast.deadline == math.inf
    forecast.start_step(0)
    forecast.start_step(1)
    assert forecast.last_step(3, planned=77) == 77


def test_the_time_left_counts_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    forecast = Forecast(work_of(150, epochs=2, views="none"), 10)
    for step in range(30):  # of 60, two seconds each; a validation takes ten
        forecast.start_step(step)
        clock.now += 2
    assert forecast.seconds_left(30 - 1) == pytest.approx(31 * 2 + 2 * 10, rel=0.05)
    checking = work_of(150, epochs=2, views="mirror", keep=0.5)
    assert checking.prediction == pytest.approx(30 * 0.5 / 3 * 2)  # that of the test images checks nothing
    checked = 2 * 256 / 300
    assert checking.total == pytest.approx(60 + 30 * (0.5 + checked) / 3 + 30 * (0.5 * 2 + checked) / 3)
    forecast.deadline = clock.now + 7
    assert forecast.seconds_left(30 - 1) == pytest.approx(7)


def test_a_forecast_follows_the_machine_and_counts_all_folds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock(monkeypatch)
    forecast = Forecast(work_of(epochs=40, views="none"), 10, later=(1.0, 1.0))
    for step in range(600):
        forecast.start_step(step)
        clock.now += 1.0 if step < 300 else 4.0  # another program has begun
    pace = forecast.recent_pace(600)
    assert pace == pytest.approx(4.0, rel=0.2)  # validations are work, too, and take no time here
    left = forecast.seconds_left(600)
    assert left == pytest.approx(pace * forecast.work_left(600))
    assert forecast.seconds_left_of_all(600) == pytest.approx(left + 2 * pace * forecast.work_left(0))
    first, *later = [line for line in capsys.readouterr().err.splitlines() if "3 folds of 40 epochs" in line]
    assert first.startswith("podium: 10.0 images/s; 3 folds of 40 epochs will take about 65 min")
    assert 1 <= len(later) <= 4
    assert later[-1].startswith("podium: 2.5 images/s")
    assert " more, to about " in later[-1]
    assert math.isnan(Forecast(work_of(epochs=4), 10).seconds_left_of_all(5))
