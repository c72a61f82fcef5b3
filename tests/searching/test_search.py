"""podium search: its trials, its judgement, and what it does when it is stopped, killed or started twice."""

import math
import re
import signal
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from torch import Tensor

from forked_podium import die_at_file, exit_status, start_podium
from podium.basics import disk
from podium.basics.errors import InUse, NoSpaceLeft, PodiumError
from podium.training.learner import Learner
from podium.training.plan import Plan, make_plan
from podium.training.train import train_folds
from podium_annex.searching import search, search_plan, study
from podium_annex.searching.pace import Pace
from podium_annex.searching.search_plan import plan_search
from podium_annex.searching.search_request import SearchRequest
from podium_annex.searching.study import FINISHED, SearchStudy
from searching.searches import OPTIONS_GIVEN, SEARCH, folder_of_search, searched, three_folds, trials_of
from second_round import first_of
from templates import copied, template
from tiny import FAST, Podium, assert_same_fold, assert_says, done, one_line, run_of, stop_in_step

MODELS = ("test_vit", "test_convnext", "test_resnet")
TWO_TRIALS = (*SEARCH[:-1], "2")


folds = copied(three_folds)


found = copied(searched)


# --- a search ----------------------------------------------------------------------------------------


def test_the_first_trial_is_a_run_of_the_defaults_to_the_bit(found: Path, podium: Podium) -> None:
    words = ("train", *FAST, *OPTIONS_GIVEN, "--model", "test_vit", "--name", "plain", "--folds", "0,1")
    done(podium(*words))
    for fold in (0, 1):
        assert_same_fold(run_of(found, "search-t0"), run_of(found, "plain"), fold)
    assert "search-t0" in podium("compare", "-c", "tiny")[1]


def test_what_the_user_gives_is_not_searched_and_the_rest_is(found: Path) -> None:
    recipes = [run_of(found, f"search-t{number}-short").recipe for number in range(3)]
    assert {recipe["lr"] for recipe in recipes} == {1e-3}
    assert {recipe["epochs"] for recipe in recipes} == {1}  # a short training
    assert run_of(found, "search-t0").recipe["epochs"] == 3
    assert len({recipe["mix"] for recipe in recipes}) == 3


def test_only_winner_and_defaults_see_the_fold_that_judges(found: Path, podium: Podium) -> None:
    out, _ = done(podium("search", "-c", "tiny", "--report"))
    assert "folds 0,1 searched, fold 2 judges" in out
    winner = re.search(r"winner: (search-t\d+)", out)
    assert winner
    judged = {run.parents[1].name for run in found.glob("runs/tiny/*/fold2/oof.npz")}
    assert judged == {winner[1]} | ({"search-t0"} if "defaults: search-t0" in out else set())


def test_the_same_command_again_trains_nothing(found: Path, podium: Podium) -> None:
    before = (folder_of_search(found) / "trials.jsonl").read_bytes()
    out, err = done(podium(*SEARCH))
    assert "epoch" not in err
    assert "winner: search-t" in out
    assert (folder_of_search(found) / "trials.jsonl").read_bytes() == before


def test_more_trials_go_on_where_fewer_ended(found: Path, podium: Podium) -> None:
    before = trials_of(found)
    done(podium(*SEARCH, "--trials", "4"))
    assert trials_of(found)[:3] == before
    assert len(trials_of(found)) == 4


def test_a_trial_that_is_worse_than_the_defaults_stops_after_its_short_training(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "score_on", lambda run, *_: float(run.name.startswith("search-t0")))
    _, err = done(podium(*SEARCH, "--trials", "2"))
    assert [state for state, _, _ in trials_of(folds)] == ["COMPLETE", "PRUNED"]
    assert "trial 1 stops after a short training: others did better" in err


