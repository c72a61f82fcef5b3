"""One cell of a command: its process ends with whoever has started it, and waits for another that has the run."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from forked_podium import exit_status, start_podium
from podium_annex.fleet.cell_command import BEGINS, CellCommand, Stopped
from tiny import FAST, Podium, one_line, run_of

WORDS = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--folds", "0")
LONG = (*WORDS, "--epochs", "60")
CELL = "test_vit@fold0"
START = "import sys; from pathlib import Path; from podium_annex.fleet.cell_command import CellCommand"
START += f"; CellCommand('{CELL}', sys.argv[2:], Path(sys.argv[1])).run()"


@pytest.fixture(autouse=True)
def _same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def command_of(root: Path, words: tuple[str, ...] = LONG) -> CellCommand:
    return CellCommand(CELL, ["--root", str(root), *words], root / "cell.log")


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 200
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def epochs(root: Path) -> int:
    path = run_of(root).fold_folder(0) / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.slow
def test_a_cell_saves_and_ends_when_who_has_started_it_is_killed(tiny: Path) -> None:
    log = tiny / "cell.log"
    starter = subprocess.Popen([sys.executable, "-c", START, str(log), "--root", str(tiny), *LONG])
    wait_for(lambda: epochs(tiny) > 0)
    starter.kill()
    starter.wait()
    wait_for(lambda: "run the same command again to resume" in log.read_text())
    assert run_of(tiny).finished() == []
    assert command_of(tiny).run() == ""  # its lock is free
    assert "resumes from step" in log.read_text()
    assert epochs(tiny) == 60
    assert len(command_of(tiny).said(BEGINS)) == 2


@pytest.mark.slow
def test_a_cell_that_a_signal_stops_says_so(tiny: Path) -> None:
    command = command_of(tiny)

    def stop() -> None:
        wait_for(lambda: epochs(tiny) > 0)
        assert command.process
        command.process.send_signal(signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Stopped):
        command.run()
    thread.join()
    assert run_of(tiny).finished() == []


@pytest.mark.slow
def test_a_cell_waits_for_the_process_that_has_its_run_and_does_nothing_twice(tiny: Path) -> None:
    logs = [tiny / "first.log", tiny / "second.log"]
    first = start_podium(("--root", tiny, *LONG), logs[0])
    wait_for(lambda: epochs(tiny) > 0)
    assert first.pid
    os.kill(first.pid, signal.SIGSTOP)
    before = epochs(tiny)
    second = start_podium(("--root", tiny, *LONG, "--cell", CELL), logs[1])
    wait_for(lambda: logs[1].exists() and "this cell waits for that one" in logs[1].read_text())
    assert epochs(tiny) == before
    os.kill(first.pid, signal.SIGCONT)
    assert [exit_status(first), exit_status(second)] == [0, 0]
    assert "resumes from step" not in logs[1].read_text()
    assert "was trained already; nothing has changed" in logs[1].read_text()
    assert epochs(tiny) == 60


@pytest.mark.slow
def test_a_cell_that_fails_says_why_and_where_all_of_it_is(tiny: Path) -> None:
    problem = command_of(tiny, (*WORDS, "--device", "mps")).run()
    assert "--device mps does not work here" in problem
    assert "exit status 1" in problem
    assert str(tiny / "cell.log") in problem


def test_another_version_on_a_machine_is_refused_before_the_cell_starts(tiny: Path) -> None:
    command = command_of(tiny)
    command.version = "0.0.9"
    assert "not 0.0.9; install one version on all machines" in command.run()
    assert not command.log.exists()


def test_a_cell_that_the_command_does_not_have_is_refused(tiny: Path, podium: Podium) -> None:
    assert "no such cell; this command has test_vit@fold0" in one_line(podium(*WORDS, "--cell", "test_vit@fold7"))
