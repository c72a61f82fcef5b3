"""Images with a label in each of several columns, from the files to the submission."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import podium as library
from marks import FAST, SLUG, write_competition
from podium.competition.load import load
from templates import copied
from tiny import (
    Podium,
    assert_rebuilt,
    assert_says,
    compared_scores,
    done,
    one_line,
    podium_at,
    train_three,
    write_card,
)

TRAIN = (
    *("train", *FAST, "--model", "test_resnet", "--lr", "1e-2", "--epochs", "10", "--mix", "0", "--crop", "1"),
    *("--fit", "squash", "--mirror", "0", "--views", "none"),
)


@pytest.fixture
def marks(tmp_path: Path, podium: Podium) -> Path:
    write_competition(tmp_path)
    done(podium("folds", "-c", SLUG, "--k", "3"))
    return tmp_path


def three_runs(root: Path) -> None:
    write_competition(root)
    podium_at(root, "folds", "-c", SLUG, "--k", "2")
    train_three(root, TRAIN, FAST)


trained = copied(three_runs)  # The competition with the runs a, b and head.


def test_from_files_to_a_submission(trained: Path, podium: Podium) -> None:
    _, out, _ = podium("data", "-c", SLUG)
    assert_says(out, "a label in each of colour (3 classes), place (4 classes)", "metric   mean_recall, a guess")
    assert load(SLUG, trained).classes[3:] == ("place=0", "place=1", "place=2", "place=10")
    assert "no better than chance" not in (trained / "a.log").read_text()
    out, _ = done(podium("submit", "-c", SLUG, "--runs", "a"))
    written = Path(out.strip())
    submission, truth = (pd.read_csv(path, dtype=str) for path in (written, trained / "solution.csv"))
    assert list(submission.columns) == list(truth.columns)
    assert list(submission["image"]) == list(truth["image"])
    assert (submission["place"] == truth["place"]).mean() > 0.6
    assert (submission["colour"] == truth["colour"]).mean() > 0.6
    assert_rebuilt(podium, written)


@pytest.mark.annex
def test_runs_are_compared_blended_taught_and_read(trained: Path, podium: Podium) -> None:
    assert compared_scores(podium, SLUG)["a"] > 0.6
    for strategy in ("convex", "greedy"):
        done(podium("submit", "-c", SLUG, "--runs", "a", "head", "--blend", strategy, "--name", strategy))
    for strategy in ("equal-calibrated", "geometric"):
        assert "--blend" in one_line(podium("submit", "-c", SLUG, "--runs", "a", "b", "--blend", strategy))
    _, err = done(podium(*TRAIN, "--name", "student", "--teacher", "a", "--folds", "0"))
    assert "no better than chance" not in err
    held_out = library.Run(trained / "runs" / SLUG / "a").held_out()
    targets = load(SLUG, trained).train.set_index("id")["target"]
    assert held_out["target"].tolist() == targets.loc[held_out["id"]].tolist()
    assert np.allclose(held_out.filter(like="place=").sum(axis=1), 1, atol=1e-3)
    done(podium("report", "-c", SLUG))
    done(podium("predict", "-c", SLUG, "a", trained / "data" / "raw" / SLUG / "test" / "80.png"))
    done(podium("explain", "-c", SLUG, "a", "--what", "receptive_field"))
    assert "a label in each of several columns" in one_line(podium("audit", "-c", SLUG, "--suspects"))
    assert "--class-weights" in one_line(podium(*TRAIN, "--name", "w", "--class-weights", "balanced"))


def test_corrections_hold_a_label_for_each_column(marks: Path, podium: Podium) -> None:
    corrections = marks / "mine.csv"
    corrections.write_text("id,label\n0.png,place=10|colour=red\n1.png,drop\n")
    done(podium("folds", "-c", SLUG, "--force", "--corrections", corrections))
    train = load(SLUG, marks).train.set_index("id")["target"]
    assert train["0.png"] == "colour=red|place=10"
    assert "1.png" not in train.index
    for label, problem in {
        "place=1": "is not one label for each of 2 columns",
        "place=1|place=2": "is not one label for each of 2 columns",
        "place=1|colour=rot": "no class 'colour=rot'; did you mean colour=red?",
    }.items():
        corrections.write_text(f"id,label\n0.png,{label}\n")
        assert problem in one_line(podium("folds", "-c", SLUG, "--corrections", corrections))


def test_a_wrong_mark_does_not_turn_marks_into_labels(marks: Path, podium: Podium) -> None:
    table = marks / "data" / "raw" / SLUG / "train.csv"
    rows = pd.read_csv(table, dtype=str).assign(place="0", colour="1")
    rows.loc[3, "place"] = "2"
    rows.to_csv(table, index=False)
    assert "line 5: '2' in the column of a class is neither 0 nor 1" in one_line(podium("data", "-c", SLUG))
    card = write_card(marks, 'metric = "roc_auc"', SLUG)  # a metric of marks: even many others are mistakes
    rows.assign(place="2").to_csv(table, index=False)
    assert "line 2: '2' in the column of a class is neither 0 nor 1" in one_line(podium("data", "-c", SLUG))
    rows.to_csv(table, index=False)
    card.write_text('task = "several_targets"')
    out, _ = done(podium("data", "-c", SLUG))
    assert "colour (1 classes), place (2 classes)" in out
