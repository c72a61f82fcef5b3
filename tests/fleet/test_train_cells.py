"""podium train --on: cells on several machines, here processes that share a folder; and podium jobs."""

import json
import os
import time
from pathlib import Path

import pytest

from forked_podium import exit_status, start_podium
from podium_annex.fleet.cell_board import FAILED, FREE, TAKEN, Board, Rhythm, Step, take
from podium_annex.fleet.cell_sweep import Cell, Sweep
from tiny import FAST, Podium, assert_same_fold, one_line, run_of

TRAIN = ("train", *FAST, "--epochs", "1", "--device", "cpu", "--model", "test_vit")
SEEDS = (*TRAIN, "--seeds", "0-1")


@pytest.fixture(autouse=True)
def _fast_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_BEAT", "0.2s")


def states(root: Path) -> dict[str, str]:
    return {cell: step.state for cell, step in Board(root / "runs/tiny/.cells").last_steps().items() if "@" in cell}


@pytest.mark.slow
def test_two_workers_train_what_one_command_trains_to_the_bit(tiny: Path, podium: Podium) -> None:
    logs = [tiny / f"{name}.log" for name in ("a", "b")]
    environment = {"PODIUM_BEAT": "0.2s"}
    workers = [start_podium(("--root", tiny, *SEEDS, "--on", "here"), log, environment=environment) for log in logs]
    outputs = [log.read_text() for worker, log in zip(workers, logs, strict=True) if not exit_status(worker)]
    assert sum(output.count("podium: cell ") for output in outputs) == 4
    assert all("worse than best" in output for output in outputs)
    assert set(states(tiny).values()) == {"done"}
    tables = [podium("compare", "-c", "tiny", "--csv")[1]]
    for seed in (0, 1):
        run_of(tiny, f"test_vit-seed{seed}").path.rename(tiny / f"by-cells-{seed}")
    status, _, err = podium(*SEEDS)
    assert status == 0, err
    for seed in (0, 1):
        for fold in (0, 1):
            apart = type(run_of(tiny))(tiny / f"by-cells-{seed}")
            assert_same_fold(run_of(tiny, f"test_vit-seed{seed}"), apart, fold)
            assert apart.recipe == run_of(tiny, f"test_vit-seed{seed}").recipe
    tables.append(podium("compare", "-c", "tiny", "--csv")[1])
    rows = [[line.split(",")[:3] for line in table.splitlines()] for table in tables]
    assert rows[0] == rows[1]


def test_a_worker_makes_the_folds_once_and_trains_all_cells(tiny: Path, podium: Podium) -> None:
    before = (tiny / "data/prepared/tiny/folds.csv").read_bytes()
    for name in ("folds.csv", "folds.json"):
        (tiny / "data/prepared/tiny" / name).unlink()
    status, _, err = podium(*TRAIN, "--folds", "0", "--on", "here")
    assert status == 0, err
    assert (tiny / "data/prepared/tiny/folds.csv").read_bytes() != before  # five folds
    assert states(tiny) == {"test_vit@fold0": "done"}
    status, _, err = podium(*TRAIN, "--folds", "0", "--on", "here")
    assert status == 0, err
    assert "podium: cell" not in err  # it is done


def test_a_cell_whose_files_are_gone_is_trained_again(tiny: Path, podium: Podium) -> None:
    words = (*TRAIN, "--folds", "0", "--on", "here")
    assert podium(*words)[0] == 0
    (run_of(tiny).fold_folder(0) / "oof.npz").unlink()
    assert "podium: cell test_vit@fold0" in podium(*words)[2]
    assert run_of(tiny).finished() == [0]


def test_folds_that_are_trained_already_are_no_work(tiny: Path, podium: Podium) -> None:
    assert podium(*TRAIN)[0] == 0
    status, _, err = podium(*TRAIN, "--on", "here")
    assert status == 0, err
    assert "podium: cell" not in err
    assert set(states(tiny).values()) == {"done"}


def test_cells_that_fail_are_named_and_tried_again_by_the_next_command(tiny: Path, podium: Podium) -> None:
    words = ("train", *FAST, "--epochs", "1", "--folds", "0", "--model", "test_vit", "test_resnet", "--on", "here")
    assert podium(*words)[0] == 0
    folder = tiny / "runs/tiny"
    (run_of(tiny, "test_resnet").fold_folder(0) / "oof.npz").unlink()
    recipe = json.loads((folder / "test_resnet/recipe.json").read_text())
    (folder / "test_resnet/recipe.json").write_text(json.dumps({**recipe, "lr": 9.0}))
    result = podium(*words)
    assert "1 of 2 cells failed: test_resnet@fold0" in one_line(result)
    assert "was started with other options" in result[2]
    assert "was started with other options" in podium("jobs", "-c", "tiny")[1]
    (folder / "test_resnet/recipe.json").write_text(json.dumps(recipe))
    status, out, err = podium(*words)
    assert status == 0, err
    assert "test_vit@fold0" not in err
    assert "worse than best" in out