def test_of_several_models_the_better_half_by_frozen_heads_is_searched(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "learns_anew", lambda weights: False)  # heads on random features: fast
    words = ("search", *FAST, "--device", "cpu", "--epochs", "1", "--model", *MODELS, "--trials", "2")
    out, _ = done(podium(*words, "--folds", "0,1"))
    assert out.count("left out") == 1
    assert {run.name for run in folds.glob("runs/tiny/search-look-*")} == {f"search-look-{model}" for model in MODELS}
    trained = {run_of(folds, f"search-t{number}").recipe["model"] for number in (0, 1)}
    assert len(trained) == 2
    assert len(trials_of(folds)) == 2  # the defaults of two models


def test_a_look_that_another_process_takes_is_waited_for_and_not_shared(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bool, float]] = []

    def locked(path: Path, shared: bool = False, patience: float = 0.0) -> AbstractContextManager[bool]:
        if path.name.startswith(".search-look-"):
            asked.append((shared, patience))
        return disk.locked(path, shared, patience)

    monkeypatch.setattr(search, "learns_anew", lambda weights: False)
    monkeypatch.setattr(search, "locked", locked)
    words = ("search", *FAST, "--device", "cpu", "--epochs", "1", "--model", *MODELS, "--trials", "1")
    done(podium(*words, "--folds", "0,1"))
    assert asked == [*[(False, 0.0)] * len(MODELS), *[(False, math.inf)] * len(MODELS)]


def test_a_time_that_the_looks_alone_use_up_is_refused(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "learns_anew", lambda weights: False)
    monkeypatch.setattr(Pace, "seconds", lambda pace, plan: 300.0 if "look" in plan.run.name else 0.0)
    words = ("search", *FAST, "--device", "cpu", "--epochs", "1", "--model", *MODELS, "--folds", "0,1")
    one_line(podium(*words, "--budget", "10m"), f"after 15 min for {len(MODELS)} frozen heads; allow more")
    assert not list(folds.glob("runs/tiny/search-*"))


# --- stopped, killed, started twice ------------------------------------------------------------------


