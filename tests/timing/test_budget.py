"""`--budget`: the first steps decide how many epochs and folds fit, and the submission keeps its share."""

import time
from pathlib import Path

import pytest

from podium.training.timing import budget as budget_module
from podium.training.timing.budget import SUBMIT_START, Budget, choose_epochs
from timing.clock import Clock
from tiny import FAST, Podium, done, one_line, run_of

TRAIN = ("train", *FAST, "--model", "test_vit", "--folds", "0")


@pytest.mark.parametrize(
    ("seconds", "folds", "epochs", "expected"),
    [
        (1000, 5, 12, (5, 12)),  # all of it fits
        (500, 5, 12, (5, 8)),  # all folds, with fewer epochs
        (150, 5, 12, (2, 5)),  # three folds would have three epochs each, and five none
        (45, 5, 12, (1, 2)),  # one fold takes what there is
        (25, 5, 12, (1, 0)),
    ],
)
def test_fewer_epochs_come_before_fewer_folds(
    seconds: float, folds: int, epochs: int, expected: tuple[int, int]
) -> None:
    assert choose_epochs(lambda epochs: 20 + 10 * epochs, seconds, [1.0] * folds, epochs) == expected


def test_every_fold_gets_an_equal_share_and_the_submission_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    budget = Budget(1000.0, clock.now)
    budget.test_share = 0.1
    for folds_left in (4, 3, 2, 1):
        deadline = budget.start_fold(folds_left)
        assert deadline - clock.now == pytest.approx((990 - SUBMIT_START) / 4 * 0.9)
        clock.now = deadline
    assert budget.end - clock.now == pytest.approx(SUBMIT_START + 0.1 * (990 - SUBMIT_START))


@pytest.mark.slow
@pytest.mark.alone
def test_a_budget_shortens_a_run_and_the_next_call_keeps_its_plan(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_module, "process_start", time.monotonic)  # not that of all tests
    monkeypatch.setattr(budget_module, "SUBMIT_START", 1.0)
    done(podium(*TRAIN, "--epochs", "1", "--name", "first"))  # the first run of a process takes longer
    command = (*TRAIN, "--epochs", "100000", "--budget", "6s")
    _, err = done(podium(*command))
    assert "in 6 s: 1 fold of " in err
    run = run_of(tiny)
    assert 1 <= run.recipe["epochs"] < 100_000
    history = run.history(0)
    assert history[-1].lr < 1e-5  # the schedule came to its end
    assert history[-1].views == "mirror"
    assert not list(run.path.glob(".trial-*"))
    _, err = done(podium(*command))
    assert "fold 0 is trained already" in err


@pytest.mark.parametrize("text", ["8", "eight", "", "0.001s"])
def test_a_budget_that_cannot_be_met_or_read_is_refused(tiny: Path, podium: Podium, text: str) -> None:
    assert "budget" in one_line(podium(*TRAIN, "--epochs", "2", "--budget", text))