# --- podium jobs -------------------------------------------------------------------------------------


def test_jobs_lists_what_waits_runs_is_done_and_has_failed(tiny: Path, podium: Podium) -> None:
    assert podium(*TRAIN, "--epochs", "2")[0] == 0
    folder = tiny / "runs/tiny/.cells"
    sweep = Sweep(folder, "abc", {}, Rhythm()).with_runs({"test_vit": (0, 1), "other": (0, 1)})
    sweep.reopen([Cell("test_vit", 1)], lambda cell: True)
    board = Board(folder)
    assert take(board, "test_vit@fold0", Step(), Rhythm())
    failing = take(board, "other@fold0", Step(), Rhythm())
    assert failing
    failing.end(FAILED, "no space left")
    status, out, err = podium("jobs", "-c", "tiny")
    assert status == 0
    rows = {tuple(line.split()[:2]): line for line in out.splitlines()}
    assert "running" in rows["test_vit", "0"]
    assert "epoch 2 of 2, about 0 s left" in rows["test_vit", "0"]
    assert "done" in rows["test_vit", "1"]
    assert "no space left" in rows["other", "0"]
    assert "waiting" in rows["other", "1"]
    assert "1 waiting, 1 running, 1 done, 1 failed" in err
    long_ago = time.time() - 3 * 3600
    os.utime(board.path("test_vit@fold0", 1), (long_ago, long_ago))
    out = podium("jobs", "-c", "tiny")[1]
    assert "silent for 3 h" in out
    assert not list(folder.glob(".*.tmp"))


def test_jobs_of_a_competition_without_cells_names_the_command_that_makes_some(tiny: Path, podium: Podium) -> None:
    assert "--on here" in one_line(podium("jobs", "-c", "tiny"))


# --- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--budget", "1h"), "--budget"),
        (("--processes", "2"), "--processes"),
        (("--linear",), "--linear"),
        (("--dry-run",), "--dry-run"),
        (("--pseudo", "first", "--rounds", "2"), "--rounds"),
        (("--folds", "0", "all"), "--folds all"),
        (("--accumulate", "auto"), "--accumulate auto"),
        (("--store", "auto"), "--store auto"),
        (("--compile", "auto"), "--compile auto"),
        (("--job", "timeout_min=3"), "--job"),
        (("--cell", "test_vit@fold7"), "no such cell"),
    ],
)
def test_what_is_no_cell_is_refused_before_one_starts(
    tiny: Path, podium: Podium, words: tuple[str, ...], named: str
) -> None:
    assert named in one_line(podium(*TRAIN, "--on", "here", *words))
    assert not list(tiny.glob("runs/tiny/*/recipe.json"))


def test_auto_is_refused_since_each_machine_would_look_for_itself(tiny: Path, podium: Podium) -> None:
    assert "name a model" in one_line(podium("train", "-c", "tiny", "--model", "auto", "--on", "here"))


@pytest.mark.parametrize("place", ["there", "slurm:", "here:gpu", "slurm:a b"])
def test_an_unknown_place_is_refused_with_the_known_ones(tiny: Path, podium: Podium, place: str) -> None:
    assert "is not here, slurm, slurm:PARTITION, local or sky" in one_line(podium(*TRAIN, "--on", place))


def test_another_version_of_podium_is_refused(tiny: Path, podium: Podium) -> None:
    assert podium(*TRAIN, "--folds", "0", "--on", "here")[0] == 0
    (path,) = (tiny / "runs/tiny/.cells").glob("sweep-*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": "0.0.9"}))
    message = one_line(podium(*TRAIN, "--folds", "0", "--on", "here"))
    assert "was begun by Podium 0.0.9" in message
    assert "install one version on all" in message


def test_a_preparation_that_fails_stops_the_command_and_is_tried_again(tiny: Path, podium: Podium) -> None:
    (tiny / "data/raw/tiny/train_image/000.jpg").write_bytes(b"")
    (tiny / "data/prepared/tiny/folds.csv").write_text("id,fold\n")
    assert one_line(podium(*TRAIN, "--on", "here"))
    board = Board(tiny / "runs/tiny/.cells")
    assert {step.state for step in board.last_steps().values()} == {FAILED}
    assert not {TAKEN, FREE} & {step.state for step in board.last_steps().values()}