def test_a_search_that_is_stopped_goes_on_with_the_trial_that_was_running(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (2, 5):
        _, err = stop_in_step(podium, step, *TWO_TRIALS, number=signal.SIGINT)
        assert "run the same command again to resume" in err
    assert "RUNNING" in [state for state, _, _ in trials_of(folds)]
    done(podium(*TWO_TRIALS))
    assert trials_of(folds) == trials_of(template(searched))[:2]


def note_and_die(root: Path, after_steps: int) -> None:
    """Notes every fold that is trained; dies after so many steps of training."""
    step = Learner.step
    steps = []

    def noted(plan: Plan) -> None:
        train_folds(plan)
        with (root / "trained").open("a") as file:
            file.writelines(f"{plan.run.name} {fold}\n" for fold in plan.folds_to_train)

    def counted(learner: Learner, images: Tensor, labels: Tensor) -> Tensor:
        steps.append(1)
        if len(steps) == after_steps:
            signal.raise_signal(signal.SIGKILL)
        return step(learner, images, labels)

    vars(search)["train_folds"] = noted
    Learner.step = counted  # type: ignore[method-assign, assignment]


@pytest.mark.slow
def test_two_processes_train_no_trial_twice_and_what_a_killed_one_leaves_is_finished(folds: Path) -> None:
    words = ("--root", folds, *SEARCH)
    logs = [folds / f"log{number}" for number in range(3)]
    killed, second = (
        start_podium(words, log, before=partial(note_and_die, folds, steps))
        for log, steps in zip(logs[:2], (7, 0), strict=True)
    )
    assert exit_status(killed) == -signal.SIGKILL, logs[0].read_text()
    third = start_podium(words, logs[2], before=partial(note_and_die, folds, 0))
    assert [exit_status(process) for process in (second, third)] == [0, 0], logs[1].read_text() + logs[2].read_text()
    trained = (folds / "trained").read_text().splitlines()
    assert len(trained) == len(set(trained))
    trials = SearchStudy(folder_of_search(folds), 1).trials()
    assert len(trials) == 3
    assert all(trial.state in FINISHED for trial in trials)
    assert not any("Traceback" in log.read_text() for log in logs)
    assert sum("winner: search-t" in log.read_text() for log in logs) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("count", first_of([8], [1, 3, 8, 13, 21]))
def test_a_search_that_is_killed_at_any_of_its_files_ends_as_an_undisturbed_one(folds: Path, count: int) -> None:
    words, log = ("--root", folds, *SEARCH), folds / "log"
    assert exit_status(start_podium(words, log, before=partial(die_at_file, count))) == -signal.SIGKILL
    assert exit_status(start_podium(words, log)) == 0, log.read_text()
    whole = template(searched)
    assert trials_of(folds) == trials_of(whole)
    names, expected = ({path.relative_to(root) for path in root.glob("runs/**/*")} for root in (folds, whole))
    assert names == expected


def test_a_trial_that_ends_while_another_process_waits_for_its_lock_is_not_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, first = tmp_path / "search", ExitStack()
    trial = first.enter_context(SearchStudy(folder, 1).claimed(1))
    assert trial is not None
    other = SearchStudy(folder, 1)

    def ended_meanwhile(path: Path, shared: bool = False, patience: float = 0.0) -> AbstractContextManager[bool]:
        if path.name == ".t0.lock":
            trial.study.tell(trial, 0.5)
            first.close()
        return disk.locked(path, shared, patience)

    monkeypatch.setattr(study, "locked", ended_meanwhile)
    with other.claimed(1) as claimed:
        assert claimed is None


def test_the_half_line_of_a_power_cut_is_cut_off(found: Path) -> None:
    before, path = trials_of(found), folder_of_search(found) / "trials.jsonl"
    with path.open("a") as file:
        file.write('{"op_code": 5, "trial')
    assert trials_of(found) == before


# --- trials that fail, time that is over -------------------------------------------------------------


def test_a_trial_that_fails_is_left_out_and_three_in_a_row_end_the_search(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"search-t1-short"}

    def train(plan: Plan) -> None:
        if plan.run.name in failing:
            raise PodiumError("the loss is not a number; use a lower --lr")
        train_folds(plan)

    monkeypatch.setattr(search, "train_folds", train)
    out, err = done(podium(*SEARCH, "--trials", "2"))
    assert "trial 1 failed: the loss is not a number" in err
    assert [state for state, _, _ in trials_of(folds)].count("FAIL") == 1
    assert "1 failed" in out
    failing |= {f"search-t{number}-short" for number in range(10)}
    assert "the loss is not a number" in one_line(podium(*SEARCH, "--trials", "9"))
    assert [state for state, _, _ in trials_of(folds)].count("FAIL") == 3


def test_the_defaults_must_not_fail(folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(search, "train_folds", lambda plan: (_ for _ in ()).throw(PodiumError("no space left")))
        assert "no space left" in one_line(podium(*SEARCH))
    assert [state for state, _, _ in trials_of(folds)] == ["RUNNING"]  # the same command tries it again


def test_a_time_that_is_too_short_for_the_defaults_is_refused_and_its_remedy_works(folds: Path, podium: Podium) -> None:
    one_line(podium(*SEARCH, "--budget", "1s"), "--budget", "allow more")
    done(podium(*SEARCH, "--folds", "0,1", "--trials", "1"))
    assert "was started with other settings: folds" in one_line(podium(*SEARCH, "--trials", "1"))


@pytest.mark.all
@pytest.mark.parametrize("kind", [NoSpaceLeft, InUse])
def test_a_trial_that_is_not_at_fault_is_kept_for_the_same_command(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, kind: type[PodiumError]
) -> None:
    def train(plan: Plan) -> None:
        if plan.run.name == "search-t1":
            raise kind("of something else")
        train_folds(plan)

    with monkeypatch.context() as patch:
        patch.setattr(search, "train_folds", train)
        patch.setattr(search, "score_on", lambda run, *_: float(not run.name.startswith("search-t0")))
        assert "of something else" in one_line(podium(*TWO_TRIALS))
    assert [state for state, _, _ in trials_of(folds)] == ["COMPLETE", "RUNNING"]
    done(podium(*TWO_TRIALS))
    assert "FAIL" not in [state for state, _, _ in trials_of(folds)]


@pytest.mark.all
def test_a_search_whose_time_is_over_is_judged_and_goes_on(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Pace, "seconds", lambda pace, plan: 1e6 if plan.run.name == "search-t1" else 0.0)
        status, out, err = podium(*TWO_TRIALS, "--budget", "100h")
    assert status == 0, err
    assert "the time of the search is over; the same command goes on" in err
    assert "winner: search-t0, the defaults" in out
    done(podium(*TWO_TRIALS))
    assert trials_of(folds) == trials_of(template(searched))[:2]


def test_a_time_that_ends_before_any_trial_does_leaves_a_report_without_a_winner(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search.Trials, "_has_time_for", lambda *_: False)
    out, err = done(podium(*SEARCH))
    assert "the same command goes on" in err
    assert_says(out, "1 unfinished", "no trial is finished on all folds of the search yet")


def test_a_forecast_is_corrected_by_the_folds_so_far(folds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter((0.0, 30.0))
    monkeypatch.setattr("podium_annex.searching.pace.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(Pace, "_estimate", lambda pace, plan, fold: 10.0)
    pace = Pace(100.0, 0.0)
    plan = _PlanOfOneFold()
    assert pace.seconds(plan) == 10  # type: ignore[arg-type]
    with pace.timed(plan):  # type: ignore[arg-type]
        pass
    assert pace.seconds(plan) == 30  # type: ignore[arg-type]


class _PlanOfOneFold:
    def unfinished_folds(self) -> list[int]:
        return [0]


# --- refusals ----------------------------------------------------------------------------------------


def test_optuna_that_is_not_installed_is_named_with_its_command(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'podium[search]'" in one_line(podium(*SEARCH))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--epochs", "2"), "options was"),
        (("--model", "test_resnet"), "models was"),
        (("--folds", "0,2"), "folds was"),
        (("--image-sizes", "32", "48"), "--image-size and --image-sizes contradict"),
        (("--folds", "all"), "--folds all: a search needs held-out images"),
        (("--model", "auto"), "--model auto"),
        (("--from", "plain"), "--from: a search starts from the weights of a model"),
        (("--finish", "48:1"), "--finish"),
    ],
)
def test_what_cannot_go_on_or_be_searched_is_refused(
    found: Path, podium: Podium, words: tuple[str, ...], problem: str
) -> None:
    before = trials_of(found)
    assert problem in one_line(podium(*SEARCH, *words))
    assert trials_of(found) == before


def test_one_fold_cannot_be_searched_and_judged(folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_plan, "make_plan", lambda checked: replace(make_plan(checked), folds_to_train=(0,)))
    assert "tiny has one fold" in one_line(podium(*SEARCH))
    assert not folder_of_search(folds).exists()


def test_what_a_given_level_sets_is_not_searched(folds: Path) -> None:
    request = SearchRequest(("test_vit",), {"weights": "none", "image_size": 32, "level": "light"})
    fixed = plan_search("tiny", folds, request, ("test_vit",)).fixed
    assert {"level", "mix"} <= fixed
    assert "smoothing" not in fixed


def test_a_study_of_another_version_or_a_damaged_one_is_refused(found: Path, podium: Podium) -> None:
    folder = folder_of_search(found)
    text = (folder / "study.json").read_text()
    (folder / "study.json").write_text(text.replace('"version": 2', '"version": 7'))
    assert "it is of version 7, and this Podium reads 2" in one_line(podium(*SEARCH))
    (folder / "study.json").write_text("{")
    assert "study.json: cannot be read" in one_line(podium("search", "-c", "tiny", "--report"))
    (folder / "study.json").write_text(text)
    journal = folder / "trials.jsonl"
    journal.write_text("nonsense\n" + journal.read_text())
    assert "trials.jsonl cannot be read" in one_line(podium(*SEARCH))


def test_a_report_needs_a_search(folds: Path, podium: Podium) -> None:
    assert "there is no search in" in one_line(podium("search", "-c", "tiny", "--report", "--name", "other"))
    assert not folder_of_search(folds, "other").exists()
