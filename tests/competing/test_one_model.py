"""`--model auto` tries several models before it chooses."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podium.basics.errors import PodiumError
from podium.competing import one_model
from podium.competing.next_step import Known
from podium.competing.one_model import OneModel, choose_one, move_run
from podium.competing.portfolio import HEAD, SCRATCH, TUNED, TUNED_FROM, BackboneRow, Candidate
from podium.competing.standing import Judge
from podium.competing.workshop import Workshop
from podium.models import hub, weight_packages
from podium.saved_runs.run_folder import Run
from podium.training.plan import Plan, make_plan
from podium.training.request import Request, check_before_plan
from tiny import Podium, assert_says, done, one_line, run_of

MODEL = "tf_efficientnet_lite0"
WORDS = (
    *("--image-size", "32", "--batch-size", "8", "--epochs", "1"),
    *("--folds", "0", "--device", "cpu", "--workers", "0"),
)
AUTO = ("train", "-c", "tiny", "--model", "auto", *WORDS)


def plan_of(root: Path, folds: tuple[int, ...] = (0,), budget: float | None = None, **options: object) -> Plan:
    return make_plan(check_before_plan("tiny", root, Request({"model": "auto", **options}, folds, budget=budget)))


@pytest.fixture(autouse=True)
def _smallest_portfolio(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = (BackboneRow(MODEL, "efficientnet_lite", 25.2, (64, 96, 128, 224)),)
    monkeypatch.setattr("podium.competing.understand.BACKBONES", rows)


# --- what is chosen, given what each model shows -------------------------------------------------------------


class Shown:
    """Stands for training and judging: the error of each member, by its kind and its side, is given."""

    def __init__(self, errors: dict[Any, float], seconds: dict[str, float], left: float = 1.0) -> None:
        self.errors, self.of_kind, self.left = errors, seconds, left
        self.trained: list[tuple[str, int]] = []

    def train(self, candidate: Candidate, folds: Any, seconds_left: float) -> None:
        error = self.errors.get((candidate.kind, candidate.side), self.errors.get(candidate.kind))
        if error is None:
            raise RuntimeError("out of memory")
        if not candidate.variant:
            self.trained.append((candidate.kind, candidate.side))

    def seconds(self, candidate: Candidate, folds: Any) -> float:
        return self.of_kind.get(candidate.kind, 1.0) * len(folds) * (candidate.side / 64) ** 2

    def singles(self, members: Any) -> tuple[list[Known], float]:
        of_member = [self.errors.get((one.candidate.kind, one.candidate.side)) for one in members]
        known = [
            Known(one.candidate, self.errors[one.candidate.kind] if error is None else error)
            for one, error in zip(members, of_member, strict=True)
        ]
        return known, self.left


@pytest.fixture
def decide(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Candidate, list[tuple[str, int]]]]:
    """Returns the choice, and what was trained before it."""

    def decide(
        errors: dict[Any, float], seconds: dict[str, float] | None = None, left: float = 1.0, **options: object
    ) -> tuple[Candidate, list[tuple[str, int]]]:
        shown = Shown(errors, seconds or {}, left)
        monkeypatch.setattr(Workshop, "train", lambda _, *given: shown.train(*given))
        monkeypatch.setattr(Workshop, "seconds", lambda _, *given: shown.seconds(*given))
        monkeypatch.setattr(Judge, "singles", lambda _, members: shown.singles(members))
        budget = options.pop("budget", None)
        plan = plan_of(tiny, budget=budget, **options)  # type: ignore[arg-type]
        search = OneModel(replace(plan, data=plan.data._replace(shape=1.0)))
        return search.run(), shown.trained

    return decide


def test_heads_grow_as_long_as_they_pay_and_then_the_rest_is_tried(decide: Callable[..., Any]) -> None:
    best, trained = decide({(HEAD, 64): 0.2, (HEAD, 128): 0.1, (HEAD, 224): 0.08, TUNED: 0.03, SCRATCH: 0.2})
    assert trained[:3] == [(HEAD, 64), (HEAD, 128), (HEAD, 224)]
    assert trained[3][0] == TUNED
    assert best.kind == TUNED
    best, trained = decide({(HEAD, 64): 0.1, (HEAD, 128): 0.2, TUNED: 0.3, SCRATCH: 0.3})
    assert (HEAD, 224) not in trained
    assert (best.kind, best.side) == (HEAD, 64)  # nothing is better than what it has seen first


def test_a_model_from_scratch_is_tried_where_fine_tuning_disappoints(decide: Callable[..., Any]) -> None:
    best, trained = decide({HEAD: 0.4, TUNED: 0.35, SCRATCH: 0.1})
    assert best.kind == SCRATCH
    assert [kind for kind, _ in trained].index(TUNED) < [kind for kind, _ in trained].index(SCRATCH)
    _, trained = decide({HEAD: 0.4, TUNED: 0.01, SCRATCH: 0.005})
    assert SCRATCH not in [kind for kind, _ in trained]


def test_perfect_members_end_the_search(decide: Callable[..., Any]) -> None:
    best, trained = decide({HEAD: 0.1, TUNED: 0.0, SCRATCH: 0.0})
    assert best.kind == TUNED
    assert [kind for kind, _ in trained].count(TUNED) == 1


def test_what_there_is_no_time_for_is_not_tried(decide: Callable[..., Any]) -> None:
    errors = {HEAD: 0.2, TUNED: 0.01, SCRATCH: 0.01}
    slow = {HEAD: 1.0, TUNED: 1e6, SCRATCH: 1e6}
    best, trained = decide(errors, slow)
    assert best.kind == HEAD
    assert {kind for kind, _ in trained} == {HEAD}
    _, trained = decide({**errors, (HEAD, 128): 0.1}, {**slow, HEAD: 10.0}, budget=60.0)
    assert trained[:2] == [(HEAD, 64), (HEAD, 96)]  # a larger one has the time that was kept for other models
    assert {kind for kind, _ in trained} == {HEAD}


def test_a_slow_machine_tries_a_larger_head_before_a_model_that_promises_less(decide: Callable[..., Any]) -> None:
    errors, slow = {(HEAD, 64): 0.2, HEAD: 0.1, TUNED: 0.05, SCRATCH: 0.5}, {HEAD: 10.0, TUNED: 1e6, SCRATCH: 1e-3}
    _, trained = decide(errors, slow, budget=60.0)
    assert trained == [(HEAD, 64), (HEAD, 96), (HEAD, 128), (SCRATCH, 64)]
    _, trained = decide(errors, {**slow, TUNED: 1e-3}, budget=60.0)
    assert trained[1][0] == TUNED
    _, trained = decide(errors, slow, budget=60.0, loss="focal")  # no head may be the choice
    assert trained == [(HEAD, 64), (SCRATCH, 64)]


def test_where_nothing_fits_the_quickest_is_trained_if_no_head_may_be_the_choice(decide: Callable[..., Any]) -> None:
    errors, slow = {HEAD: 0.2, TUNED: 0.1, SCRATCH: 0.1}, {HEAD: 1.0, TUNED: 1e6, SCRATCH: 1e8}
    best, trained = decide(errors, slow, loss="focal")
    assert best.kind == TUNED
    assert best.options["epochs"] == 1
    assert [kind for kind, _ in trained].count(TUNED) == 1
    best, _ = decide(errors, slow, epochs=50, loss="focal")  # what is given stays
    assert (best.kind, best.options["epochs"]) == (TUNED, 50)
    assert best.side == TUNED_FROM  # of the smallest images


def test_errors_may_be_large_numbers(decide: Callable[..., Any]) -> None:
    best, _ = decide({HEAD: 900.0, TUNED: 1_000.0, SCRATCH: 2_000.0}, linear=False)
    assert best.kind == TUNED


def test_options_that_are_given_are_not_changed(decide: Callable[..., Any]) -> None:
    errors = {HEAD: 0.2, TUNED: 0.05, SCRATCH: 0.2}
    best, trained = decide(errors, image_size=48, mirror=0.0, lr=1e-4)
    assert {side for _, side in trained} == {48}
    assert (best.options["mirror"], best.options["lr"], best.options["image_size"]) == (0.0, 1e-4, 48)
    best, trained = decide(errors, linear=True)
    assert {kind for kind, _ in trained} == {HEAD}
    assert best.options["linear"]
    best, _ = decide({**errors, TUNED: 0.3, SCRATCH: 0.1}, level="strong")
    assert best.kind == SCRATCH
    assert best.options["level"] == "strong"
    assert "mix" not in best.options  # the level sets it


@pytest.mark.parametrize("option", [{"linear": False}, {"loss": "focal"}, {"class_weights": "balanced"}])
def test_a_head_is_no_choice_where_the_user_wants_what_only_training_has(
    decide: Callable[..., Any], option: dict[str, Any]
) -> None:
    errors = {HEAD: 0.01, TUNED: 0.2, SCRATCH: 0.3}
    assert decide(errors)[0].kind == HEAD
    best, trained = decide(errors, **option)
    assert best.kind == TUNED
    assert trained[0][0] == HEAD  # heads show at which size
    assert all(best.options[name] == value for name, value in option.items())


def test_a_member_that_fails_is_left_out(decide: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    best, _ = decide({HEAD: 0.2, SCRATCH: 0.05})
    assert best.kind == SCRATCH
    assert "failed and is left out: out of memory" in capsys.readouterr().err
    with pytest.raises(PodiumError, match="no model could be trained"):
        decide({})


# --- with real images and weights ----------------------------------------------------------------------------


@pytest.fixture
def tuned_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the fine-tuned model win: on few small images its one epoch is worth nothing."""
    singles = Judge.singles

    def judged(judge: Judge, members: Any) -> tuple[list[Known], float]:
        known, left = singles(judge, members)
        errors = {TUNED: 0.0, HEAD: 0.1}
        return [replace(one, error=errors.get(one.candidate.kind, 0.5)) for one in known], left

    monkeypatch.setattr(Judge, "singles", judged)


