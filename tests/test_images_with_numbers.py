"""Images with one number, or several, from the files to the submission."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import podium as library
from bars import COLUMNS, FAST, SLUG, write_competition
from by_array import targets_of
from podium.competition.load import load
from podium.tasks.metrics import evaluate
from second_round import first_of
from templates import template
from tiny import Podium, assert_rebuilt, assert_says, compared_scores, done, one_line, podium_at, train_three

TRAIN = (
    *("train", *FAST, "--model", "test_resnet", "--lr", "1e-2", "--epochs", "8", "--mix", "0", "--crop", "1"),
    *("--fit", "squash", "--views", "none"),
)


def three_runs(root: Path, columns: str) -> None:
    write_competition(root, COLUMNS[columns])
    podium_at(root, "folds", "-c", SLUG, "--k", "3")
    train_three(root, TRAIN, FAST)


@pytest.fixture(params=first_of(["two"], ["one", "two"]))
def bars(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The competition with the runs a, b and head."""
    shutil.copytree(template(three_runs, request.param), tmp_path, dirs_exist_ok=True)
    return tmp_path


def share_explained(submission: pd.DataFrame, truth: pd.DataFrame) -> float:
    columns = list(truth.columns[1:])
    return evaluate("r2", targets_of(truth[columns].to_numpy(float)), submission[columns].to_numpy(float))


@pytest.mark.annex
def test_from_files_to_a_submission(bars: Path, podium: Podium) -> None:
    _, out, _ = podium("data", "-c", SLUG)
    assert_says(out, "numbers  height from ", "metric   rmse, a guess")
    log = (bars / "a.log").read_text()
    assert "no better than chance" not in log
    assert "smoothing" not in log
    assert "loss (squared error, in deviations)" in log
    out, err = done(podium("submit", "-c", SLUG, "--runs", "a"))
    written = Path(out.strip())
    submission, truth = pd.read_csv(written), pd.read_csv(bars / "solution.csv")
    assert list(submission.columns) == list(truth.columns)
    assert list(submission["image"]) == list(truth["image"])
    assert share_explained(submission, truth) > 0.6
    lineage = json.loads(written.with_suffix(".json").read_text())
    assert lineage["estimate"]["rmse"] > 0
    table = pd.read_csv(bars / "data" / "raw" / SLUG / "train.csv")
    for column in truth.columns[1:]:  # no answer is outside of what training has seen
        assert submission[column].between(table[column].min(), table[column].max()).all()
    assert lineage["decision"]["kind"] == "clip_numbers"
    assert "range of training" in err
    out, _ = done(podium("score", written, "--solution", bars / "solution.csv"))
    columns = list(truth.columns[1:])
    rmse = evaluate("rmse", targets_of(truth[columns].to_numpy(float)), submission[columns].to_numpy(float))
    assert json.loads(out) == {"metric": "rmse", "score": pytest.approx(rmse)}
    assert_rebuilt(podium, written)


@pytest.mark.annex
def test_runs_are_compared_blended_taught_and_read(bars: Path, podium: Podium) -> None:
    assert set(compared_scores(podium, SLUG)) == {"a", "b", "head"}
    compared = podium("compare", "-c", SLUG)[1]
    assert not any(words in compared for words in ("log loss", "McNemar", "right"))
    assert all(words in compared for words in ("A closer", "B closer", "sign test"))
    for strategy in ("convex", "greedy"):
        out, _ = done(podium("submit", "-c", SLUG, "--runs", "a", "head", "--blend", strategy, "--name", strategy))
        assert share_explained(pd.read_csv(out.strip()), pd.read_csv(bars / "solution.csv")) > 0.6
    for strategy in ("equal-calibrated", "geometric"):
        assert "--blend" in one_line(podium("submit", "-c", SLUG, "--runs", "a", "b", "--blend", strategy))
    _, err = done(podium(*TRAIN, "--name", "student", "--teacher", "a", "--folds", "0"))
    assert "no better than chance" not in err
    run = library.Run(bars / "runs" / SLUG / "a")
    targets = load(SLUG, bars).train.set_index("id")["target"]
    held_out = run.held_out()
    assert [text.split("|")[0] for text in held_out["target"]] == [
        text.split("|")[0] for text in targets.loc[held_out["id"]]
    ]
    done(podium("report", "-c", SLUG))
    picture = bars / "data" / "raw" / SLUG / "test" / "60.png"
    out, _ = done(podium("predict", "-c", SLUG, "a", picture))
    assert "height" in out
    done(podium("explain", "-c", SLUG, "a", "--what", "receptive_field"))
    assert "numbers" in one_line(podium("audit", "-c", SLUG, "--suspects"))
    assert "--loss" in one_line(podium(*TRAIN, "--name", "w", "--loss", "focal"))
    assert "--class-weights" in one_line(podium(*TRAIN, "--name", "w", "--class-weights", "balanced"))


