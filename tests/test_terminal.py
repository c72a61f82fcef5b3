"""What a user sees in a terminal: the live line, colours and tables; a pipe gets plain text."""

import os
import pty
import re
import select
import termios
from pathlib import Path

import pytest

from forked_podium import exit_status, start_podium
from podium.basics.terminal import columns_of, progress_bar, table
from tiny import FAST

TRAIN = ("train", *FAST, "--model", "test_vit", "--epochs", "40", "--folds", "0")


def run_in_terminal(root: Path, words: tuple[str, ...], columns: int = 160, **variables: str) -> str:
    """Runs a command whose error stream is a terminal; returns what it wrote there."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    environment = {"TERM": "xterm", **variables}
    process = start_podium(("--root", root, *words), Path(os.ttyname(theirs)), environment=environment)
    select.select([ours], [], [], 120)
    os.close(theirs)
    text = b""
    while select.select([ours], [], [], 120)[0]:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(ours)
    assert exit_status(process) in (0, 1)
    return text.decode()


@pytest.mark.slow
def test_training_shows_loss_rate_time_left_and_scores_while_it_goes(tiny: Path) -> None:
    text = run_in_terminal(tiny, TRAIN)
    line = r"fold 0 +\d+ % \|.*\| \d+/\d+ steps, \d+ s left, loss \d\.\d+, accuracy \d\.\d+  log_loss \d\.\d+, [\d,]+"
    assert re.search(line, text)
    assert "\033[36mnext:" in text  # cyan
    assert "\033[" not in re.sub(r"\033\[(31|33|36|0)m|\033\[A", "", text)


@pytest.mark.slow
def test_a_narrow_terminal_keeps_the_bar_and_leaves_out_the_rate(tiny: Path) -> None:
    text = run_in_terminal(tiny, TRAIN, columns=80)
    lines = [line for line in re.split(r"[\r\n]", text) if " left, loss" in line]
    assert lines
    assert not [line for line in lines if "images/s" in line]
    assert all(len(line.rstrip()) <= 80 for line in lines)
    assert min(len(line.split("|")[1]) for line in lines if line.count("|") == 2) >= 8


@pytest.mark.slow
def test_no_color_and_a_pipe_give_plain_text(tiny: Path) -> None:
    wrong = ("train", "-c", "tiny", "--model", "no_such_model")
    assert "\033[31mpodium: error:" in run_in_terminal(tiny, wrong)
    assert "\033" not in run_in_terminal(tiny, wrong, NO_COLOR="1")
    assert "\033" not in run_in_terminal(tiny, wrong, TERM="dumb")
    log = tiny / "log"
    assert exit_status(start_podium(("--root", tiny, *TRAIN, "--epochs", "3"), log)) == 0
    text = log.read_text()
    assert "\033" not in text
    assert "\r" not in text
    assert "images/s, loss" not in text


def test_columns_are_aligned_whatever_the_letters() -> None:
    lines = table(["class", "images"], [["书包", 5], ["cafe\u0301", 1234], ["shoe", 7]]).split("\n")
    assert len({columns_of(line) for line in lines}) == 1
    assert lines[1].startswith("书包 ")
    assert columns_of("书包") == 4
    assert columns_of("cafe\u0301") == 4


def test_a_log_gets_few_lines_of_a_long_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = iter(range(1000))
    monkeypatch.setattr("podium.basics.terminal.time.monotonic", lambda: float(next(seconds)))
    with progress_bar(total=100, desc="decoding", unit="image") as bar:
        for _ in range(100):
            bar.update()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "podium: decoding: 2 of 100 images; about 98 s left",
        "podium: decoding: 10 of 100 images; about 90 s left",
        "podium: decoding: 42 of 100 images; about 58 s left",
    ]
    assert list(progress_bar(range(2), desc="runs")) == [0, 1]
    assert not capsys.readouterr().err
