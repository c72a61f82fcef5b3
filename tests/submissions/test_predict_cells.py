"""podium submit --on: the missing test predictions, as cells that nodes of Ray or jobs make."""

import os
import sys
from pathlib import Path

import pytest

from forked_podium import exit_status, start_podium
from podium_annex.fleet import cells, slurm_jobs
from ray_cluster import RayCluster
from tiny import Podium, one_line, run_of

SUBMIT = ("submit", "-c", "tiny", "--runs", "good", "idle", "--device", "cpu", "--workers", "0")


def submitted(root: Path, name: str) -> bytes:
    return (root / "submissions/tiny" / f"{name}.csv").read_bytes()


def run_on(root: Path, place: str, *words: str) -> tuple[int, str]:
    """Runs podium in a process of its own; returns its exit status and what it said."""
    log = root / "driver.log"
    log.unlink(missing_ok=True)
    return exit_status(start_podium(("--root", root, *words, "--on", place), log)), log.read_text()


@pytest.mark.slow
def test_cells_predict_what_the_plain_command_predicts_to_the_byte(
    two_runs: Path, podium: Podium, ray_cluster: RayCluster
) -> None:
    words = (*SUBMIT, "--blend", "equal", "--name")
    assert podium(*words, "plain")[0] == 0
    (run_of(two_runs, "good").fold_folder(0) / "test.npz").unlink()
    status, said = run_on(two_runs, ray_cluster.place, *words, "cells")
    assert status == 0, said
    assert submitted(two_runs, "cells") == submitted(two_runs, "plain")
    assert "cell good@fold0@test is done, 1 of 1" in said  # the others are there
    status, said = run_on(two_runs, ray_cluster.place, *words, "again")
    assert (status, "cell " in said) == (0, False)


@pytest.mark.slow
@pytest.mark.all
def test_a_cluster_of_this_machine_ends_with_the_command_and_is_reachable_from_nowhere_else(
    two_runs: Path, podium: Podium
) -> None:
    status, said = run_on(two_runs, "ray", "submit", "-c", "tiny", "--runs", "good", "--device", "cpu", "--name", "ray")
    assert status == 0, said
    assert said.count(" is done, ") == 2
    assert podium("submit", "-c", "tiny", "--runs", "good", "--device", "cpu", "--name", "plain")[0] == 0
    assert submitted(two_runs, "ray") == submitted(two_runs, "plain")


@pytest.mark.slow
def test_a_cell_predicts_alone(two_runs: Path, podium: Podium) -> None:
    status, out, err = podium("submit", "-c", "tiny", "--device", "cpu", "--cell", "idle@fold1@test")
    assert (status, out) == (0, ""), err
    assert [path.parent.name for path in two_runs.glob("runs/tiny/*/fold*/test.npz")] == ["fold1"]


@pytest.mark.slow
def test_a_cell_that_cannot_be_made_fails_with_the_reason_and_is_tried_again(
    two_runs: Path, ray_cluster: RayCluster
) -> None:
    words = (*SUBMIT, "--blend", "equal")
    folder = run_of(two_runs, "good").fold_folder(1)
    (folder / "test.npz").mkdir()  # which no file can replace
    status, said = run_on(two_runs, ray_cluster.place, *words)
    assert status == 1
    assert "1 of 4 cells failed: good@fold1@test" in said.splitlines()[-1]
    assert "test.npz cannot be written" in said
    assert not list(two_runs.glob("submissions/tiny/*.csv"))
    (folder / "test.npz").rmdir()
    status, said = run_on(two_runs, ray_cluster.place, *words)
    assert status == 0, said
    assert "is done, 1 of 1" in said


@pytest.mark.slow
@pytest.mark.all
def test_jobs_predict_what_the_plain_command_predicts_to_the_byte(
    two_runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setattr(slurm_jobs, "CLUSTER", "local")
    monkeypatch.setattr(cells, "check_slurm", lambda args: None)
    words = ("submit", "-c", "tiny", "--runs", "good", "--device", "cpu", "--workers", "0", "--name")
    status, _, err = podium(*words, "jobs", "--on", "slurm")
    assert status == 0, err
    assert "2 jobs submitted" in err
    for path in two_runs.glob("runs/tiny/*/fold*/test.npz"):
        path.unlink()
    assert podium(*words, "plain")[0] == 0
    assert submitted(two_runs, "jobs") == submitted(two_runs, "plain")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--on", "sky"), "--on sky does not go with submit"),
        (("--on", "ray", "--from", "x.json"), "leave out --on"),
        (("--cell", "good@fold7@test"), "no such cell"),
        (("--on", "ray", "--job", "num_cpus"), "write NAME=VALUE"),
        (("--at-once", "3"), "--at-once is for cells"),
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
