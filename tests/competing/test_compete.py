"""A whole journey of `podium compete`, on plain colours with the smallest models, undisturbed and disturbed."""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import podium as library
from competing.journeys import bits_of, run
from extension_file import write_extension
from podium.basics.disk import sha256
from podium.basics.errors import NoSpaceLeft, PodiumError
from podium.basics.machine import Machine
from podium.competing import journey
from podium.competing.best_csv import BestCsv
from podium.competing.choices import CompeteRequest
from podium.competing.compete import compete
from podium.competing.ledger_lines import step_of
from podium.competing.portfolio import candidate_of
from podium.competing.standing import Judge, Member
from podium.competition.load import load
from podium.saved_runs.fold_names import WHOLE
from podium.saved_runs.ledger import BEGUN, ENDED, FAILED, SUBMITTED, Ledger
from podium.saved_runs.run_folder import Run
from podium.training.plan import Plan
from podium.training.train import train_folds
from tiny import FAST, Podium, assert_says, done, one_line, run_of, write_card, write_competition

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_portfolio")]


def test_a_journey_ends_with_the_best_blend_and_its_decisions(mixed: Path, podium: Podium) -> None:
    outcome = run(mixed)
    assert outcome.submission == mixed / "submissions/tiny/compete.csv"
    assert outcome.submission.exists()
    assert sum(outcome.members.values()) == pytest.approx(1)
    assert list(outcome.table.columns) == ["member", "score", "weight", "minutes"]
    assert len(outcome.table) == 3
    ledger = Ledger("tiny", mixed)
    begun, ended = ledger.of(BEGUN), ledger.of(ENDED)
    assert [line["member"] for line in begun] == [line["member"] for line in ended]
    assert begun[0]["member"] == "tf_efficientnet_lite0-head-32"
    assert begun[1]["variant"] == "plain"
    assert all(line["why"] for line in begun)
    assert ledger.of(SUBMITTED)[-1]["sha256"] == sha256(outcome.submission)
    out, _ = done(podium("lineage", outcome.submission))
    assert_says(out, "decided", "tf_efficientnet_lite0-head-32")
    done(podium("submit", "-c", "tiny", "--name", "again"))  # its members are ordinary runs


def stop_at_the_third_member(root: Path) -> None:
    names: list[str] = []

    def train(plan: Plan) -> None:
        names.append(plan.run.name)
        if len(names) == 3:
            raise KeyboardInterrupt
        train_folds(plan)

    with pytest.raises(KeyboardInterrupt):
        run(root, 4, train=train)


