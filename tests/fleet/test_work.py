"""Workers that share a folder, as processes that are killed at random, and stopped for longer than others wait."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from podium.basics.disk import checked_before_writing, write_text
from podium.basics.errors import InUse, PodiumError
from podium_annex.fleet.cell_board import DONE, FAILED, FREE, TAKEN, Board, LeaseLost, Rhythm, Step, take
from podium_annex.fleet.work import work
from second_round import first_of

CELLS, WORKERS = 200, 4
WORKER = Path(__file__).with_name("worker.py")


def start(folder: Path, cells: int = CELLS, beat: float = 0.1, seconds: float = 0.02) -> "subprocess.Popen[bytes]":
    words = [sys.executable, str(WORKER), str(folder), str(cells), str(beat), str(seconds)]
    return subprocess.Popen(words, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def lines_of(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "log").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("seed", first_of([0], range(100)))
def test_killed_workers_lose_no_cell_and_no_cell_is_done_twice(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    workers, killed = [start(tmp_path) for _ in range(WORKERS)], set()
    for _ in range(6):
        time.sleep(chance.uniform(0.05, 0.3))
        victim = chance.randrange(WORKERS)
        workers[victim].kill()
        workers[victim].wait()
        killed.add(workers[victim].pid)
        workers[victim] = start(tmp_path)
    assert [worker.wait(60) for worker in workers] == [0] * WORKERS
    board = Board(tmp_path / ".cells")
    assert Counter(step.state for step in board.last_steps().values()) == {DONE: CELLS}
    for cell, last in board.last_steps().items():
        *before, end = [json.loads(board.path(cell, n + 1).read_text().splitlines()[0]) for n in range(last.number)]
        begun = [pid for name, what, pid in lines_of(tmp_path) if name == cell and what == "begins"]
        assert end["state"] == DONE
        assert {step["state"] for step in before} == {TAKEN}
        assert end["who"] == before[-1]["who"]
        assert all(int(step["who"].rpartition(":")[2]) in killed for step in before[:-1])
        assert set(begun) <= {step["who"].rpartition(":")[2] for step in before}
        assert len(begun) == len(set(begun)) <= len(before)


@pytest.mark.slow
def test_a_worker_that_was_stopped_for_long_writes_nothing_and_ends(tmp_path: Path) -> None:
    stopped = start(tmp_path, cells=1, seconds=1.0)
    while not (tmp_path / "log").exists() or not lines_of(tmp_path):
        time.sleep(0.01)
    stopped.send_signal(signal.SIGSTOP)
    other = start(tmp_path, cells=1, seconds=0.0)
    assert other.wait(60) == 0
    result = (tmp_path / "results" / "run0@fold0").stat().st_mtime_ns
    stopped.send_signal(signal.SIGCONT)
    assert stopped.wait(60) in (0, 75)
    assert (tmp_path / "results" / "run0@fold0").stat().st_mtime_ns == result
    assert [line[2] for line in lines_of(tmp_path) if line[1] == "ends"] == [str(other.pid)]


# --- one worker --------------------------------------------------------------------------------------


def test_a_cell_that_fails_does_not_keep_the_others_from_being_run(tmp_path: Path) -> None:
    def run(cell: str) -> None:
        if cell == "bad":
            raise PodiumError("it cannot be trained")

    last = work(Board(tmp_path), ["bad", "good"], run, Rhythm(0.01))
    assert (last["bad"].state, last["bad"].why) == (FAILED, "it cannot be trained")
    assert last["good"].state == DONE


def test_a_signal_frees_the_cell(tmp_path: Path) -> None:
    def stop(cell: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(Board(tmp_path), ["one"], stop, Rhythm())
    assert Board(tmp_path).last_steps()["one"].state == FREE


def test_a_cell_that_another_command_trains_is_tried_again(tmp_path: Path) -> None:
    tries = []

    def run(cell: str) -> None:
        tries.append(cell)
        if len(tries) < 3:
            raise InUse("it is being trained by another process")

    assert work(Board(tmp_path), ["one"], run, Rhythm(0.01))["one"].state == DONE
    assert len(tries) == 3


def test_an_error_of_podium_itself_is_recorded_and_raised(tmp_path: Path) -> None:
    def run(cell: str) -> None:
        raise ZeroDivisionError("oh")

    with pytest.raises(ZeroDivisionError):
        work(Board(tmp_path), ["one"], run, Rhythm())
    assert Board(tmp_path).last_steps()["one"].why == "ZeroDivisionError: oh"


def test_a_file_of_a_cell_that_was_taken_over_is_not_written(tmp_path: Path) -> None:
    board = Board(tmp_path / ".cells")
    lease = take(board, "one", Step(), Rhythm(0.0))
    assert lease
    path = tmp_path / "model"
    with checked_before_writing(lease.check):
        write_text(path, "mine")
        assert take(board, "one", lease.step, Rhythm())
        with pytest.raises(LeaseLost, match="another worker has taken it over"):
            write_text(path, "late")
    assert path.read_text() == "mine"
    assert list(tmp_path.glob(".*.tmp")) == []
