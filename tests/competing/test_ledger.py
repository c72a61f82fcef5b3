"""compete.jsonl survives kills, counts the time that is worked, and refuses what is not its own."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from podium.basics.errors import InUse, PodiumError
from podium.saved_runs.ledger import BEGUN, ENDED, FAILED, FIELDS, FOLDS, STARTED, SUBMITTED, Ledger, judging_folds

FACTS: dict[str, dict[str, Any]] = {
    STARTED: {"budget": 60.0},
    FOLDS: {"judging": [0, 1]},
    BEGUN: {"member": "a", "folds": [0], "kind": "head", "model": "m", "side": 96, "seed": 0, "options": {}},
    ENDED: {"member": "a", "seconds": 3.0},
    FAILED: {"member": "a", "error": "no"},
    SUBMITTED: {"runs": ["a"], "folds": [0, 1], "sha256": "f" * 64},
    "stopped": {"why": "the time is over"},
}


def test_lines_are_read_back_and_a_half_one_does_not_count(tmp_path: Path) -> None:
    ledger = Ledger("tiny", tmp_path)
    for event, facts in FACTS.items():
        ledger.add(event, **facts)
    with ledger.path.open("a") as file:
        file.write('{"event": "beg')  # a kill
    again = Ledger("tiny", tmp_path)
    assert [line["event"] for line in again.lines] == list(FACTS)
    assert judging_folds("tiny", tmp_path) == (0, 1)
    with again.open():
        again.add(STARTED, budget=5.0)
    assert [line["event"] for line in Ledger("tiny", tmp_path).lines] == [*FACTS, STARTED]


def test_the_member_that_was_being_trained_is_known(tmp_path: Path) -> None:
    ledger = Ledger("tiny", tmp_path)
    assert ledger.unfinished() is None
    ledger.add(BEGUN, **FACTS[BEGUN])
    assert (ledger.unfinished() or {})["member"] == "a"
    ledger.add(FAILED, **FACTS[FAILED])
    assert ledger.unfinished() is None


def test_time_counts_while_it_is_worked_and_not_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("podium.saved_runs.ledger.time.monotonic", lambda: clock[0])
    ledger = Ledger("tiny", tmp_path)
    with ledger.open():
        clock[0] += 30
        ledger.add(STARTED, budget=60.0)
    clock[0] += 1_000_000  # stopped, or suspended
    again = Ledger("tiny", tmp_path)
    assert again.worked == pytest.approx(30)
    with again.open():
        clock[0] += 5
        assert again.worked == pytest.approx(35)


def test_the_time_before_a_kill_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.saved_runs.ledger.BEAT", 0.01)
    child = os.fork()
    if not child:
        with Ledger("tiny", tmp_path).open():
            time.sleep(60)
    deadline = time.monotonic() + 30
    while Ledger("tiny", tmp_path).worked < 0.05 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert Ledger("tiny", tmp_path).worked >= 0.05


def test_a_second_command_on_one_competition_is_refused_by_name(tmp_path: Path) -> None:
    with Ledger("tiny", tmp_path).open(), pytest.raises(InUse, match=r"another podium compete works on .*tiny"):  # noqa: SIM117
        with Ledger("tiny", tmp_path).open():
            raise AssertionError


@pytest.mark.parametrize(
    ("event", "name"), [(event, name) for event, fields in FIELDS.items() for name in fields], ids=str
)
@pytest.mark.parametrize("damage", ["missing", "of another type"])
def test_a_damaged_line_is_refused_in_one_line(tmp_path: Path, event: str, name: str, damage: str) -> None:
    ledger = Ledger("tiny", tmp_path)
    line = {"event": event, **FACTS[event]}
    line = {key: value for key, value in line.items() if key != name} if damage == "missing" else {**line, name: None}
    ledger.folder.mkdir(parents=True)
    ledger.path.write_text(json.dumps({"event": STARTED, "budget": 1.0}) + "\n" + json.dumps(line) + "\n")
    with pytest.raises(PodiumError, match=rf"compete.jsonl, line 2: {name} cannot be 'None'; restore it"):
        Ledger("tiny", tmp_path)


@pytest.mark.parametrize("content", ["[]\n", "no json\n", '{"event": "other"}\n'])
def test_what_is_no_ledger_is_refused(tmp_path: Path, content: str) -> None:
    ledger = Ledger("tiny", tmp_path)
    ledger.folder.mkdir(parents=True)
    ledger.path.write_text(content)
    with pytest.raises(PodiumError, match="line 1: it is no event of podium compete"):
        Ledger("tiny", tmp_path)


def test_a_member_that_failed_is_tried_again_with_more_time_or_other_data(tmp_path: Path) -> None:
    ledger = Ledger("tiny", tmp_path)
    for budget, data, is_tried in ((60.0, "a", True), (60.0, "a", False), (90.0, "a", True), (90.0, "b", True)):
        ledger.add(STARTED, budget=budget, data=data)
        assert ledger.failed() == (set() if is_tried else {"head"})
        if is_tried:
            ledger.add(FAILED, member="head", error="no memory")