def test_a_stopped_journey_goes_on_to_the_same_bits(mixed: Path, tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(mixed, undisturbed, ignore=shutil.ignore_patterns("undisturbed"))
    run(undisturbed, 4)
    stop_at_the_third_member(mixed)
    before = bits_of(mixed)
    assert "submissions/tiny/compete.csv" in before  # the last one stands
    run(mixed, 2)
    assert bits_of(mixed) == bits_of(undisturbed)
    assert [line["member"] for line in Ledger("tiny", mixed).of(ENDED)] == [
        line["member"] for line in Ledger("tiny", undisturbed).of(ENDED)
    ]


def test_a_member_that_was_begun_waits_for_more_time_where_the_time_is_over(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop_at_the_third_member(mixed)
    ended = Ledger("tiny", mixed).of(ENDED)
    outcome = compete(load("tiny", mixed), CompeteRequest(0.001))
    assert "was begun, and the time is over; a longer BUDGET" in capsys.readouterr().err
    assert Ledger("tiny", mixed).of(ENDED) == ended
    assert outcome.submission.exists()


def test_a_member_that_fails_is_named_and_the_rest_goes_on(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def fail_second(plan: Plan) -> None:
        calls.append(plan.run.name)
        if len(calls) == 2:
            raise RuntimeError("out of memory")
        train_folds(plan)

    outcome = run(mixed, 2, train=fail_second)
    (failed,) = Ledger("tiny", mixed).of(FAILED)
    assert failed["member"] == calls[1]
    assert calls[1] not in outcome.members
    assert len(outcome.table) == 2
    err = capsys.readouterr().err
    assert_says(err, f"{calls[1]} failed and is left out: out of memory", "warning: failed, and left out")
    run(mixed, 1)
    assert [line["member"] for line in Ledger("tiny", mixed).of(BEGUN)].count(calls[1]) == 1  # not tried again
    assert Ledger("tiny", mixed).failed() == {calls[1]}
    Ledger("tiny", mixed).add("started", budget=1_200.0)
    assert Ledger("tiny", mixed).failed() == set()  # with more time it is


def test_a_full_disk_ends_it_with_the_last_csv(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = []

    def fill_disk(plan: Plan) -> None:
        calls.append(plan.run.name)
        if len(calls) == 2:
            raise NoSpaceLeft("no space left to write model.safetensors")
        train_folds(plan)

    outcome = run(mixed, 5, train=fill_disk)
    assert len(calls) == 2
    assert outcome.submission.exists()
    assert "no space left to write model.safetensors; no further member is trained" in capsys.readouterr().err


def test_if_the_first_member_fails_another_model_is_the_first(mixed: Path) -> None:
    def fail_heads(plan: Plan) -> None:
        if plan.recipe.linear:
            raise RuntimeError("damaged weights")
        train_folds(plan)

    outcome = run(mixed, 1, train=fail_heads)
    assert set(outcome.table["member"]) == {"test_resnet-scratch-32"}
    assert Ledger("tiny", mixed).failed() == {"tf_efficientnet_lite0-head-32"}


def test_if_every_member_fails_there_is_an_error(mixed: Path) -> None:
    def fail(plan: Plan) -> None:
        raise PodiumError("no memory")

    with pytest.raises(PodiumError, match=r"no member could be trained: .*head-32 failed; the last one: no memory"):
        run(mixed, train=fail)


def test_a_run_by_hand_is_blended_and_one_of_other_folds_is_named(
    mixed: Path, podium: Podium, capsys: pytest.CaptureFixture[str]
) -> None:
    done(podium("train", *FAST, "--model", "test_resnet", "--name", "mine", "--epochs", "12", "--lr", "1e-2"))
    shutil.copytree(mixed / "runs/tiny/mine", mixed / "runs/tiny/other")
    recipe = mixed / "runs/tiny/other/recipe.json"
    recipe.write_text(json.dumps({**json.loads(recipe.read_text()), "folds_sha256": "f" * 64}))
    outcome = run(mixed, 1)
    assert "mine" in set(outcome.table["member"])
    assert "other" not in set(outcome.table["member"])
    assert "not blended: other (" in capsys.readouterr().err
    assert "mine" not in set(run(mixed, 0, except_runs=("mine",)).table["member"])


SCORES = {("a",): 0.8, ("b",): 0.8, ("a", "b"): 0.8, ("a", "b", "c"): 0.8, ("a", "c"): 0.8, ("b", "c"): 0.8}


@pytest.mark.parametrize(
    ("weighed", "better", "names", "earlier"),
    [
        ("ab", (), "a", "a"),  # a tie goes to the earlier blend
        ("ab", ("a", "b", "c"), "abc", "a"),
        ("ab", ("a", "c"), "ac", "a"),  # b was weighed before, and did not help
        ("ac", ("a", "c"), "a", "a"),
        ("", ("a", "b"), "ab", "a"),  # without c, which is the worst one
        ("ab", ("b", "c"), "a", "a"),  # neither all, nor the earlier ones with what is new, nor all but the worst one
        ("abc", ("a",), "a", "ac"),  # the best one alone, where it is better than each blend
    ],
)
def test_a_blend_stays_unless_a_new_one_is_better(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch, weighed: str, better: tuple[str, ...], names: str, earlier: str
) -> None:
    def blend(_: Judge, runs: Sequence[Run]) -> Any:
        called = tuple(run.name for run in runs)
        score = 0.9 if called == better else SCORES[called]
        equal = SimpleNamespace(weights=(1 / len(runs),) * len(runs))
        return SimpleNamespace(estimate=SimpleNamespace(score=score), blend=equal)

    monkeypatch.setattr(Judge, "blend", blend)
    for name, source in {"a": "good", "b": "good", "c": "idle"}.items():
        shutil.copytree(run_of(two_runs, source).path, two_runs / "runs/tiny" / name)
    members = [Member(run, candidate_of(run)) for run in (run_of(two_runs, name) for name in "abc")]
    judgement = Judge(load("tiny", two_runs), [0, 1]).judge(members, earlier, weighed)
    assert judgement.names == list(names)
    assert judgement.score == (0.9 if tuple(names) == better else 0.8)
    assert set(judgement.errors) == set("abc")


DECISIONS = """
from podium import extend
ASKED = []

@extend.decision
def all_red(ids, probabilities, table):
    ASKED.append(len(ids))
    return ["red"] * len(ids)

@extend.decision
def all_blue(ids, probabilities, table):
    return ["blue"] * len(ids)
"""


def test_the_decision_of_the_card_judges_and_is_in_the_csv(mixed: Path) -> None:
    write_extension(mixed, DECISIONS)
    for name in ("red", "blue"):  # the second time, the card alone has changed
        write_card(mixed, f'decision = "all_{name}"\n')
        outcome = run(mixed, 1 if name == "red" else 0)
        assert set(pd.read_csv(outcome.submission)["predict"]) == {name}
        assert outcome.score == pytest.approx(1 / 3)
        lineage = json.loads(outcome.submission.with_suffix(".json").read_text())
        assert lineage["decision"]["name"] == f"all_{name}"


def test_a_blend_from_before_is_decided_once(two_runs: Path) -> None:
    write_extension(two_runs, DECISIONS)
    write_card(two_runs, 'decision = "all_red"\n')
    judge = Judge(load("tiny", two_runs), [0, 1])
    judgement = judge.judge([Member(run, candidate_of(run)) for run in (run_of(two_runs, "good"),)])
    assert judgement.score == pytest.approx(1 / 3)
    asked = sys.modules["podium_extension_mine"].ASKED
    asked.clear()
    assert not judge.is_better(judgement, judgement)
    assert asked == [36]


def test_a_time_too_short_for_one_member_says_what_is_enough(mixed: Path, podium: Podium) -> None:
    line = one_line(podium("compete", "-c", "tiny", "--budget", "3s"), "the first member takes about")
    assert re.search(rf"enough: podium --root {mixed} compete -c tiny --budget [1-9]\d*m$", line), line


def test_an_archive_that_lies_there_is_unpacked_and_meant(tmp_path: Path, podium: Podium) -> None:
    folder = write_competition(tmp_path)
    shutil.make_archive(str(folder), "zip", folder)
    shutil.rmtree(folder)
    assert "the first member takes about" in one_line(podium("compete", "--budget", "1s"))
    assert (folder / "train.csv").exists()


def test_more_time_goes_on_where_it_was(mixed: Path) -> None:
    run(mixed, 1)
    outcome = compete(load("tiny", mixed), CompeteRequest(1_200.0, most_members=1))
    assert len(outcome.table) == 2
    assert [line["budget"] for line in Ledger("tiny", mixed).of("started")] == [600.0, 1_200.0]


def test_a_deleted_csv_is_written_again(mixed: Path) -> None:
    outcome = run(mixed, 1)
    before = outcome.submission.read_bytes()
    outcome.submission.unlink()
    assert run(mixed, 0).submission.read_bytes() == before


def test_the_library_does_the_same(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journey, "LEAST_GAIN", 1.0)  # the first member and its question, and no more
    outcome = library.compete(library.load("tiny", mixed), budget="10m")
    assert outcome.submission.exists()
    assert " to " in outcome.expected
    assert Run(mixed / "runs/tiny" / next(iter(outcome.members))).finished() == [0, 1]
    with pytest.raises(PodiumError, match="budget must be a time such as '8h'"):
        library.compete(library.load("tiny", mixed), budget="soon")
    assert replace(CompeteRequest(), budget=3.0).budget == 3.0


def test_an_import_is_blended_if_its_folds_are_known(mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    competition = library.load("tiny", mixed)
    held_out = competition.train[["id"]].copy()
    for name in competition.classes:
        held_out[name] = 0.05 + 0.8 * (competition.train["target"] == name)
    test = competition.test[["id"]].assign(**dict.fromkeys(competition.classes, 0.25))
    competition.add_predictions("unsure", held_out, test)
    outcome = run(mixed, 1)
    assert "unsure" not in set(outcome.table["member"])
    assert "not blended: unsure (its folds are unknown)" in capsys.readouterr().err
    competition.add_predictions("team", held_out, test, same_folds=True)
    outcome = run(mixed, 0)
    assert set(outcome.table["member"]) >= {"team", "tf_efficientnet_lite0-head-32"}
    assert outcome.members["team"] > 0


def test_time_that_is_left_goes_to_models_of_all_images(
    mixed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("podium.competing.standing.Judge.error", lambda _, chosen: 1 / len(chosen.blend.weights))
    monkeypatch.setattr("podium.competing.ending.LEAST_WEIGHT", 0.0)
    run(mixed, 3)
    submitted = len(Ledger("tiny", mixed).of(SUBMITTED))
    monkeypatch.setattr(journey.Journey, "next_step", lambda _: None)  # none fits into the time
    outcome = run(mixed, 9)
    wholes = {path.parents[1].name for path in mixed.glob("runs/tiny/*/all0/model.safetensors")}
    assert wholes == set(outcome.table["member"])
    assert len(wholes) == 3
    ledger = Ledger("tiny", mixed)
    assert ledger.of(BEGUN)[-1]["folds"] == [WHOLE]
    assert "all images" in capsys.readouterr().err
    assert len(ledger.of(SUBMITTED)) == submitted + 1  # one CSV for all of them
    assert set(ledger.of(SUBMITTED)[-1]["models"]) == {3}
    assert ledger.of(SUBMITTED)[-1]["sha256"] == sha256(outcome.submission)
    run(mixed, 9)
    assert len(ledger.of(BEGUN)) == len(Ledger("tiny", mixed).of(BEGUN))  # not again


def test_a_model_of_all_images_that_fails_leaves_its_member_in_the_blend(
    mixed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(mixed, 1)
    monkeypatch.setattr(journey.Journey, "next_step", lambda _: None)

    def fail(plan: Plan) -> None:
        raise RuntimeError("out of memory")

    outcome = run(mixed, 9, train=fail)
    err = capsys.readouterr().err
    (name,) = outcome.members
    assert f"{name} goes on without a model of all images: out of memory" in err
    assert "left out" not in err


def test_a_recipe_with_an_end_of_its_own_is_not_cut_off(mixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.competing.understand.BACKBONES", ())
    cards = mixed / "data" / "competitions"
    cards.mkdir(parents=True, exist_ok=True)
    with (cards / "tiny.toml").open("a") as file:
        file.write('\n[recipe]\nfinish = "64:1"\n')
    plans: list[Plan] = []

    def train(plan: Plan) -> None:
        plans.append(plan)
        train_folds(plan)

    run(mixed, 1, train=train)
    assert plans[0].recipe.finish == "64:1"
    assert plans[0].request.budget is None


def test_fewer_folds_judge_only_for_members_that_lack_the_others(mixed: Path) -> None:
    run(mixed, 2)
    ledger = Ledger("tiny", mixed)
    best = BestCsv(load("tiny", mixed), Machine(), ledger)
    candidates = {line["member"]: step_of(line).candidate for line in ledger.of(BEGUN)}
    last = best.update(candidates, (0, 1))
    assert last is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Judge, "is_better", lambda *_: True)  # by luck, on few images
        assert best.update(candidates, (0,), last) is None
    assert Ledger("tiny", mixed).of(SUBMITTED)[-1]["folds"] == [0, 1]


def test_training_images_that_cannot_be_read_are_named_before_anything_is_trained(mixed: Path, podium: Podium) -> None:
    next((mixed / "data" / "raw" / "tiny").glob("train*/*.jpg")).write_bytes(b"")
    status, _, err = podium("compete", "-c", "tiny", "--budget", "1m")
    assert status == 1
    assert "audit: 1 unreadable image" in err
    assert "1 training image cannot be read; leave them out with" in err
    assert "audit -c tiny --drop-bad" in err
    assert not Ledger("tiny", mixed).failed()
