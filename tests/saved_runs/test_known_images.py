"""Weights that have seen held-out images: recorded, said wherever the score is shown, and left out of blends."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from podium.competition.find.csv_files import read_table
from podium.saved_runs.known_images import doubt_about_score, folds_seen_before
from templates import template
from tiny import FAST, Podium, assert_says, done, podium_at, run_of, tiny_with_folds

TRAIN = ("train", *FAST, "--model", "test_vit", "--epochs", "1", "--lr", "3e-3")
SEEN = "had seen the held-out images of"


def with_a_run(root: Path) -> None:
    tiny_with_folds(root)
    with (root / "run.log").open("w") as log, contextlib.redirect_stderr(log):
        podium_at(root, *TRAIN)


@pytest.fixture
def first(tiny: Path) -> Path:
    """Returns the weights of fold 0 of a run."""
    shutil.copytree(template(with_a_run), tiny, dirs_exist_ok=True)
    assert "seen" not in (tiny / "run.log").read_text()
    return run_of(tiny).weights_path(0)


@pytest.mark.annex
def test_a_run_from_a_folds_weights_is_doubted_everywhere(first: Path, tiny: Path, podium: Podium) -> None:
    _, err = done(podium(*TRAIN, "--name", "again", "--weights", first))
    assert_says(err, "is the model of fold 0 of test_vit", "--from test_vit")
    again = run_of(tiny, "again")
    assert again.recipe["weights_have_seen"] == {"run": "test_vit", "unseen_folds": [0]}
    assert folds_seen_before(again) == [1]
    out, err = done(podium("compare", "-c", "tiny"))
    assert f"what again learned from {SEEN} fold 1" in err
    assert "knew held-out images" in out
    _, err = done(podium("submit", "-c", "tiny", "--anyway"))
    assert "left out: again (knew held-out images)" in err
    out, err = done(podium("submit", "-c", "tiny", "--anyway", "--runs", "again"))
    assert f"warning: what again learned from {SEEN} fold 1" in err
    lineage = Path(out.strip()).with_suffix(".json")
    assert SEEN in json.loads(lineage.read_text())["runs"][0]["doubt"]
    assert SEEN in podium("lineage", lineage)[1]
    done(podium("report", "-c", "tiny"))
    assert SEEN in (again.path / "report.html").read_text()
    assert SEEN not in (run_of(tiny).path / "report.html").read_text()


def test_the_fold_of_the_weights_itself_is_honest(first: Path, tiny: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--name", "same", "--weights", first, "--folds", "0"))
    assert doubt_about_score(run_of(tiny, "same")) == ""
    done(podium(*TRAIN, "--name", "same", "--weights", first, "--folds", "1"))
    assert folds_seen_before(run_of(tiny, "same")) == [1]


def test_no_fold_is_honest_on_other_folds_or_from_unknown_or_doubted_weights(
    first: Path, tiny: Path, podium: Podium
) -> None:
    done(podium(*TRAIN, "--name", "doubted", "--weights", first))
    weights = run_of(tiny, "doubted").weights_path(0)
    done(podium(*TRAIN, "--name", "third", "--weights", weights, "--folds", "0"))
    assert folds_seen_before(run_of(tiny, "third")) == [0]
    copy = tiny / "copy.safetensors"
    copy.write_bytes(first.read_bytes())
    done(podium("folds", "-c", "tiny", "--k", "3", "--force"))
    done(podium(*TRAIN, "--name", "other", "--weights", copy, "--folds", "0"))
    assert folds_seen_before(run_of(tiny, "other")) == [0]
    for name in ("test_vit", "doubted", "third", "other"):
        run_of(tiny, name).path.rename(tiny / name)
    _, err = done(podium(*TRAIN, "--name", "unknown", "--weights", copy, "--folds", "0"))
    assert "trained by Podium on these classes" in err
    assert folds_seen_before(run_of(tiny, "unknown")) == [0]


def test_in_a_split_by_time_the_later_folds_are_unseen(tiny: Path, podium: Podium) -> None:
    path = tiny / "data" / "prepared" / "tiny" / "folds.csv"
    rows = read_table(path)
    fold = (rows.index.to_series() - rows.index[0]) % 4 - 1  # a quarter comes before the first fold
    rows.assign(fold=fold, trained_from=fold + 1).to_csv(path, index=False)
    done(podium(*TRAIN))
    for of, seen in ((0, []), (1, [0]), (2, [0, 1])):
        _, err = done(podium(*TRAIN, "--name", f"from{of}", "--weights", run_of(tiny).weights_path(of)))
        assert (f"is the model of fold {of} of test_vit, which has seen" in err) == bool(seen)
        assert ("the held-out images of earlier folds" in err) == (of == 1)
        assert folds_seen_before(run_of(tiny, f"from{of}")) == seen
