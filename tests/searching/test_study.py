"""The study of a search: who gets which trial, and which one is the best."""

from pathlib import Path

import pytest
from optuna.trial import TrialState

from podium.basics.disk import locked
from podium_annex.searching.study import JOURNAL, OF_EACH_FOLD, SHORT_TRAINING, SearchStudy


def told(study: SearchStudy, *scores: float) -> list[float]:
    """Draws and tells trials; returns what they drew."""
    drawn = []
    for score in scores:
        with study.claimed(100) as trial:
            assert trial is not None
            drawn.append(trial.suggest_float("lr", 0.1, 10, log=True))
            study.study.tell(trial, study.value(score))
    return drawn


@pytest.mark.parametrize(("better", "number"), [(1, 1), (-1, 0)])
def test_the_best_trial_has_the_best_score_and_the_first_of_equal_ones_wins(
    tmp_path: Path, better: int, number: int
) -> None:
    study = SearchStudy(tmp_path, better)
    assert study.best() is None
    told(study, 0.2, 0.9, 0.5, 0.9, 0.2)
    best = study.best()
    assert best is not None
    assert best.number == number


def test_what_is_drawn_depends_on_the_seed_and_on_the_trials_before(tmp_path: Path) -> None:
    scores = [0.1 * number for number in range(14)]  # after ten trials, the scores count
    first = told(SearchStudy(tmp_path / "a", 1, seed=3), *scores)
    half = told(SearchStudy(tmp_path / "b", 1, seed=3), *scores[:6])
    again = half + told(SearchStudy(tmp_path / "b", 1, seed=3), *scores[6:])  # another process goes on
    assert first == again
    assert told(SearchStudy(tmp_path / "c", 1, seed=4), *scores)[0] != first[0]
    assert told(SearchStudy(tmp_path / "d", 1, seed=3), *reversed(scores))[-1] != first[-1]


def test_a_trial_belongs_to_one_process_until_it_lets_go(tmp_path: Path) -> None:
    first, second = SearchStudy(tmp_path, 1), SearchStudy(tmp_path, 1)
    with first.claimed(2) as own:
        assert second.is_busy()
        with second.claimed(2) as other:
            assert own is not None
            assert other is not None
            assert {own.number, other.number} == {0, 1}
        with second.claimed(2) as left:  # nobody has finished it
            assert left is not None
            assert left.number == other.number
            second.study.tell(left, 0.5)
        with second.claimed(2) as none:
            assert none is None
    assert not second.is_busy()
    with second.claimed(2) as left:
        assert left is not None
        assert left.number == own.number


def test_processes_that_count_at_the_same_time_hear_the_same(tmp_path: Path) -> None:
    study = SearchStudy(tmp_path, 1)
    with study.claimed(1) as left:
        assert left is not None
    with locked(study._lock_path(left.number), shared=True):  # another one counts
        assert not study.is_busy()


def test_half_a_line_that_a_full_disk_has_left_is_cut_off_before_the_next_one(tmp_path: Path) -> None:
    study = SearchStudy(tmp_path, 1)
    told(study, 0.5)
    with (tmp_path / JOURNAL).open("a") as file:  # of another process, while this one has the study open
        file.write('{"op_code": 4, "wor')
    told(study, 0.6)
    assert [trial.value for trial in SearchStudy(tmp_path, 1).trials()] == [0.5, 0.6]


@pytest.mark.parametrize(("steps", "rungs"), [((1,), 1), ((1, 2), 2), ((1, 2, 4), 3), ((1, 2, 4, 6, 8), 4)])
def test_trials_compete_after_a_short_training_one_fold_two_and_four(
    tmp_path: Path, steps: tuple[int, ...], rungs: int
) -> None:
    assert steps == (SHORT_TRAINING, *(OF_EACH_FOLD * count for count in range(1, len(steps))))
    study = SearchStudy(tmp_path, 1)
    with study.claimed(1) as trial:
        assert trial is not None
        for step in steps:
            trial.report(0.5, step)
            assert not trial.should_prune()
        found = study.trials()[trial.number].system_attrs
    assert len([key for key in found if key.startswith("completed_rung")]) == rungs


def test_the_defaults_come_first_and_once(tmp_path: Path) -> None:
    study = SearchStudy(tmp_path, 1)
    for _ in range(2):
        study.enqueue_defaults({"a": {"lr": 1.0}, "b": {"lr": 2.0}})
    assert [trial.state for trial in study.trials()] == [TrialState.WAITING] * 2
    assert told(study, 0.3, 0.4) == [1.0, 2.0]
    known = study.defaults_of("b")
    assert known is not None
    assert known.number == 1
    assert study.defaults_of("c") is None
