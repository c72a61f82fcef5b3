"""podium submit: from finished runs to a CSV and its lineage."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from podium.blending.expected_score import Estimate
from podium.competition.load import load
from podium.submissions.submission import _say_estimate, submit
from podium.tasks.metrics import METRICS, Metric
from tiny import Podium, assert_says, done, one_line


def test_a_blend_is_written_with_its_lineage(two_runs: Path, podium: Podium) -> None:
    out, err = done(podium("submit", "-c", "tiny", "--runs", "good", "idle", "--blend", "greedy-calibrated"))
    assert_says(err, "each scored on images that it was not fitted to (36 images, in parts)", "expect between")
    lineage = json.loads(Path(out.strip()).with_suffix(".json").read_text())
    assert lineage["blend"]["strategy"] == "greedy-calibrated"
    assert lineage["runs"][0]["run"] == "good"
    assert lineage["runs"][0]["weight"] > 0.7
    assert lineage["estimate"]["images"] == 36
    assert {"commit", "versions", "train_sha256", "test_sha256", "sha256"} <= set(lineage)


def test_a_lower_end_just_below_0_has_no_sign(two_runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    estimate = Estimate(score=0.25, interval=(-1e-9, 0.5), image_count=36, loss=1.0)
    _say_estimate(load("tiny", two_runs), estimate)
    assert "between 0.0000 and 0.5000" in capsys.readouterr().err


def test_no_number_for_people_is_a_negative_zero() -> None:
    for path in (Path(__file__).parents[2] / "src").glob("podium*/**/*.py"):
        plain = re.findall(r"\{[^{}]*:\+?\.[3-5]f\}", path.read_text(encoding="utf-8"))
        assert not plain, f"{path}: {plain}: write z before the point (:z.4f), which leaves out the sign of a rounded 0"


def test_a_training_table_that_changed_after_training_is_named(two_runs: Path, podium: Podium) -> None:
    _, err = done(podium("submit", "-c", "tiny", "--runs", "good"))
    assert "changed" not in err
    table = two_runs / "data" / "raw" / "tiny" / "train.csv"
    first, *others = table.read_text().splitlines()[1:]
    name, _, label = first.partition(",")
    other = next(line.partition(",")[2] for line in others if line.partition(",")[2] != label)
    table.write_text(table.read_text().replace(first, f"{name},{other}", 1))
    _, err = done(podium("submit", "-c", "tiny", "--runs", "good"))
    (warning,) = [line for line in err.splitlines() if "changed" in line]
    assert "warning: the training data in" in warning
    assert str(table.parent) in warning
    assert_says(warning, "since good learned", "--name")


def test_python_can_submit_without_options(two_runs: Path, podium: Podium) -> None:
    path = submit(load("tiny", two_runs))
    written = path.read_bytes()
    out, _ = done(podium("submit", "-c", "tiny"))
    assert (Path(out.strip()), path.read_bytes()) == (path, written)


def test_columns_follow_the_sample_when_their_order_changes(two_runs: Path, podium: Podium) -> None:
    sample = two_runs / "data" / "raw" / "tiny" / "sample_submission.csv"
    ids = [line.partition(",")[0] for line in sample.read_text().splitlines()[1:]]
    tables = {}
    for columns in (("red", "lonely", "blue", "green"), ("green", "blue", "lonely", "red")):
        rows = [f"{image_id},0,0,0,1" for image_id in ids]
        sample.write_text("\n".join([",".join(("id", *columns)), *rows, ""]))
        out, _ = done(podium("submit", "-c", "tiny", "--name", columns[0]))
        table = pd.read_csv(out.strip(), dtype={"id": str})
        assert list(table.columns) == ["id", *columns]
        assert list(table["id"]) == ids
        tables[columns[0]] = table
    red, green = tables["red"], tables["green"]
    pd.testing.assert_frame_equal(red, green[red.columns])
    truth = pd.read_csv(two_runs / "solution.csv", dtype=str).set_index("id")["target"]
    assert (red.set_index("id").idxmax(axis=1) == truth[ids]).mean() > 0.8  # the probabilities moved with their classes


def test_predictions_that_cannot_be_cached_are_submitted_all_the_same(two_runs: Path, podium: Podium) -> None:
    for fold in range(2):
        (two_runs / "runs" / "tiny" / "good" / f"fold{fold}" / "test.npz" / "in the way").mkdir(parents=True)
    _, err = done(podium("submit", "-c", "tiny", "--runs", "good"))
    assert "the next command predicts again" in err


def test_names_that_cannot_be_used_are_refused_before_anything_is_predicted(two_runs: Path, podium: Podium) -> None:
    one_line(podium("submit", "-c", "tiny", "--name", "history"), "history.csv", "--name")
    renamed = (two_runs / "runs" / "tiny" / "idle").rename(two_runs / "runs" / "tiny" / "a copy")
    message = one_line(podium("submit", "-c", "tiny"))
    assert str(renamed) in message
    assert "rename it" in message
    assert not list(two_runs.glob("runs/tiny/*/fold*/test.npz"))


def test_a_metric_that_is_not_a_number_is_named(
    two_runs: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    undefined = Metric("labels", 1, lambda targets, probs: float("nan"))
    monkeypatch.setitem(METRICS, "accuracy", lambda: undefined)
    _, err = done(podium("submit", "-c", "tiny", "--runs", "good"))
    assert "accuracy of the held-out images is nan" in err
    assert "group" not in err
