"""podium search --on: workers of one search, as processes, as jobs of a queue, and as a file for a cloud."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from forked_podium import exit_status, start_podium
from podium.basics.errors import STOPPED
from podium_annex.fleet.cell_board import DONE, FAILED, FREE, TAKEN, Board, Rhythm, Step, take
from podium_annex.fleet.cell_sweep import SEARCH, Cell, Sweep
from podium_annex.fleet.lifeline import VARIABLE
from podium_annex.fleet.where import SLURM, Where
from podium_annex.fleet.worker_processes import gpus_of_workers, run_workers
from podium_annex.searching import search_workers
from podium_annex.searching.search_plan import plan_search
from podium_annex.searching.search_request import SearchRequest
from searching.searches import SEARCH as COMMAND
from searching.searches import searched, three_folds, trials_of
from second_round import first_of
from templates import template
from tiny import Podium, one_line

BEAT = Rhythm(0.05)
TWO_TRIALS = (*COMMAND[:-1], "2")


@pytest.fixture
def folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PODIUM_BEAT", "0.2s")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    shutil.copytree(template(three_folds), tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def found(folds: Path) -> Path:
    shutil.copytree(template(searched), folds, dirs_exist_ok=True)
    return folds


def board_of(root: Path) -> Board:
    return Board(root / "runs/tiny/.cells")


def states(root: Path) -> list[str]:
    steps = board_of(root).last_steps()
    return [step.state for cell, step in steps.items() if cell.startswith("search@worker-")]


class Forked:
    """A worker's process, forked from a server that has imported podium."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self.process = start_podium(words, log, environment={"PODIUM_BEAT": "0.2s"})

    def wait(self) -> int:
        return exit_status(self.process)

    def terminate(self) -> None:
        self.process.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("forked", first_of([True], [True, False]))
def test_processes_search_together_and_the_command_shows_the_report(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch, forked: bool
) -> None:
    if forked:
        monkeypatch.setattr(
            "podium_annex.fleet.worker_processes._start", lambda words, gpu, line: Forked(words, folds / "worker.log")
        )
    status, out, err = podium(*TWO_TRIALS, "--on", "here", "--at-once", "2")
    assert status == 0, err
    assert out.count("search search: 2 trials") == 1
    assert "which the search did not use" in out
    assert len(trials_of(folds)) == 2
    assert states(folds) == [DONE, DONE]
    jobs, summary = podium("jobs", "-c", "tiny")[1:]
    assert [line.split()[:3:2] for line in jobs.splitlines()[1:]] == [["search", "done"]] * 2
    assert "podium: search search: 2 trials done, 0 running" in summary


