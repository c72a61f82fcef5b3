"""`--budget`: what fits is chosen from the first steps, and a slower machine shortens what is left."""

import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.recipe import resolve
from podium.training.budget import START, Budget
from podium.submit.submission import _choose
from podium.training.loader import BatchSampler
from podium.training.loop import Fold
from podium.training.run_folder import Run
from podium.training.forecast import Forecast
from tiny import Podium, write_competition

SMALL = resolve({"model": "m", "weights": "none", "image_size": 64}, {}, "", 224, 224)

WORDS = ("-c", "tiny", "--model", "test_vit", "--weights", "none", "--image-size", "32", "--batch-size", "8")


class Clock:
    """Seconds that pass when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("time.monotonic", lambda: self.now)


@pytest.mark.parametrize(
    ("left", "folds", "epochs", "found"),
    [
        (1000, 5, 12, (5, 12)),  # all of it
        (500, 5, 12, (5, 8)),  # all folds, of fewer epochs
        (150, 5, 12, (2, 5)),  # to three only three epochs would be left, to five none
        (45, 5, 12, (1, 2)),  # something is better than nothing
        (25, 5, 12, (1, 0)),
    ],
)
def test_fewer_epochs_come_before_fewer_folds(left: float, folds: int, epochs: int, found: tuple[int, int]) -> None:
    assert _choose(lambda epochs: 20 + 10 * epochs, left, folds, epochs) == found


@given(
    st.floats(0.01, 10),  # seconds of a step at first
    st.lists(st.floats(0.5, 3), min_size=4, max_size=4),  # how much slower it then is, in each quarter
    st.floats(0.2, 1.5),  # the time there is, of what the schedule needs at first
    st.sampled_from([0.0, 0.5]),
)
def test_a_schedule_ends_in_time_however_the_machine_changes(
    pace: float, slower: list[float], share: float, grow: float
) -> None:
    """A simulated fold of 40 epochs of 30 steps, whose validations take what prediction takes."""
    recipe = replace(
        SMALL,
        epochs=40,
        batch_size=10,
        grow=grow,
    )
    steps = BatchSampler(300, 10, 40, 0, 0)
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        forecast = Forecast(steps, 75 / 300, recipe)
        time_there_is = share * pace * forecast.left(0)
        began, until = clock.now, clock.now + time_there_is
        forecast.until = until
        total, step = steps.stop, 0
        while step < total:
            forecast.at(step)
            epoch = step // steps.per_epoch
            size = (forecast.work[epoch + 1] - forecast.work[epoch]) / steps.per_epoch
            now_pace = pace * slower[min(3, int(4 * (clock.now - began) / time_there_is))]
            clock.now += size * now_pace
            step += 1
            total = forecast.last_step(step, steps.stop)
            if step % steps.per_epoch == 0 and step < total:
                clock.now += forecast.look * now_pace
        clock.now += forecast.last_look * now_pace
        taken = clock.now - began
    last = forecast.last_look * now_pace
    unforeseen = last * max(0.0, 1 - 1 / (now_pace / pace))  # of the very last, which nothing comes after
    assert taken <= time_there_is * 1.02 + 4 * now_pace + unforeseen
    assert step == steps.stop or taken >= 0.7 * time_there_is


def test_every_fold_gets_as_much_and_the_submission_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    budget = Budget(1000.0)
    budget.tests = 0.1
    for left in (4, 3, 2, 1):
        until = budget.until(left)
        assert until - clock.now == pytest.approx((990 - START) / 4 * 0.9)
        clock.now = until
    assert budget.end - clock.now == pytest.approx(START + 0.1 * (990 - START))


def test_a_budget_shortens_a_run_and_its_next_call_goes_on_with_it(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.training.schedule.process_start", time.monotonic)  # not that of all tests
    write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    status, _, err = podium("train", *WORDS, "--epochs", "100000", "--budget", "40s", "--folds", "0")
    assert status == 0, err
    assert "the budget's 40 s hold 1 fold of " in err
    run = Run(tmp_path / "runs" / "tiny" / "test_vit")
    assert 1 <= run.recipe["epochs"] < 100_000
    history = run.history(0)
    assert history[-1]["lr"] < 1e-5  # the schedule came to its end
    assert history[-1]["views"] == "mirror"
    status, _, err = podium("train", *WORDS, "--epochs", "100000", "--budget", "40s", "--folds", "0")
    assert status == 0, err
    assert "fold 0 is trained already" in err


def test_a_schedule_that_the_clock_has_shortened_stays_so_when_it_goes_on(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    step = Fold.step

    def stopped(fold: Fold, *batch: object) -> None:
        if fold.state.step == 3:
            raise KeyboardInterrupt
        step(fold, *batch)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Forecast, "last_step", lambda self, step, planned: 5)
        patch.setattr(Fold, "step", stopped)
        assert podium("train", *WORDS, "--epochs", "20", "--folds", "0")[0] == 75
    status, _, err = podium("train", *WORDS, "--epochs", "20", "--folds", "0")
    assert status == 0, err
    assert "goes on from step" in err
    assert "of 5" in err
    run = Run(tmp_path / "runs" / "tiny" / "test_vit")
    assert run.history(0)[-1]["step"] == 5


@pytest.mark.parametrize(("text", "status"), [("8", 1), ("eight", 1), ("", 1), ("0.001s", 1)])
def test_a_budget_that_cannot_be_is_refused_in_one_line(tmp_path: Path, podium: Podium, text: str, status: int) -> None:
    write_competition(tmp_path)
    assert podium("folds", "-c", "tiny", "--k", "2")[0] == 0
    found, _, err = podium("train", *WORDS, "--epochs", "2", "--budget", text)
    assert found == status
    assert err.splitlines()[-1].startswith("podium: error: ")
    assert "budget" in err.splitlines()[-1]


def test_a_shortened_schedule_does_not_grow_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    recipe = replace(SMALL, epochs=4)
    forecast = Forecast(BatchSampler(300, 10, 4, 0, 0), 0.25, recipe, until=clock.now + 10_000)
    for step in range(30):
        forecast.at(step)
        clock.now += 1
    assert forecast.last_step(30, 60) == 60
    forecast.until = clock.now + 5
    assert 30 <= forecast.last_step(30, 60) < 60


def test_nothing_is_shortened_without_a_budget() -> None:
    recipe = replace(SMALL, epochs=4)
    forecast = Forecast(BatchSampler(300, 10, 4, 0, 0), 0.25, recipe)
    assert forecast.until == math.inf
    forecast.at(0)
    forecast.at(1)
    assert forecast.last_step(3, 77) == 77
