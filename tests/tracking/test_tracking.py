"""Other programs can follow a run: they see each epoch once, and nothing that they do touches the training."""

import importlib.util
import os
import sys
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from forked_podium import exit_status, group_environments, start_podium
from podium.basics import machine
from podium.basics.machine import Machine
from podium.saved_runs.fold_names import WHOLE
from podium.training.tracking.find_trackers import TrackedFold
from podium.training.tracking.tracking import FILE, Tracking
from podium_annex.trackers import TRACKERS
from second_round import first_of
from stand_ins.trackers import Calls, install, stand_ins
from templates import copied
from tiny import (
    FAST,
    Podium,
    assert_same_fold,
    assert_says,
    done,
    one_line,
    podium_at,
    run_of,
    stop_in_step,
    tiny_with_folds,
)

# Three epochs of three steps.
TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--batch-size", "4", "--epochs", "3")
OUTSIDE = (
    *("MLFLOW_TRACKING_URI", "MLFLOW_DISABLE_TELEMETRY", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"),
    *("WANDB_MODE", "WANDB_ERROR_REPORTING"),
)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OUTSIDE:
        monkeypatch.setenv(name, "")  # put back after the test
        monkeypatch.delenv(name)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Makes the three programs stand-ins; returns what they are told."""
    calls = Calls(tmp_path / "calls.jsonl")
    for name, module in stand_ins(calls).items():
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_every_tracker_can_be_asked_for_and_installed() -> None:
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(machine.TRACKERS) == set(TRACKERS)
    assert set(TRACKERS) <= set(extras)


@pytest.mark.parametrize("tracker", first_of(["mlflow", "wandb"], TRACKERS))
def test_a_tracker_sees_every_epoch_of_every_fold_and_the_recipe(
    tiny: Path, podium: Podium, calls: Calls, tracker: str
) -> None:
    done(podium(*TRAIN, "--track", tracker))
    run = run_of(tiny)
    records = calls.read("record")
    assert [call["epoch"] for call in records] == [1, 2, 3] * 2
    assert len({call["where"] for call in records}) == len(calls.read("begin")) == len(calls.read("end")) == 2
    last = run.history(1)[-1]
    assert records[-1]["numbers"]["accuracy"] == last.scores["accuracy"]
    assert records[-1]["numbers"]["loss"] == last.loss
    options = {name: text for call in calls.read("options") for name, text in call["options"].items()}
    assert options["model"] == "test_vit"
    assert options["epochs"] == "3"


@pytest.mark.parametrize("tracker", first_of(["tensorboard", "mlflow"], TRACKERS))
def test_a_stopped_run_goes_on_in_the_same_place_and_changes_no_bit(
    tiny: Path, podium: Podium, calls: Calls, tracker: str
) -> None:
    tracked = (*TRAIN, "--folds", "0", "--name", "tracked", "--track", tracker)
    stop_in_step(podium, 7, *tracked)
    done(podium(*tracked))
    assert [call["epoch"] for call in calls.read("record")] == [1, 2, 3]
    first, second = calls.read("begin")
    assert (first["where"], first["id"]) == (second["where"], second["id"])
    stopped, finished = calls.read("end")
    assert stopped.get("status", "KILLED") == "KILLED"
    assert finished.get("status", "FINISHED") == "FINISHED"
    assert (stopped.get("exit_code", 1), finished.get("exit_code", 0)) == (1, 0)
    done(podium(*TRAIN, "--folds", "0", "--name", "alone"))
    assert_same_fold(run_of(tiny, "tracked"), run_of(tiny, "alone"))


def test_a_tracker_that_joins_later_is_told_what_it_missed(tiny: Path, podium: Podium, calls: Calls) -> None:
    stop_in_step(podium, 7, *TRAIN, "--folds", "0")
    done(podium(*TRAIN, "--folds", "0", "--track", "wandb"))
    assert [call["epoch"] for call in calls.read("record")] == [1, 2, 3]


def with_a_trained_fold(root: Path) -> None:
    tiny_with_folds(root)
    podium_at(root, *TRAIN, "--folds", "0")


trained = copied(with_a_trained_fold)


def test_an_epoch_that_a_killed_process_told_is_not_told_again(trained: Path, calls: Calls) -> None:
    """A process that is killed after an epoch, before its checkpoint, computes this epoch again."""
    run = run_of(trained)
    history = run.history(0)
    Tracking(run, ["tensorboard"]).follow(0, history[:2])
    Tracking(run, ["tensorboard"]).follow(0, [history[0], replace(history[1], seconds=9.0)])
    Tracking(run, ["tensorboard"]).follow(0, history)
    assert [call["epoch"] for call in calls.read("record")] == [1, 2, 3]
    assert [call["purge_step"] for call in calls.read("begin")] == [None, 3, 3]


DAMAGED = ("", "[]", '{"tensorboard": {"id": 1}}', '{"tensorboard": 3}')


@pytest.mark.parametrize("content", first_of(["", '{"tensorboard": 3}'], DAMAGED))
def test_a_tracker_whose_file_is_damaged_begins_anew(trained: Path, calls: Calls, content: str) -> None:
    run = run_of(trained)
    (run.fold_folder(0) / FILE).write_text(content)
    old = run.path / "tensorboard" / "fold0" / "events.old"
    old.parent.mkdir(parents=True)
    old.touch()
    Tracking(run, ["tensorboard"]).follow(0, run.history(0))
    assert [call["epoch"] for call in calls.read("record")] == [1, 2, 3]
    assert not old.exists()


def test_a_head_is_tracked_too(tiny: Path, podium: Podium, calls: Calls) -> None:
    done(podium("train", *FAST, "--device", "cpu", "--model", "test_resnet", "--linear", "--track", "mlflow"))
    assert [call["epoch"] for call in calls.read("record")] == [1, 1]
    assert all("l2" in call["numbers"] for call in calls.read("record"))


@pytest.mark.slow
def test_the_first_of_several_processes_tracks(tiny: Path, tmp_path: Path) -> None:
    words = ("--root", tiny, *TRAIN, "--batch-size", "8", "--folds", "0", "--parallel", "data", "--track", "wandb")
    path = tmp_path / "calls.jsonl"
    before = partial(install, path)
    log = tmp_path / "group.log"
    group = [start_podium(words, log, before, environment) for environment in group_environments(2)]
    assert [exit_status(process) for process in group] == [0, 0], log.read_text()
    calls = Calls(path)
    assert [call["epoch"] for call in calls.read("record")] == [1, 2, 3]
    assert len(calls.read("begin")) == 1


# --- what fails --------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", ["begin", "record", "end"])
def test_a_tracker_that_fails_is_left_out_with_one_warning(
    tiny: Path, podium: Podium, calls: Calls, failing: str
) -> None:
    calls.failing = failing
    _, err = done(podium(*TRAIN, "--folds", "0", "--track", "wandb+mlflow"))
    warnings = [line for line in err.splitlines() if "warning" in line and "out of order" in line]
    assert len(warnings) == 2
    for name, warning in zip(("wandb", "mlflow"), warnings, strict=True):
        assert_says(warning, f"{name} fails ({failing} is out of order)", "no longer follows test_vit")
    assert run_of(tiny).finished() == [0]


def test_a_tracker_that_fails_takes_no_other_with_it(
    tiny: Path, podium: Podium, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.entities", None)
    _, err = done(podium(*TRAIN, "--folds", "0", "--track", "mlflow+tensorboard"))
    assert "mlflow fails" in err
    assert [call["epoch"] for call in calls.read("record")] == [1, 2, 3]


def test_a_package_that_is_missing_is_named_before_anything_else(
    tiny: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "wandb" else find(name, *rest))
    assert "--track wandb needs wandb" in (message := one_line(podium(*TRAIN, "--track", "wandb")))
    assert "pip install 'podium[wandb]'" in message
    assert not run_of(tiny).path.exists()


@pytest.mark.parametrize("words", ["tensorbord", "wandb+wandb", "mlflow+", "all"])
def test_unknown_trackers_are_refused(tiny: Path, podium: Podium, words: str) -> None:
    one_line(podium(*TRAIN, "--track", words), "tensorboard, mlflow, wandb joined by +", f"'{words}'")


# --- what leaves the machine -------------------------------------------------------------------------


def test_all_stays_in_the_folder_of_runs_unless_the_user_says_otherwise(
    tiny: Path, podium: Podium, calls: Calls
) -> None:
    done(podium(*TRAIN, "--folds", "0", "--track", "tensorboard+mlflow+wandb"))
    runs = tiny / "runs" / "tiny"
    tensorboard, mlflow, wandb = calls.read("begin")
    assert tensorboard["where"] == str(runs / "test_vit" / "tensorboard" / "fold0")
    assert mlflow["where"] == f"sqlite:///{runs / 'mlflow.db'}"
    assert calls.read("experiment")[0]["files"] == (runs / "mlflow-files").as_uri()
    assert (wandb["mode"], wandb["where"]) == ("offline", str(runs / "test_vit"))
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"


def test_the_users_environment_sends_it_elsewhere(
    tiny: Path, podium: Podium, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    monkeypatch.setenv("WANDB_MODE", "online")
    done(podium(*TRAIN, "--folds", "0", "--track", "mlflow+wandb"))
    mlflow, wandb = calls.read("begin")
    assert mlflow["where"] == "http://127.0.0.1:5000"
    assert wandb["mode"] == "online"
    assert calls.read("experiment")[0]["files"] is None


def test_a_run_is_not_tracked_unasked() -> None:
    assert Machine().trackers == ()


def test_a_model_of_all_images_is_called_as_its_folder(tmp_path: Path) -> None:
    assert TrackedFold(tmp_path / "run", WHOLE + 1, {}).name == "run/all1"
    assert TrackedFold(tmp_path / "run", 3, {}).name == "run/fold3"