def test_a_worker_leaves_the_report_to_the_command_that_started_it(
    found: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "next:" in podium(*COMMAND)[2]
    monkeypatch.setenv(VARIABLE, "0")
    monkeypatch.setattr("podium_annex.fleet.lifeline._wait_for_end", lambda reading: None)
    status, out, err = podium(*COMMAND)
    assert (status, out) == (0, ""), err
    assert "next:" not in err
    assert "wrote" not in err


@pytest.mark.slow
@pytest.mark.all
def test_jobs_search_together_and_the_command_shows_the_report(folds: Path, podium: Podium) -> None:
    status, out, err = podium(*TWO_TRIALS, "--on", "local", "--at-once", "2")
    assert status == 0, err
    assert "submitted 2 jobs" in err
    assert out.count("search search: 2 trials") == 1
    assert "which the search did not use" in out
    assert (len(trials_of(folds)), states(folds)) == (2, [DONE, DONE])


def test_sky_writes_a_file_that_installs_optuna(folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folds)
    assert podium(*COMMAND, "--on", "sky")[0] == 0
    text = (folds / "sky.yaml").read_text()
    assert 'pip install "$HOME/podium[search]"' in text
    assert "podium --root ~/project search -c tiny" in text
    assert not (folds / "runs").exists()


# --- processes ---------------------------------------------------------------------------------------


def stub(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Lets each worker be this code instead of podium."""
    start = subprocess.Popen

    def begin(_: Sequence[str], **options: object) -> "subprocess.Popen[bytes]":
        return start([sys.executable, "-c", code], **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(subprocess, "Popen", begin)


def test_a_worker_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, "import os; raise SystemExit(int(os.environ['CUDA_VISIBLE_DEVICES']))")
    last = run_workers(Board(tmp_path), "s@worker-", BEAT, [], ["0", "1", "0"])
    assert [step.state for step in last.values()] == [DONE, FAILED, DONE]
    assert "ended with status 1" in [step.why for step in last.values()][1]


def test_a_signal_reaches_all_workers_which_save_and_free_their_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = f"import signal, time, uuid; signal.signal(15, lambda *_: exit({STOPPED}));"
    ready += f" open('{tmp_path}/' + uuid.uuid4().hex, 'w'); time.sleep(60)"
    stub(monkeypatch, ready)
    board = Board(tmp_path / ".cells")

    def signal_when_ready() -> None:
        while len([path for path in tmp_path.iterdir() if path.is_file()]) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=signal_when_ready).start()
    with pytest.raises(KeyboardInterrupt):
        run_workers(board, "s@worker-", BEAT, [], [None, None])
    assert [step.state for step in board.last_steps().values()] == [FREE, FREE]


def test_a_second_command_on_a_machine_takes_further_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(monkeypatch, "")
    monkeypatch.setattr("socket.gethostname", lambda: "node")
    board = Board(tmp_path)
    assert take(board, "s@worker-node-1", Step(), BEAT)
    assert list(run_workers(board, "s@worker-", BEAT, [], [None])) == ["s@worker-node-2"]
    assert list(run_workers(board, "s@worker-", BEAT, [], [None])) == ["s@worker-node-2"]  # which has ended


@pytest.mark.parametrize(
    ("visible", "device", "gpus"),
    [
        ("3,5", "auto", ["3", "5", "3"]),
        ("3", "auto", [None] * 3),
        ("", "auto", [None] * 3),
        ("3,5", "cpu", [None] * 3),
        ("3,5", "cuda:1", [None] * 3),
    ],
)
def test_each_worker_gets_the_next_gpu(
    monkeypatch: pytest.MonkeyPatch, visible: str, device: str, gpus: list[str | None]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus_of_workers(3, device) == gpus


# --- a queue -----------------------------------------------------------------------------------------


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    Board(tmp_path / ".cells")
    return Sweep(tmp_path / ".cells", "abc", {}, BEAT, SEARCH)


def nothing_left() -> bool:
    return True


def test_a_worker_whose_time_is_over_does_not_begin_again_before_the_report(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command after Ctrl-C follows the workers: it spends no budget twice."""
    board, args = Board(sweep.folder), argparse.Namespace(name="s", at_once=1, words=["search"])
    name = Cell("s", 0, SEARCH).name
    lease = take(board, name, Step(), BEAT)
    assert lease
    lease.end(DONE)
    seen: list[str] = []

    def run_in_queue(*_: object) -> dict[str, Step]:
        seen.append(board.last_steps()[name].state)
        raise KeyboardInterrupt

    monkeypatch.setattr(search_workers, "run_in_queue", run_in_queue)
    for is_over in (True, False):
        with pytest.raises(KeyboardInterrupt):
            search_workers._search_in_queue(args, sweep, lambda: is_over)  # noqa: B023
    assert seen == [DONE, DONE]


def test_workers_begin_again_only_after_the_report(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    board, args = Board(sweep.folder), argparse.Namespace(name="s", at_once=2, words=["search"])
    seen: list[list[str]] = []

    def run_in_queue(_: object, sweep: Sweep, cells: Sequence[Cell], *rest: object) -> dict[str, Step]:
        seen.append([board.last_steps().get(cell.name, Step()).state for cell in cells])
        if len(seen) == 2:
            raise KeyboardInterrupt
        for cell in cells:
            step = board.last_steps().get(cell.name, Step())
            if step.state == FREE and (lease := take(board, cell.name, step, BEAT)):
                lease.end(DONE)
        return {}

    monkeypatch.setattr(search_workers, "run_in_queue", run_in_queue)
    search_workers._search_in_queue(args, sweep, nothing_left)
    with pytest.raises(KeyboardInterrupt):  # the next search is followed until here; it ends without its command
        search_workers._search_in_queue(args, sweep, nothing_left)
    for number in (0, 1):
        name = Cell("s", number, SEARCH).name
        lease = take(board, name, board.last_steps()[name], BEAT)
        assert lease
        lease.end(DONE)
    search_workers._search_in_queue(args, sweep, nothing_left)
    search_workers._search_in_queue(args, sweep, nothing_left)
    assert seen == [[FREE, FREE], [FREE, FREE], [DONE, DONE], [FREE, FREE]]


def test_fewer_workers_forget_none_that_are_known(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[list[Cell]] = []

    def run_in_queue(_: object, sweep: Sweep, cells: list[Cell], *rest: object) -> dict[str, Step]:
        followed.append(cells)
        return {}

    monkeypatch.setattr(search_workers, "run_in_queue", run_in_queue)
    sweep = replace(sweep, runs={"s": (0, 1, 2)})
    search_workers._search_in_queue(argparse.Namespace(name="s", at_once=1, words=[]), sweep, nothing_left)
    assert followed == [[Cell("s", 0, SEARCH)]]
    assert '"s": [\n      0,\n      1,\n      2' in (sweep.folder / "sweep-abc.json").read_text()


def test_a_worker_that_was_queued_again_has_spent_the_time_of_its_beats(tmp_path: Path) -> None:
    board = Board(tmp_path)
    for beats, end in ((7, DONE), (0, FREE), (3, FREE), (2, FREE)):  # the first one was of an earlier command
        lease = take(board, "s@worker-0", board.last_steps().get("s@worker-0", Step()), BEAT)
        assert lease
        for _ in range(beats):
            lease.beat()
        lease.end(end)
        if end == DONE:
            board.add("s@worker-0", Step(3, FREE))
    assert sorted(board.beats_so_far("s@worker-0", board.last_steps()["s@worker-0"])) == [0, 2, 3]


def test_a_worker_whose_time_is_spent_tries_nothing_and_judges(found: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from podium_annex.searching.search import search

    before = trials_of(found)
    request = SearchRequest(
        ["test_vit"],
        {"weights": "none", "image_size": 32, "batch_size": 8, "epochs": 3, "lr": 1e-3},
        machine=replace(SearchRequest([]).machine, device="cpu", workers=0),
        budget=3600,
        spent=3599,
    )
    assert search(plan_search("tiny", found, request, ("test_vit",)))
    assert "the time of the search is over" in capsys.readouterr().err
    assert [trial for trial in trials_of(found) if trial[0] != "RUNNING"] == before


def test_workers_that_have_not_begun_are_not_waited_for_once_the_search_has_ended(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    from podium_annex.fleet.slurm_jobs import Queue, _without_late_workers

    cancelled: list[str] = []
    monkeypatch.setattr(Queue, "cancel", lambda _, cell: cancelled.append(cell))
    queue, board = Queue(sweep, Where(SLURM), [], None, {}), Board(sweep.folder)
    cells = [Cell("s", number, SEARCH) for number in range(4)]

    def last() -> dict[Cell, str]:
        steps = board.last_steps()
        seen = {cell: steps.get(cell.name, Step()) for cell in cells}
        return {cell: step.state for cell, step in _without_late_workers(queue, board, seen).items()}

    preempted, busy = (take(board, cells[number].name, Step(), BEAT) for number in (1, 2))
    assert preempted
    assert busy
    preempted.end(FREE)
    ended = take(board, cells[3].name, Step(), BEAT)
    assert ended
    ended.end(DONE)
    assert list(last().values()) == [FREE, FREE, TAKEN, DONE]  # the one that works may have trials for all
    busy.end(DONE)
    assert list(last().values()) == [DONE, FREE, DONE, DONE]  # the preempted one has a trial to end
    assert cancelled == [cells[0].name]


# --- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--on", "here", "--cell", "search@worker-9"), "no such cell"),
        (("--on", "here", "--job", "timeout_min=3"), "--job is for jobs"),
        (("--on", "slurm", "--cell", "search@worker-0"), "--cell does not go with --on slurm"),
        (("--job", "timeout_min=3"), "--job is for several machines"),
        (("--on", "local", "--job", "timeout_min"), "write NAME=VALUE"),
    ],
)
def test_what_no_worker_can_do_is_refused_before_one_begins(
    folds: Path, podium: Podium, words: tuple[str, ...], named: str
) -> None:
    assert named in one_line(podium(*COMMAND, *words))
    assert not (folds / "runs").exists() or not list((folds / "runs/tiny").glob("search*"))


def test_a_report_goes_nowhere(folds: Path, podium: Podium) -> None:
    assert "--on here searches; name models" in one_line(podium("search", "-c", "tiny", "--report", "--on", "here"))


def test_slurm_is_refused_where_there_is_none(folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "there is no sbatch on PATH" in one_line(podium(*COMMAND, "--on", "slurm:gpu"))


def test_other_settings_are_refused_before_a_worker_begins(found: Path, podium: Podium) -> None:
    message = one_line(podium(*COMMAND, "--smoothing", "0.1", "--on", "here"))
    assert "was started with other settings" in message
    assert states(found) == []
