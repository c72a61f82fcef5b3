"""Which runs a plain submission blends: those that help; the others are left out and named."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.run_folder import Run
from tiny import Podium, assert_says, done, one_line


def copy_run(root: Path, source: str, name: str) -> Run:
    runs = root / "runs" / "tiny"
    shutil.copytree(runs / source, runs / name)
    return Run(runs / name)


def blended_runs(podium: Podium, *words: str) -> tuple[set[str], str]:
    """Submits; returns the names of the runs in the lineage, and what is printed beside it."""
    out, err = done(podium("submit", "-c", "tiny", *words))
    lineage = json.loads(Path(out.strip()).with_suffix(".json").read_text())
    return {run["run"] for run in lineage["runs"]}, err


def test_runs_at_chance_of_other_folds_and_of_few_folds_are_left_out_and_named(two_runs: Path, podium: Podium) -> None:
    copy_run(two_runs, "good", "twin")
    shutil.rmtree(copy_run(two_runs, "good", "partial").fold_folder(1))
    foreign = copy_run(two_runs, "good", "foreign").path / "recipe.json"
    recipe = json.loads(foreign.read_text())
    foreign.write_text(json.dumps({**recipe, "folds_sha256": "0" * 64}))
    names, err = blended_runs(podium)
    assert names == {"good", "twin"}
    (line,) = [line for line in err.splitlines() if "left out" in line]
    assert_says(line, "idle (score may be chance)", "foreign (other folds)", "partial (1 of 2 folds)", "--runs")
    names, err = blended_runs(podium, "--runs", "good", "partial", "idle")
    assert names == {"good", "partial", "idle"}
    assert "left out" not in err
    assert "partial has held out only 18 of 36" in err
    names, err = blended_runs(podium, "--except", "twin,", "idle")
    assert names == {"good"}
    assert "idle" not in err


def test_a_run_of_other_classes_is_left_out(two_runs: Path, podium: Podium) -> None:
    for path in copy_run(two_runs, "good", "other").path.glob("fold*/oof.npz"):
        replace(Predictions.load(path, ""), classes=("a", "b", "c", "d")).save(path)
    names, err = blended_runs(podium)
    assert names == {"good"}
    assert "other (other classes)" in err


@pytest.mark.annex
def test_runs_to_leave_out_must_exist_and_leave_one(two_runs: Path, podium: Podium) -> None:
    assert "no run 'idel'" in (message := one_line(podium("submit", "-c", "tiny", "--except", "idel")))
    assert "did you mean idle?" in message
    one_line(podium("compare", "-c", "tiny", "--except", "good", "idle"), "except in good, idle; leave out fewer runs")
    one_line(
        podium("kaggle-bundle", "-c", "tiny", "--runs", "good", "--except", "idle"),
        "--except: not allowed with argument --runs",
    )


def test_a_single_run_is_submitted_whatever_it_is(two_runs: Path, podium: Podium) -> None:
    shutil.rmtree(two_runs / "runs" / "tiny" / "good")
    shutil.rmtree(two_runs / "runs" / "tiny" / "idle" / "fold0")
    names, err = blended_runs(podium, "--anyway")
    assert names == {"idle"}
    assert "left out" not in err


def test_of_partial_runs_only_the_most_complete_are_blended(two_runs: Path, podium: Podium) -> None:
    shutil.rmtree(two_runs / "runs" / "tiny" / "idle")
    shutil.rmtree(copy_run(two_runs, "good", "first").fold_folder(1))
    shutil.rmtree(copy_run(two_runs, "good", "second").fold_folder(0))
    shutil.rmtree(two_runs / "runs" / "tiny" / "good")
    names, err = blended_runs(podium)
    assert len(names) == 1
    assert "(1 of 2 folds)" in err
