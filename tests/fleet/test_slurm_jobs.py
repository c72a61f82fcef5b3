"""podium train --on slurm: the jobs, through submitit's executor of this machine; what is refused before one starts."""

import argparse
import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import submitit

from podium.basics.errors import PodiumError
from podium_annex.fleet import cells, slurm_jobs
from podium_annex.fleet.cell_command import BEGINS, CellCommand
from podium_annex.fleet.slurm_jobs import SlurmJobs, check_slurm
from tiny import FAST, Podium, assert_same_fold, one_line, run_of

TRAIN = ("train", *FAST, "--epochs", "1", "--model", "test_vit", "--folds", "0")


@pytest.fixture
def on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_jobs, "CLUSTER", "local")
    monkeypatch.setattr(cells, "check_slurm", lambda args: None)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def given(**more: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"on": "slurm:gpu", "at_once": None, "job": None, **more})


def commands_in(folder: Path, *cells: str) -> list[CellCommand]:
    return [CellCommand(cell, ["--version"], folder / f"{cell}.log") for cell in cells]


def accounting(folder: Path, monkeypatch: pytest.MonkeyPatch, **states: str) -> None:
    """Lets sacct say these states of jobs, and others of no other job."""
    lines = "\\n".join(["JobID|State|NodeList", *(f"{job[1:]}|{state}|" for job, state in states.items())])
    (folder / "sacct").write_text(f"#!/bin/sh\nprintf '{lines}\\n'\n")
    (folder / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def follow(jobs: SlurmJobs) -> dict[str, str]:
    problems = dict[str, str]()
    while jobs.left:
        problems |= jobs.ended()
    return problems


@pytest.mark.slow
def test_jobs_that_fail_say_why_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_this_machine: None
) -> None:
    commands = commands_in(tmp_path, "a@fold0", "b@fold0", "c@fold0")
    commands[0].words = ["--no-such-flag"]
    commands[1].version = "0.0.9"
    monkeypatch.setattr(slurm_jobs, "LARGEST_ARRAY", 2)
    problems = follow(SlurmJobs(given(), commands, lambda: False))
    assert "no flag --no-such-flag" in problems["a@fold0"]
    assert "not 0.0.9" in problems["b@fold0"]
    assert "no flag --cell" in problems["c@fold0"]  # podium --version has none
    assert set(json.loads((tmp_path / "jobs/jobs.json").read_text())) == set(problems)


def test_jobs_of_an_earlier_command_are_followed_if_slurm_knows_that_they_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounting(tmp_path, monkeypatch, _7_0="RUNNING", _7_1="PENDING", _7_2="COMPLETED", _7_3="CANCELLED by 12")
    cells = {f"{letter}@fold0": f"7_{number}" for number, letter in enumerate("abcde")}
    (tmp_path / "jobs.json").write_text(json.dumps(cells))
    jobs = object.__new__(SlurmJobs)
    jobs.folder = tmp_path
    assert set(jobs.known_jobs()) == {"a@fold0", "b@fold0"}


# --- one job -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.all
def test_a_job_whose_time_is_over_saves_is_queued_again_and_finishes(tiny: Path, on_this_machine: None) -> None:
    words = ["--root", str(tiny), *TRAIN, "--epochs", "60", "--device", "cpu"]
    command, fold = CellCommand("test_vit@fold0", words, tiny / "cell.log"), run_of(tiny).fold_folder(0)
    job = submitit.LocalExecutor(tiny / "jobs").submit(command)
    while not (fold / "metrics.jsonl").exists():
        time.sleep(0.05)
    (task,) = [
        process
        for process in Path("/proc").glob("[0-9]*")
        if b"submitit.core._submit" in (process / "cmdline").read_bytes()
        and str(tiny / "jobs").encode() in (process / "cmdline").read_bytes()
    ]
    os.kill(int(task.name), submitit.JobEnvironment._usr_sig())
    assert job.result() == ""
    assert json.loads((fold / "metrics.jsonl").read_text().splitlines()[-1])["epoch"] == 60
    assert "Requeued" in (job.stdout() or "")
    assert "resumes from step" in command.log.read_text()
    assert len(command.said(BEGINS)) == 2


@pytest.mark.slow
@pytest.mark.all
def test_jobs_train_what_the_command_trains_to_the_bit(tiny: Path, podium: Podium, on_this_machine: None) -> None:
    words = ("train", *FAST, "--epochs", "1", "--device", "cpu", "--model", "test_vit", "--seeds", "0-1")
    status, _, err = podium(*words, "--on", "slurm")
    assert status == 0, err
    assert "4 jobs submitted" in err
    for seed in (0, 1):
        run_of(tiny, f"test_vit-seed{seed}").path.rename(tiny / f"by-jobs-{seed}")
    assert podium(*words)[0] == 0
    for seed in (0, 1):
        for fold in (0, 1):
            run = run_of(tiny, f"test_vit-seed{seed}")
            assert_same_fold(run, type(run)(tiny / f"by-jobs-{seed}"), fold)


def test_a_command_that_saved_and_stopped_is_queued_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    ends_with_75 = tmp_path / "python"
    ends_with_75.write_text("#!/bin/sh\nexit 75\n")
    ends_with_75.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(ends_with_75))
    (command,) = commands_in(tmp_path, "a@fold0")
    assert "Slurm has not queued it again" in command()  # only if the handler of the signal does not end the process
    assert raised == [submitit.JobEnvironment._usr_sig()]
    again = command.checkpoint().function
    assert (again.words, again.process) == (command.words, None)


# --- what is refused ---------------------------------------------------------------------------------


def test_slurm_is_refused_where_there_is_none(tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    message = one_line(podium(*TRAIN, "--on", "slurm:gpu"))
    assert "--on slurm:gpu: there is no sbatch on PATH" in message
    assert "--on ray" in message


def test_a_folder_that_nodes_do_not_see_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(slurm_jobs, "OF_ONE_MACHINE", (str(tmp_path),))
    with pytest.raises(PodiumError, match="move the project to a folder that all machines share"):
        check_slurm(given(root=tmp_path / "project"))


def test_without_submitit_the_extra_that_brings_it_is_named(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "submitit" else find(name, *rest)
    )
    assert "pip install 'podium[slurm]'" in one_line(podium(*TRAIN, "--on", "slurm"))


@pytest.mark.parametrize("option", ["timeout_min", "=3", "timeout_min="])
def test_an_option_of_a_job_needs_a_name_and_a_value(tiny: Path, podium: Podium, option: str) -> None:
    assert "write NAME=VALUE" in one_line(podium(*TRAIN, "--on", "slurm", "--job", option))


def test_an_option_that_submitit_does_not_know_is_refused(tmp_path: Path, on_this_machine: None) -> None:
    with pytest.raises(PodiumError, match="the names are those of submitit"):
        SlurmJobs(given(job=["time_min=3"]), commands_in(tmp_path, "a@fold0"), lambda: False)
