"""podium submit --decision: from runs to a CSV, its lineage, and back, with a decision after the blend."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from podium.blending.decision import Decision
from podium.blending.gain import Gain
from podium.blending.nested import Judged
from tiny import Podium, assert_says, done, one_line, write_file

CARD = Path("data/competitions/tiny.toml")


@pytest.fixture(autouse=True)
def _fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.blending.expected_score.SLOW_RESAMPLES", 20)


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Callable[[Decision], None]:
    """Makes `submit` take this decision, whatever it gains: the tiny runs are too good for a real one."""

    def install(decision: Decision) -> None:
        judged = Judged(decision, Gain(0.5, 0.6, 0.1, (0.05, 0.15)), True)
        monkeypatch.setattr(
            "podium.submissions.choose_steps.choose_decision",
            lambda held_out, nested, metric, kind: (judged, decision.apply(nested)),
        )

    return install


@pytest.fixture
def macro_f1(two_runs: Path) -> Path:
    write_file(two_runs / CARD, 'metric = "macro_f1"\n')
    return two_runs


def submitted(podium: Podium, *flags: str) -> tuple[Path, str]:
    out, err = done(podium("submit", "-c", "tiny", *flags))
    return Path(out.strip()), err


def test_a_decision_is_written_and_rebuilt_byte_for_byte(
    macro_f1: Path, podium: Podium, take: Callable[[Decision], None]
) -> None:
    plain, err = submitted(podium, "--decision", "none", "--name", "plain")
    assert "decision:" not in err
    assert "decision" not in json.loads(plain.with_suffix(".json").read_text())
    take(Decision("class_weights", (1e-6, 1.0, 1.0, 1.0)))
    csv, err = submitted(podium, "--name", "decided", "--anyway")
    assert_says(err, "decision: class weights for macro_f1: 0.5000 -> 0.6000 (+0.1000, 95 % interval", "taken")
    recorded = json.loads(csv.with_suffix(".json").read_text())["decision"]
    assert recorded["numbers"] == [1e-6, 1.0, 1.0, 1.0]
    answers = [set(pd.read_csv(path, dtype=str).iloc[:, 1]) for path in (plain, csv)]
    assert len(answers[0] - answers[1]) == 1  # the class of weight 0.000001 is not predicted any more
    written = csv.read_bytes()
    csv.unlink()
    for path in macro_f1.glob("runs/tiny/*/fold*/test.npz"):
        path.unlink()
    done(podium("submit", "--from", csv.with_suffix(".json")))
    assert csv.read_bytes() == written
    assert "class weights 1e-06" in podium("lineage", csv)[1]


def test_what_is_not_taken_changes_no_byte(macro_f1: Path, podium: Podium) -> None:
    csv, err = submitted(podium)
    assert_says(err, "not taken", "the most probable class is kept")
    recorded = json.loads(csv.with_suffix(".json").read_text())
    assert recorded["decision"]["is_taken"] is False
    plain, _ = submitted(podium, "--decision", "none", "--name", "plain")
    assert plain.read_bytes() == csv.read_bytes()


def test_a_lineage_without_a_decision_is_rebuilt(macro_f1: Path, podium: Podium) -> None:
    csv, _ = submitted(podium)
    path, written = csv.with_suffix(".json"), csv.read_bytes()
    content = json.loads(path.read_text())
    del content["decision"]
    path.write_text(json.dumps(content))
    csv.unlink()
    done(podium("submit", "--from", path))
    assert csv.read_bytes() == written


def test_a_damaged_decision_is_refused(macro_f1: Path, podium: Podium, take: Callable[[Decision], None]) -> None:
    take(Decision("class_weights", (1.0, 1.0, 1.0, 1.0)))
    csv, _ = submitted(podium)
    path = csv.with_suffix(".json")
    content = json.loads(path.read_text())
    damages: tuple[dict[str, object], ...] = (
        {"kind": "magic"},
        {"numbers": []},
        {"numbers": [float("nan")] * 4},
        {"numbers": ["x"]},
        {"numbers": [1.0] * 3},
        {"numbers": [1.0] * 5},
        {"kind": "unknown_threshold", "numbers": [0.5], "unknown": 4},
        {"kind": "unknown_threshold", "numbers": [0.5], "unknown": -1},
    )
    for damage in damages:
        path.write_text(json.dumps({**content, "decision": {**content["decision"], **damage}}))
        message = one_line(podium("submit", "--from", path))
        assert str(path) in message
        assert "restore it" in message


def test_the_lineage_already_has_a_decision(csv: Path, podium: Podium) -> None:
    one_line(podium("submit", "--from", csv.with_suffix(".json"), "--decision", "none"), "leave out --decision")


def test_the_card_names_a_class_that_no_training_image_has_and_that_the_metric_cannot_count(
    two_runs: Path, podium: Podium
) -> None:
    write_file(two_runs / CARD, 'metric = "gap"\nunknown = "new_individual"\n')
    _, err = submitted(podium)
    assert "no decision: no training image has the class new_individual" in err


@pytest.mark.parametrize(
    ("setting", "problem"), [("shares = { red = 2 }", "'red' must be a number"), ('shares = "red"', "must be a table")]
)
def test_wrong_shares_are_refused(two_runs: Path, podium: Podium, setting: str, problem: str) -> None:
    write_file(two_runs / CARD, setting + "\n")
    message = one_line(podium("submit", "-c", "tiny"))
    assert str(CARD) in message
    assert problem in message


def test_the_estimate_is_that_of_the_decided_answers(
    macro_f1: Path, podium: Podium, take: Callable[[Decision], None]
) -> None:
    plain, _ = submitted(podium, "--decision", "none", "--name", "plain")
    take(Decision("class_weights", (1e-9, 1.0, 1.0, 1.0)))
    csv, _ = submitted(podium, "--name", "worse", "--anyway")
    before, after = (json.loads(path.with_suffix(".json").read_text())["estimate"] for path in (plain, csv))
    assert after["score"] < before["score"] - 0.05
    assert after["log_loss"] == before["log_loss"]  # of the blend: the gain of the mean over folds needs it
    assert np.isfinite(after["between"]).all()


def test_the_reason_for_the_weights_is_said(two_runs: Path, podium: Podium) -> None:
    _, err = submitted(podium, "--runs", "good", "idle")
    line = next(line for line in err.splitlines() if line.startswith("podium: shrunk, "))
    for words in ("a mean", "as far from equal ones as the held-out images show", "good 1.000, idle 0.000"):
        assert words in line


@pytest.mark.parametrize(("strategy", "mean"), [("geometric", "geometric"), ("rank", "rank_of_one"), ("shrunk", None)])
def test_other_means_are_rebuilt_byte_for_byte(two_runs: Path, podium: Podium, strategy: str, mean: str | None) -> None:
    csv, err = submitted(podium, "--runs", "good", "idle", "--blend", strategy)
    assert f"{strategy}, chosen with --blend" in err
    written = csv.read_bytes()
    csv.unlink()
    assert json.loads(csv.with_suffix(".json").read_text())["blend"].get("mean") == mean
    done(podium("submit", "--from", csv.with_suffix(".json")))
    assert csv.read_bytes() == written


def test_shares_of_the_test_are_said_recorded_and_rebuilt(two_runs: Path, podium: Podium) -> None:
    write_file(two_runs / CARD, 'metric = "log_loss"\n')
    sample = two_runs / "data/raw/tiny/sample_submission.csv"
    ids = pd.read_csv(sample, dtype=str)[["id"]]
    ids.assign(red=0.25, green=0.25, blue=0.25, lonely=0.25).to_csv(sample, index=False)
    plain, err = submitted(podium, "--name", "plain")
    assert "test shares" not in err
    assert "test_shares" not in json.loads(plain.with_suffix(".json").read_text())
    csv, err = submitted(podium, "--decision", "test-shares", "--name", "shares", "--anyway")
    assert_says(
        err, "decision: test shares for log_loss", "as you ask", "estimated shares of the test images", "in training"
    )
    content = json.loads(csv.with_suffix(".json").read_text())
    assert content["decision"]["kind"] == "test_shares"
    shares = content["test_shares"]
    assert sum(share["estimated"] for share in shares.values()) == pytest.approx(1)
    assert all(share["between"][0] <= share["between"][1] for share in shares.values())
    assert "test shares  " in podium("lineage", csv)[1]
    assert csv.read_bytes() != plain.read_bytes()
    written = csv.read_bytes()
    csv.unlink()
    done(podium("submit", "--from", csv.with_suffix(".json")))
    assert csv.read_bytes() == written
    write_file(two_runs / CARD, 'metric = "log_loss"\ndecision = "test-shares"\n')
    assert submitted(podium, "--name", "by-card", "--anyway")[0].read_bytes() == written
