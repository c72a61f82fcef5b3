"""podium submit --on: the missing test predictions, as cells that several machines share."""

import os
import sys
from pathlib import Path

import pytest

from forked_podium import exit_status, start_podium
from podium.basics.errors import PodiumError
from podium.saved_runs.run_folder import Run
from podium.training import test_predictions
from podium_annex.fleet.cell_board import Board
from tiny import Podium, one_line, run_of

SUBMIT = ("submit", "-c", "tiny", "--runs", "good", "idle", "--device", "cpu", "--workers", "0")
CELLS = {"good@fold0@test", "good@fold1@test", "idle@fold0@test", "idle@fold1@test"}


@pytest.fixture(autouse=True)
def _fast_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_BEAT", "0.2s")


def submitted(root: Path, name: str) -> bytes:
    return (root / "submissions/tiny" / f"{name}.csv").read_bytes()


def states(root: Path) -> dict[str, str]:
    return {cell: step.state for cell, step in Board(root / "runs/tiny/.cells").last_steps().items()}


def forget_predictions(root: Path) -> None:
    for path in root.glob("runs/tiny/*/fold*/test.npz"):
        path.unlink()


def test_cells_predict_what_the_plain_command_predicts_to_the_byte(two_runs: Path, podium: Podium) -> None:
    words = (*SUBMIT, "--blend", "equal", "--name")
    assert podium(*words, "plain")[0] == 0
    (run_of(two_runs, "good").fold_folder(0) / "test.npz").unlink()
    status, _, err = podium(*words, "cells", "--on", "here")
    assert status == 0, err
    assert submitted(two_runs, "cells") == submitted(two_runs, "plain")
    assert "1 cell of 4" in err  # the others are there
    assert err.count("podium: cell ") == 1
    assert states(two_runs) == dict.fromkeys(CELLS, "done")
    forget_predictions(two_runs)
    status, _, err = podium(*words, "again", "--on", "here")
    assert status == 0, err
    assert err.count("podium: cell ") == err.count("already predicted") == 4
    assert submitted(two_runs, "again") == submitted(two_runs, "plain")


def test_two_machines_share_the_cells_and_both_write_the_same_file(two_runs: Path) -> None:
    logs = [two_runs / f"{name}.log" for name in ("a", "b")]
    words = ("--root", two_runs, *SUBMIT, "--blend", "equal", "--name", "shared", "--on", "here")
    workers = [start_podium(words, log, environment={"PODIUM_BEAT": "0.2s"}) for log in logs]
    assert [exit_status(worker) for worker in workers] == [0, 0]
    assert sum(log.read_text().count("podium: cell ") for log in logs) == 4
    assert [path.name for path in (two_runs / "submissions/tiny").glob("*.csv")] == ["shared.csv"]


def test_only_the_runs_that_the_blend_uses_are_cells(two_runs: Path, podium: Podium) -> None:
    assert podium(*SUBMIT[:3], "--runs", "good", "--device", "cpu", "--on", "here")[0] == 0
    assert set(states(two_runs)) == {"good@fold0@test", "good@fold1@test"}


def test_a_cell_that_cannot_be_written_fails_with_the_reason_and_is_tried_again(
    two_runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(*words: object) -> None:
        run, fold = words[2], words[3]
        if isinstance(run, Run) and (run.name, fold) == ("good", 1):
            raise PodiumError("no space left to write test.npz")
        kept(*words)  # type: ignore[arg-type]

    kept = test_predictions.keep_predictions
    with monkeypatch.context() as patch:
        patch.setattr("podium_annex.fleet.predict_cells.keep_predictions", keep)
        assert "1 of 4 cells failed: good@fold1@test" in one_line(podium(*SUBMIT, "--blend", "equal", "--on", "here"))
    assert not list(two_runs.glob("submissions/tiny/*.csv"))
    out = podium("jobs", "-c", "tiny")[1]
    (row,) = [line.split(maxsplit=4) for line in out.splitlines() if "failed" in line]
    assert (row[:3], row[4]) == (["good", "1", "failed"], "no space left to write test.npz")
    status, _, err = podium(*SUBMIT, "--blend", "equal", "--on", "here")
    assert status == 0, err
    assert err.count("podium: cell ") == 1


def test_a_job_predicts_its_cell_alone(two_runs: Path, podium: Podium) -> None:
    assert podium(*SUBMIT, "--blend", "equal", "--on", "here")[0] == 0
    forget_predictions(two_runs)
    Board(two_runs / "runs/tiny/.cells").path("idle@fold1@test", 2).unlink()  # it has never ended
    Board(two_runs / "runs/tiny/.cells").path("idle@fold1@test", 1).unlink()
    status, out, err = podium("submit", "-c", "tiny", "--device", "cpu", "--on", "here", "--cell", "idle@fold1@test")
    assert (status, out) == (0, ""), err
    assert [path.parent.name for path in two_runs.glob("runs/tiny/*/fold*/test.npz")] == ["fold1"]


@pytest.mark.slow
@pytest.mark.all
def test_jobs_predict_what_the_plain_command_predicts_to_the_byte(
    two_runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    words = ("submit", "-c", "tiny", "--runs", "good", "--device", "cpu", "--workers", "0", "--name")
    status, _, err = podium(*words, "jobs", "--on", "local", "--at-once", "2")
    assert status == 0, err
    assert "submitted 2 jobs" in err
    assert err.count("already predicted") == 2
    forget_predictions(two_runs)
    assert podium(*words, "plain")[0] == 0
    assert submitted(two_runs, "jobs") == submitted(two_runs, "plain")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--on", "sky"), "--on sky does not go with submit"),
        (("--on", "here", "--from", "x.json"), "leave out --on"),
        (("--on", "here", "--cell", "good@fold7@test"), "no such cell"),
        (("--on", "here", "--job", "timeout_min=3"), "--job is for jobs"),
        (("--cell", "good@fold0@test"), "--cell is for several machines"),
        (("--at-once", "3"), "--at-once is for several machines"),
    ],
)
def test_what_is_no_cell_is_refused_before_one_predicts(
    two_runs: Path, podium: Podium, words: tuple[str, ...], named: str
) -> None:
    assert named in one_line(podium("submit", "-c", "tiny", *words))
    assert not list(two_runs.glob("runs/tiny/*/fold*/test.npz"))


def test_slurm_is_refused_where_there_is_none(two_runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "there is no sbatch on PATH" in one_line(podium(*SUBMIT, "--on", "slurm"))
