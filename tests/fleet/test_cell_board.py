"""Steps and leases of cells: who may take one, and when a worker is deemed dead."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from damaged_records import damaged
from podium.basics.errors import PodiumError
from podium_annex.fleet import cell_board
from podium_annex.fleet.cell_board import (
    DONE,
    FAILED,
    FREE,
    LONGEST_WHY,
    STATES,
    TAKEN,
    Board,
    LeaseLost,
    Rhythm,
    Step,
    Watch,
    reopen,
    take,
)
from podium_annex.fleet.cell_sweep import TRAIN, open_sweep


def test_of_many_workers_that_want_a_cell_one_gets_it(tmp_path: Path) -> None:
    boards = [Board(tmp_path) for _ in range(8)]
    taken: list[object] = []
    threads = [
        threading.Thread(target=lambda board=board: taken.append(take(board, "one", Step(), Rhythm())))
        for board in boards
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([lease for lease in taken if lease]) == 1
    assert not list(tmp_path.glob(".*"))  # no temporary file is left


def test_a_worker_is_dead_when_no_beat_is_seen_for_five_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, now = Board(tmp_path), [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    lease = take(board, "one", Step(), Rhythm(60))
    assert lease
    watch = Watch(Board(tmp_path), Rhythm(60))
    for silent, is_dead in ((0, False), (299, False), (2, True)):
        now[0] += silent
        assert watch.is_dead("one", lease.step) == is_dead
    lease.beat()
    assert not watch.is_dead("one", lease.step)


@pytest.mark.parametrize("hours", [-48, 48])
def test_clocks_that_differ_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    board, now = Board(tmp_path), [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    lease = take(board, "one", Step(), Rhythm(60))
    assert lease
    watch, path = Watch(Board(tmp_path), Rhythm(60)), board.path("one", 1)
    for _ in range(20):  # the other machine's clock gives the file times of its own, and may go backwards
        lease.beat()
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime + 3600 * hours))
        now[0] += 200
        assert not watch.is_dead("one", lease.step)
    now[0] += 301
    assert watch.is_dead("one", lease.step)


def test_a_worker_whose_cell_was_taken_over_notices_and_cannot_end_it(tmp_path: Path) -> None:
    board = Board(tmp_path)
    first = take(board, "one", Step(), Rhythm())
    assert first
    second = take(Board(tmp_path), "one", first.step, Rhythm())
    assert second
    with pytest.raises(LeaseLost, match="another worker has taken it over"):
        first.beat()
    assert first.end(DONE) is None
    ended = second.end(DONE)
    assert ended
    assert Board(tmp_path).last_steps()["one"] == ended


def test_a_worker_that_was_not_deemed_dead_in_time_keeps_its_end(tmp_path: Path) -> None:
    lease = take(Board(tmp_path), "one", Step(), Rhythm())
    assert lease
    assert lease.end(DONE)
    assert take(Board(tmp_path), "one", lease.step, Rhythm()) is None  # of the one who saw it silent before


def test_a_worker_that_beats_does_not_ask_the_folder_at_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(cell_board, "_clock", lambda: now[0])
    lease = take(Board(tmp_path), "one", Step(), Rhythm(60))
    assert lease
    for path in tmp_path.iterdir():
        path.unlink()
    now[0] = 119
    lease.check()
    now[0] = 121
    with pytest.raises(LeaseLost):
        lease.check()


def test_cells_that_have_ended_can_be_reopened_once(tmp_path: Path) -> None:
    board = Board(tmp_path)
    for cell, state in (("done", DONE), ("failed", FAILED)):
        lease = take(board, cell, Step(), Rhythm())
        assert lease
        lease.end(state, "why")
    assert take(board, "running", Step(), Rhythm())
    for _ in range(2):
        reopen(Board(tmp_path), ["failed", "running", "new"])
    states = {cell: (step.state, step.number) for cell, step in Board(tmp_path).last_steps().items()}
    assert states == {"done": (DONE, 2), "failed": (FREE, 3), "running": (TAKEN, 1)}


def test_a_folder_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", link)
    with pytest.raises(PodiumError, match=r"no hard links .*work on one machine without --on"):
        take(Board(tmp_path), "one", Step(), Rhythm())
    assert not list(tmp_path.iterdir())


def test_a_full_quota_is_no_lack_of_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("os.link", link)
    with pytest.raises(PodiumError, match="no space left to write"):
        take(Board(tmp_path), "one", Step(), Rhythm())


def test_the_error_of_a_cell_is_shortened_so_that_the_board_can_be_read(tmp_path: Path) -> None:
    lease = take(Board(tmp_path), "one", Step(), Rhythm())
    assert lease
    lease.end(FAILED, "x" * (1 << 17))
    assert Board(tmp_path).last_steps()["one"].why == "x" * LONGEST_WHY


@pytest.mark.parametrize("call", ["pathlib.Path.mkdir", "pathlib.Path.write_text"])
def test_a_folder_that_this_machine_may_not_write_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    folder = tmp_path / ".cells"
    if not call.endswith("mkdir"):
        folder.mkdir()
    monkeypatch.setattr(call, refuse)
    with pytest.raises(PodiumError, match=r"\.cells cannot be written \(Permission denied\).* get the right to write"):
        Board(folder).add("one", Step(1, TAKEN))


def test_a_quota_that_is_used_up_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    with pytest.raises(PodiumError, match=r"no space left to write .*one\.1; free some space"):
        Board(tmp_path).add("one", Step(1, TAKEN))


def test_a_damaged_step_is_reported_with_its_path_or_is_a_step(tmp_path: Path) -> None:
    whole = {"number": 1, "state": FAILED, "who": "host:7", "why": "no space left"}
    texts = ["{", *(json.dumps(content) for _, content in damaged(whole))]
    believed, refusals = list[Step](), list[str]()
    for text in texts:
        (tmp_path / "one.1").write_text(text)
        try:
            believed += Board(tmp_path).last_steps().values()
        except PodiumError as error:
            refusals.append(str(error))
    assert all("one.1: cannot be read" in refusal for refusal in refusals)
    assert 0 < len(believed) < len(texts) / 4
    for step in believed:
        assert step.number == 1
        assert step.state in STATES
        assert isinstance(step.who, str)
        assert isinstance(step.why, str)


def test_machines_that_start_at_the_same_time_have_one_rhythm_and_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODIUM_BEAT", "10s")
    first = open_sweep("tiny", tmp_path, TRAIN, ["a"], {})
    monkeypatch.setenv("PODIUM_BEAT", "60s")
    second = open_sweep("tiny", tmp_path, TRAIN, ["a"], {})  # while the first one prepares
    assert first.rhythm.beat == second.rhythm.beat == 10
    assert first.digest == second.digest
    monkeypatch.setattr("podium_annex.fleet.cell_sweep.__version__", "9.9")
    with pytest.raises(PodiumError, match="was begun by Podium"):
        open_sweep("tiny", tmp_path, TRAIN, ["a"], {})