def test_folds_hold_numbers_of_all_sizes_and_keep_groups(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path, COLUMNS["one"], count=200, tests=4)
    table = tmp_path / "data" / "raw" / SLUG / "train.csv"
    rows = pd.read_csv(table, dtype=str)
    rows["who"] = [f"p{number // 3}" for number in range(len(rows))]
    rows.to_csv(table, index=False)
    done(podium("folds", "-c", SLUG, "--k", "4"))
    path = tmp_path / "data" / "prepared" / SLUG / "folds.csv"
    folds = pd.read_csv(path)
    assert (folds["fold"] >= 0).all()
    order = folds["target"].rank(method="first").to_numpy()
    for fold in range(4):  # each tenth of the numbers has its share in every fold
        assert np.bincount((order[folds["fold"] == fold] - 1).astype(int) // 20).tolist() == [5] * 10
    done(podium("folds", "-c", SLUG, "--k", "4", "--group", "who", "--force"))
    folds = pd.read_csv(path).merge(rows[["image", "who"]], left_on="id", right_on="image")
    assert folds.groupby("who")["fold"].nunique().max() == 1
    done(podium("folds", "-c", SLUG, "--verify"))


def test_numbers_do_not_depend_on_their_unit(tmp_path: Path, podium: Podium) -> None:
    """A metre or a millimetre: the same network learns the same."""
    scores = []
    for factor in (1, 1000):
        root = tmp_path / str(factor)
        write_competition(root, COLUMNS["one"])
        for name in ("train.csv", "sample_submission.csv"):
            path = root / "data" / "raw" / SLUG / name
            rows = pd.read_csv(path)
            rows["height"] = rows["height"] / 1000 * factor
            rows.to_csv(path, index=False)
        done(podium("--root", root, "folds", "-c", SLUG, "--k", "3"))
        # Rounding errors grow with every step, and the faster, the larger the steps are.
        done(podium("--root", root, *TRAIN, "--epochs", "2", "--lr", "1e-4", "--folds", "0"))
        scores.append(library.Run(root / "runs" / SLUG / "test_resnet").score() / factor)
    assert scores[1] == pytest.approx(scores[0], rel=0.01)


def test_a_column_without_any_number_is_refused(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path, COLUMNS["two"])
    table = tmp_path / "data" / "raw" / SLUG / "train.csv"
    pd.read_csv(table, dtype=str).assign(width="").to_csv(table, index=False)
    assert "train.csv: no number in the column 'width'" in one_line(podium("data", "-c", SLUG))


def test_corrections_hold_numbers(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path, COLUMNS["two"])
    corrections = tmp_path / "mine.csv"
    corrections.write_text("id,label\n0.png,1500|2.5\n1.png,drop\n")
    done(podium("folds", "-c", SLUG, "--corrections", corrections))
    train = load(SLUG, tmp_path).train.set_index("id")["target"]
    assert train["0.png"] == "1500|2.5"
    assert "1.png" not in train.index
    for label in ("red|1", "1500", "|", "nan|1"):
        corrections.write_text(f"id,label\n0.png,{label}\n")
        assert "is not height|width; write numbers" in one_line(
            podium("folds", "-c", SLUG, "--corrections", corrections)
        )
