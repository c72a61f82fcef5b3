"""Images with several labels, from the files to the submission."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, roc_auc_score

import podium as library
from podium.blending.choose_decision import choose_decision
from podium.competition.load import load
from podium.tasks.metrics import evaluate
from second_round import first_of
from several_labels import COLOURS, FAST, SLUG, write_competition
from templates import template
from tiny import Podium, assert_rebuilt, compared_scores, done, one_line, podium_at, train_three, write_card

TRAIN = ("train", *FAST, "--model", "test_resnet", "--lr", "1e-2", "--epochs", "8", "--mix", "0")


@pytest.fixture(params=first_of(["tags"], ["tags", "columns"]))
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def three_runs(root: Path, form: str) -> None:
    write_competition(root, as_tags=form == "tags")
    podium_at(root, "folds", "-c", SLUG, "--k", "2")
    train_three(root, TRAIN, FAST)


@pytest.fixture
def stripes(tmp_path: Path, form: str) -> Path:
    """The competition with the runs a, b and head."""
    shutil.copytree(template(three_runs, form), tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.annex
def test_from_files_to_a_submission(stripes: Path, form: str, podium: Podium) -> None:
    _, out, _ = podium("data", "-c", SLUG)
    assert "several labels for each image" in out
    assert "no better than chance" not in (stripes / "a.log").read_text()
    out, _ = done(podium("submit", "-c", SLUG, "--runs", "a"))
    csv = Path(out.strip())
    submission = pd.read_csv(csv, dtype=str, keep_default_na=False)
    sample = pd.read_csv(stripes / "data/raw/stripes/sample_submission.csv", dtype=str)
    assert list(submission.columns) == list(sample.columns)
    assert list(submission["image"]) == list(sample["image"])
    truth = pd.read_csv(stripes / "solution.csv", dtype=str, keep_default_na=False)
    if form == "tags":
        answered = [set(cell.split()) for cell in submission["labels"]]
        assert all(labels <= set(COLOURS) for labels in answered)
        right = float(
            np.mean([labels == set(cell.split()) for labels, cell in zip(answered, truth["labels"], strict=True)])
        )
    else:
        probs = submission[list(COLOURS)].astype(float)
        assert ((probs >= 0) & (probs <= 1)).all(axis=None)
        assert not np.allclose(probs.sum(axis=1), 1)
        right = float(((probs >= 0.5).to_numpy() == (truth[list(COLOURS)] == "1").to_numpy()).mean())
    assert right > 0.6
    scored = podium("score", csv, "--solution", stripes / "solution.csv")
    if form == "tags":
        tables = (truth["labels"], submission["labels"])
        true, given = ([[colour in cell.split() for colour in COLOURS] for cell in cells] for cells in tables)
        metric, expected = "macro_f1", f1_score(true, given, average="macro")
    else:
        metric, expected = "roc_auc", roc_auc_score(truth[list(COLOURS)].astype(int), probs, average="macro")
    assert json.loads(scored[1]) == {"metric": metric, "score": pytest.approx(expected)}
    assert_rebuilt(podium, csv)


@pytest.mark.annex
def test_runs_are_compared_blended_resumed_and_read(stripes: Path, podium: Podium) -> None:
    assert compared_scores(podium, SLUG)["a"] > 0.6
    _, err = done(podium("submit", "-c", SLUG, "--runs", "a", "b"))
    assert "calibrated" not in err
    assert "temperatures are for one label" in one_line(
        podium("submit", "-c", SLUG, "--runs", "a", "b", "--blend", "equal-calibrated")
    )
    done(podium("train", *TRAIN[1:], "--name", "student", "--teacher", "a", "--folds", "0"))
    held_out = library.Run(stripes / "runs" / SLUG / "a").held_out()
    truth = load(SLUG, stripes).train.set_index("id")["target"]
    assert held_out["target"].tolist() == truth.loc[held_out["id"]].tolist()
    out, err = done(podium("report", "-c", SLUG))
    assert "one page for all" in err
    assert Path(out.strip()).exists()
    picture = stripes / "data" / "raw" / SLUG / "test" / "60.png"
    done(podium("predict", "-c", SLUG, "a", picture))
    done(podium("explain", "-c", SLUG, "a", "--what", "receptive_field"))
    assert "several" in one_line(podium("audit", "-c", SLUG, "--suspects"))
    assert "several labels" in one_line(podium(*TRAIN, "--name", "w", "--class-weights", "balanced"))


@pytest.mark.parametrize(("kind", "may_be_blank"), [("tags", False), ("tags, one blank", True), ("columns", True)])
def test_answers_are_scored_as_the_cells_of_the_submission_hold_them(
    tmp_path: Path, kind: str, may_be_blank: bool
) -> None:
    write_competition(tmp_path, as_tags=kind != "columns")
    if "blank" in kind:
        table = tmp_path / "data" / "raw" / SLUG / "train.csv"
        rows = pd.read_csv(table, dtype=str)
        rows.loc[3, "labels"] = ""
        rows.to_csv(table, index=False)
    competition = load(SLUG, tmp_path)
    targets, form = competition.targets, competition.answer_form
    assert targets.may_be_blank == may_be_blank
    probs = np.random.default_rng(0).random((len(targets), len(COLOURS))) * 0.65  # many rows without a half
    assert (probs < 0.5).all(1).sum() > 10
    if kind != "columns":
        written = form.read([pd.Series(column, dtype=object) for column in zip(*form.write(probs), strict=True)])
        for metric in ("macro_f1", "samples_f1", "micro_f2", "accuracy"):
            assert evaluate(metric, targets, probs) == evaluate(metric, targets, written)
    blank = targets.answers(probs).sum(1) == 0
    assert blank.any() == may_be_blank
    assert (competition.answers_of(probs).values == targets.answers(probs)).all()


@pytest.mark.parametrize("loss", first_of(["asymmetric"], ["focal", "asymmetric", "poly"]))
def test_every_loss_learns(tmp_path: Path, loss: str, podium: Podium) -> None:
    write_competition(tmp_path, as_tags=False)
    done(podium("folds", "-c", SLUG, "--k", "3"))
    _, err = done(podium(*TRAIN, "--folds", "0", "--loss", loss, "--smoothing", "0"))
    assert "no better than chance" not in err


def test_corrections_may_name_several_labels(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path, as_tags=True)
    corrections = tmp_path / "mine.csv"
    corrections.write_text("id,label\n0.png,red|blue\n1.png,drop\n")
    done(podium("folds", "-c", SLUG, "--corrections", corrections))
    train = load(SLUG, tmp_path).train.set_index("id")["target"]
    assert train["0.png"] == "blue|red"
    assert "1.png" not in train.index
    corrections.write_text("id,label\n0.png,red|bleu\n")
    one_line(
        podium("folds", "-c", SLUG, "--corrections", corrections),
        "no class 'bleu'; did you mean blue?",
        "| stands between several labels",
    )


def test_thresholds_are_fitted_written_and_rebuilt(
    tmp_path: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(template(three_runs, "tags"), tmp_path, dirs_exist_ok=True)
    write_card(tmp_path, 'metric = "samples_f1"\n', SLUG)

    def choose_and_take(*arguments: Any) -> Any:
        judged, decided = choose_decision(*arguments)
        return replace(judged, is_taken=True), decided

    monkeypatch.setattr("podium.submissions.choose_steps.choose_decision", choose_and_take)
    out, err = done(podium("submit", "-c", SLUG, "--runs", "a"))
    assert "decision: thresholds for samples_f1" in err
    csv = Path(out.strip())
    content, recorded = csv.read_bytes(), json.loads(csv.with_suffix(".json").read_text())["decision"]
    assert len(recorded["numbers"]) == len(COLOURS)
    csv.unlink()
    done(podium("submit", "--from", csv.with_suffix(".json")))
    assert csv.read_bytes() == content
