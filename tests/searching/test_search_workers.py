"""podium search --on: workers of one search, as tasks of Ray, as jobs of a queue, and as a file for a cloud."""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forked_podium import exit_status, start_podium
from podium_annex.fleet import cells, slurm_jobs
from podium_annex.fleet.cell_command import SPENT
from podium_annex.fleet.slurm_jobs import SlurmJobs
from podium_annex.searching.search_plan import plan_search
from podium_annex.searching.search_request import SearchRequest
from ray_cluster import RayCluster
from searching.searches import SEARCH as COMMAND
from searching.searches import searched, three_folds, trials_of
from templates import template
from tiny import Podium, one_line

TWO_TRIALS = (*COMMAND[:-1], "2")


@pytest.fixture
def folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    shutil.copytree(template(three_folds), tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def found(folds: Path) -> Path:
    shutil.copytree(template(searched), folds, dirs_exist_ok=True)
    return folds


@pytest.mark.slow
def test_nodes_search_together_and_the_command_shows_the_report(folds: Path, ray_cluster: RayCluster) -> None:
    log = folds / "driver.log"
    status = exit_status(start_podium(("--root", folds, *TWO_TRIALS, "--on", ray_cluster.place), log))
    said = log.read_text()
    assert status == 0, said
    assert said.count("search search: 2 trials") == 1
    assert "which the search did not use" in said
    assert len(trials_of(folds)) == 2
    assert {path.stem for path in folds.glob("runs/tiny/.logs/*.log")} >= {"search@worker-1", "search@worker-2"}
    assert "cell search@worker-2 is done" in said


def test_a_worker_leaves_the_report_to_the_command_that_started_it(found: Path, podium: Podium) -> None:
    assert "next:" in podium(*COMMAND)[2]
    status, out, err = podium(*COMMAND, "--cell", "search@worker-1")
    assert (status, out) == (0, ""), err
    assert "next:" not in err
    assert "wrote" not in err


@pytest.mark.slow
@pytest.mark.all
def test_jobs_search_together_and_the_command_shows_the_report(
    folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_jobs, "CLUSTER", "local")
    monkeypatch.setattr(cells, "check_slurm", lambda args: None)
    status, out, err = podium(*TWO_TRIALS, "--on", "slurm", "--at-once", "2")
    assert status == 0, err
    assert "2 jobs submitted" in err
    assert out.count("search search: 2 trials") == 1
    assert "which the search did not use" in out
    assert len(trials_of(folds)) == 2


def test_sky_writes_a_file_that_installs_optuna(folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folds)
    assert podium(*COMMAND, "--on", "sky")[0] == 0
    text = (folds / "sky.yaml").read_text()
    assert 'pip install "$HOME/podium[search]"' in text
    assert "podium --root ~/project search -c tiny" in text
    assert not (folds / "runs").exists()


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


def test_a_worker_that_is_started_again_has_spent_what_the_first_one_had(
    found: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SPENT, "3599")
    status, _, err = podium(*COMMAND[:-1], "9", "--budget", "1h", "--cell", "search@worker-1")
    assert status == 0, err
    assert "the time of the search is over" in err


def test_jobs_that_wait_are_cancelled_once_the_search_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled: list[str] = []

    def job(name: str, state: str) -> Any:
        done, cancel = (lambda: state == "COMPLETED"), (lambda check: cancelled.append(name))
        return SimpleNamespace(state=state, done=done, result=lambda: "", cancel=cancel)

    monkeypatch.setattr("time.sleep", lambda seconds: None)
    jobs = object.__new__(SlurmJobs)
    jobs.is_over, states = (lambda: False), {"a": "RUNNING", "b": "PENDING", "c": "COMPLETED"}
    jobs.left = {name: job(name, state) for name, state in states.items()}
    assert jobs.ended() == {"c": ""}
    jobs.is_over, jobs.left["d"] = (lambda: True), job("d", "COMPLETED")
    assert jobs.ended() == {"d": "", "b": ""}
    assert (cancelled, list(jobs.left)) == (["b"], ["a"])  # the one that works may have a trial to end


# --- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--job", "num_cpus=3"), "--job is for cells"),
        (("--on", "ray", "--job", "num_cpus"), "write NAME=VALUE"),
        (("--on", "here"), "--on here is gone: use --on ray"),
    ],
)
def test_what_no_worker_can_do_is_refused_before_one_begins(
    folds: Path, podium: Podium, words: tuple[str, ...], named: str
) -> None:
    assert named in one_line(podium(*COMMAND, *words))
    assert not (folds / "runs").exists() or not list((folds / "runs/tiny").glob("search*"))


def test_a_report_goes_nowhere(folds: Path, podium: Podium) -> None:
    assert "--on ray searches; name models" in one_line(podium("search", "-c", "tiny", "--report", "--on", "ray"))


def test_slurm_is_refused_where_there_is_none(folds: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "there is no sbatch on PATH" in one_line(podium(*COMMAND, "--on", "slurm:gpu"))


def test_other_settings_are_refused_before_a_worker_begins(found: Path, podium: Podium) -> None:
    message = one_line(podium(*COMMAND, "--smoothing", "0.1", "--on", "ray"))
    assert "was started with other settings" in message
    assert not (found / "runs/tiny/.logs").exists()