@pytest.mark.slow
@pytest.mark.usefixtures("tuned_is_best")
def test_the_best_becomes_the_run_and_the_best_head_stays_beside_it(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(OneModel, "look_at", stop)
        assert podium(*AUTO)[0] == 75
    assert not (tiny / "runs" / "tiny" / "auto").exists()
    _, err = done(podium(*AUTO))  # goes on with the head that is there
    assert_says(err, "frozen head, 32 px: accuracy", f"podium: auto takes {MODEL}, fine-tuned, 32 px")
    recipe = run_of(tiny, "auto").recipe
    assert recipe["model"] == recipe["auto"]["options"]["model"] == MODEL
    assert not recipe["linear"]
    assert recipe["auto"]["looks"][0]["member"] == f"{MODEL}-head-32"
    head = run_of(tiny, "auto-head")
    assert head.recipe["linear"]
    assert head.finished() == [0]
    assert not (tiny / "runs" / "tiny" / ".auto-auto").exists()
    _, err = done(podium(*AUTO))
    assert "auto tries" not in err
    assert "nothing has changed" in err
    assert "epochs" in one_line(podium(*AUTO[:-8], "--epochs", "2", *AUTO[-6:]))
    done(podium(*AUTO, "--folds", "0,1"))
    assert run_of(tiny, "auto").finished() == [0, 1]


@pytest.mark.slow
def test_a_head_that_auto_chose_goes_on_within_a_budget(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_model, "LEAST_GAIN", 10.0)  # nothing promises so much
    for folds in ("0", "0,1"):
        done(podium(*AUTO, "--folds", folds, "--budget", "3h"))
    run = run_of(tiny, "auto")
    assert (run.recipe["linear"], run.finished()) == (True, [0, 1])
    assert not (tiny / "runs" / "tiny" / "auto-head").exists()


def test_without_pretrained_weights_auto_trains_from_scratch(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (hub, weight_packages):
        monkeypatch.setattr(module, "PACKAGES", ())
    _, err = done(podium(*AUTO))
    assert "no pretrained weights are here, so auto trains" in err
    assert run_of(tiny, "auto").recipe["weights"] == "none"


def test_a_named_model_and_weights_of_none_are_not_questioned(tiny: Path) -> None:
    assert plan_of(tiny).may_choose
    assert not plan_of(tiny, weights="none").may_choose
    named = make_plan(check_before_plan("tiny", tiny, Request({"model": "test_vit", "weights": "none"})))
    assert not named.may_choose
    assert choose_one(named) is named


def test_a_folder_that_is_no_run_is_kept(tmp_path: Path) -> None:
    run, path = Run(tmp_path / "one"), tmp_path / "auto"
    for folder in (run.path, path):
        folder.mkdir()
    (path / "notes.txt").write_text("mine")
    with pytest.raises(PodiumError, match="move it, or choose another --name"):
        move_run(run, path)
    (path / "notes.txt").unlink()
    move_run(run, path)
    assert path.exists()
    assert not run.path.exists()
