"""The table of runs: their scores, their costs, and how often they disagree."""

from pathlib import Path

import numpy as np

from podium.submissions.held_out import collect_held_out
from podium.training.run_folder import Run
from tiny import Podium


def test_runs_are_compared(two_runs: Path, podium: Podium) -> None:
    status, out, err = podium("compare", "-c", "tiny")
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0].split() == ["run", "model", "folds", "accuracy", "±", "parameters", "images/s", "training"]
    assert [line.split()[0] for line in lines[1:3]] == ["good", "idle"]  # the best first
    assert lines[1].split()[1:5] == ["test_convnext", "2", "of", "2"]
    good, idle = (Run(two_runs / "runs" / "tiny" / name) for name in ("good", "idle"))
    scores = [good.score(fold, "accuracy") for fold in (0, 1)]
    assert f"{np.mean(scores):.5f}" in lines[1]
    good_classes, idle_classes = collect_held_out([good, idle], ("blue", "green", "lonely", "red")).probs.argmax(2)
    assert f"{np.mean(good_classes != idle_classes):.2%}" in lines[5]


def test_one_run_has_no_table_of_disagreements(two_runs: Path, podium: Podium) -> None:
    status, out, err = podium("compare", "-c", "tiny", "--runs", "idle")
    assert status == 0, err
    assert len(out.splitlines()) == 2
