"""A command that says nothing for a while is heard all the same (basics/watch.py)."""

import sys
import threading
import time

import pytest

from podium.basics import terminal, watch
from podium.basics.terminal import busy_with, progress_bar, say


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PATIENCE", 0.05)
    monkeypatch.setattr(watch, "EVERY", 0.01)
    monkeypatch.setattr(watch, "IN_A_LOG", 0.05)
    monkeypatch.setattr(terminal, "doing", terminal.STARTING)
    monkeypatch.setattr(terminal, "last_line", "")


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def two_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Waits for two lines of a command."""
    deadline, lines = time.monotonic() + 30, said(capsys)
    while len(lines) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
        lines += said(capsys)
    return lines


def test_silence_is_broken_by_what_is_being_done(capsys: pytest.CaptureFixture[str]) -> None:
    with watch.watched(), busy_with("reading the files"):
        lines = two_lines(capsys)
    assert lines[0] == "podium: reading the files"
    assert lines[1].startswith("podium: reading the files, ")


def test_a_command_that_speaks_is_left_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "IN_A_LOG", 30.0)
    with watch.watched():
        say("podium: done")
    assert said(capsys) == ["podium: done"]


def test_a_work_is_named_once_even_if_other_lines_come_between(capsys: pytest.CaptureFixture[str]) -> None:
    with watch.watched(), busy_with("writing the pages"):
        lines = two_lines(capsys)
        say("podium: where it looks: 8 of 16 images")
        lines += two_lines(capsys)
    assert lines[0] == "podium: writing the pages"
    assert lines.count("podium: writing the pages") == 1
    assert lines[-1].startswith("podium: writing the pages, ")


def test_the_clock_of_a_bar_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    moved = threading.Event()
    with progress_bar(total=2, desc="decoding", unit="image") as bar, watch.watched():
        monkeypatch.setattr(bar, "refresh", lambda *_, **__: moved.set())
        assert moved.wait(30)
    assert "still" not in capsys.readouterr().err


def test_what_is_being_done_ends_with_it() -> None:
    with busy_with("reading"):
        assert terminal.doing == "reading"
    assert terminal.doing == terminal.WORKING


def test_what_was_just_said_is_not_said_again(capsys: pytest.CaptureFixture[str]) -> None:
    with watch.watched(), busy_with("reading the files"):
        say("podium: reading the files")
        lines = two_lines(capsys)
    assert lines[0] == "podium: reading the files"
    assert lines[1].startswith("podium: reading the files, ")
