"""The comparison of runs: scores on shared images, significance, Kaggle's scores, costs, disagreement."""

import csv as csv_module
import json
import shutil
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from blending.test_select_runs import copy_run
from podium.basics.disk import sha256, write_text
from podium.blending.held_out import collect_held_out
from podium.comparing.compare import compare_runs
from podium.comparing.comparison_text import describe_comparison, shortened
from podium.comparing.pair_tests import COLUMNS as PAIR_COLUMNS
from podium.competition.load import load
from podium.folds.folds_csv import folds_path
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.run_folder import Run
from podium.submissions.kaggle_scores import COLUMNS
from podium.tasks.metrics import evaluate, name_in_compete
from podium.tasks.task import ONE_LABEL
from tiny import Podium, assert_says, done, one_line, run_of

CLASSES = ("blue", "green", "lonely", "red")


def runs_by_name(root: Path) -> pd.DataFrame:
    return compare_runs(load("tiny", root)).set_index("run")


def write_history(csv: Path, *scores: str) -> None:
    """Writes what Kaggle said about submissions of this CSV."""
    fields = {"file": csv.name, "sha256": sha256(csv), "status": "complete"}
    rows = [",".join({**fields, "public_score": score}.get(name, "") for name in COLUMNS) for score in scores]
    write_text(csv.parent / "history.csv", "\n".join([",".join(COLUMNS), *rows, ""]))


def test_runs_are_compared(two_runs: Path, podium: Podium) -> None:
    out, _ = done(podium("compare", "-c", "tiny"))
    scores, costs, recipes, disagreements, pairs = (text.splitlines() for text in out.split("\n\n"))
    columns = ["run", "folds", "accuracy", "±", "log", "loss", "worse", "than", "best", "left", "out"]
    assert scores[0].split() == columns
    assert [line.split()[0] for line in scores[1:3]] == ["good", "idle"]  # the best first
    assert scores[2].endswith("score may be chance")
    assert costs[1].split()[:6] == ["good", "64", "0.2", "M", "5.0", "M"]
    assert recipes[1].split() == ["good", "test_convnext", "0.003", "8"]
    assert pairs[1].split()[:2] == ["good", "idle"]
    assert runs_by_name(two_runs)["loss"].tolist() == ["cross_entropy", "cross_entropy"]
    good, idle = (Run(two_runs / "runs" / "tiny" / name) for name in ("good", "idle"))
    held_out = collect_held_out([good, idle], CLASSES)
    assert f"{evaluate('accuracy', held_out.targets, held_out.probs[0]):.5f}" in scores[1]
    assert f"{evaluate('log_loss', held_out.targets, held_out.probs[1]):.5f}" in scores[2]
    good_classes, idle_classes = held_out.probs.argmax(2)
    assert f"{np.mean(good_classes != idle_classes):.2%}" in disagreements[1]


@pytest.mark.annex
def test_scores_follow_the_order_of_grades_of_today(two_runs: Path, podium: Podium) -> None:
    card = two_runs / "data" / "competitions" / "tiny.toml"
    card.parent.mkdir(exist_ok=True)
    run, spreads = Run(two_runs / "runs" / "tiny" / "idle"), []
    for grades in (("red", "blue", "lonely", "green"), ("blue", "red", "green", "lonely")):
        write_text(card, f'metric = "quadratic_kappa"\ngrades = {list(grades)}\n')
        found = [run.out_of_fold(fold).in_order_of(grades) for fold in run.finished()]
        scores = [evaluate("quadratic_kappa", fold.target, fold.probs) for fold in found]
        spreads.append(np.std(scores, ddof=1))
        assert runs_by_name(two_runs)["fold_spread"]["idle"] == pytest.approx(spreads[-1])
        held_out = collect_held_out([run], grades)
        expected = evaluate("quadratic_kappa", held_out.targets, held_out.probs[0])
        assert runs_by_name(two_runs)["score"]["idle"] == pytest.approx(expected)
        done(podium("report", "-c", "tiny", "--runs", "idle"))
        assert f"<dt>quadratic_kappa</dt><dd>{expected:.4f}" in (run.path / "report.html").read_text()
        done(podium("submit", "-c", "tiny", "--runs", "idle", "--name", "graded"))
        lineage = json.loads((two_runs / "submissions" / "tiny" / "graded.json").read_text())
        assert [fold["score"] for fold in lineage["runs"][0]["folds"]] == pytest.approx(scores)
    assert spreads[0] != spreads[1]


def test_own_augmentations_and_other_views_stand_beside_the_recipe(two_runs: Path, podium: Podium) -> None:
    path = two_runs / "runs" / "tiny" / "good" / "recipe.json"
    recipe = json.loads(path.read_text())
    path.write_text(json.dumps({**recipe, "augment": "salt", "views": "mirror+shifted"}))
    recipes = podium("compare", "-c", "tiny")[1].split("\n\n")[2].splitlines()
    assert recipes[1].endswith("augment salt, views mirror+shifted")
    assert "augment" not in recipes[2]
    (row, _) = json.loads(podium("compare", "-c", "tiny", "--json")[1])
    assert (row["augment"], row["views"]) == ("salt", "mirror+shifted")


def test_the_learning_rate_is_the_one_that_the_folds_have_trained_with(two_runs: Path, podium: Podium) -> None:
    run = run_of(two_runs, "good")
    records = run.history(0)
    run.write_history(0, [replace(records[0], epoch=0, step=0, lr=1e-5), *records])
    usual = f"{run.recipe['lr']:g}"
    recipes = podium("compare", "-c", "tiny")[1].split("\n\n")[2]
    assert f"1e-05 to {usual}" in recipes
    assert recipes.count(f"lr lowered from {usual}") == 1
    rows = {row["run"]: row for row in json.loads(podium("compare", "-c", "tiny", "--json")[1])}
    assert (rows["good"]["lr_least"], rows["good"]["lr"]) == (1e-5, run.recipe["lr"])
    assert rows["idle"]["lr_least"] == rows["idle"]["lr_most"] == rows["idle"]["lr"]


def test_labels_that_have_changed_are_told(two_runs: Path, podium: Podium) -> None:
    assert "have changed" not in podium("compare", "-c", "tiny")[2]
    table = two_runs / "data" / "raw" / "tiny" / "train.csv"
    table.write_text(table.read_text().replace("000,red", "000,blue"))
    err = podium("compare", "-c", "tiny")[2]
    assert f"the training data in {table.parent} (ids, labels or images) have changed since good, idle" in err
    assert "train again" in err


def test_one_run_has_no_table_of_disagreements(two_runs: Path, podium: Podium) -> None:
    out, _ = done(podium("compare", "-c", "tiny", "--runs", "idle"))
    assert "disagree" not in out
    assert "worse than best" not in out
    assert podium("compare", "-c", "tiny", "--except", "good")[1] == out


def test_runs_that_a_submission_leaves_out_come_last_with_their_reason(two_runs: Path) -> None:
    copy_run(two_runs, "good", "twin")
    partial = copy_run(two_runs, "good", "partial")
    shutil.rmtree(partial.fold_folder(1))
    foreign = copy_run(two_runs, "good", "foreign").path / "recipe.json"
    foreign.write_text(json.dumps({**json.loads(foreign.read_text()), "folds_sha256": "0" * 64}))
    runs = runs_by_name(two_runs)
    assert list(runs.index[:2]) == ["good", "twin"]
    assert runs.index[-1] == "idle"
    assert dict(runs["left_out"]) == {
        **{"good": "", "twin": "", "partial": "1 of 2 folds", "foreign": "other folds"},
        "idle": "score may be chance",
    }
    assert dict(runs["images"]) == {"good": 36, "twin": 36, "partial": 18, "foreign": 36, "idle": 36}
    assert runs["score"]["partial"] == partial.score(0, "accuracy")
    assert (runs["gain"][["twin", "partial", "foreign"]] == 0).all()
    assert (runs["gain_high"][["twin", "partial"]] == 0).all()
    assert runs["gain_low"]["idle"] < runs["gain"]["idle"] < runs["gain_high"]["idle"] < 0


def test_a_difference_is_worse_only_if_it_is_more_than_chance(two_runs: Path) -> None:
    copy_run(two_runs, "good", "twin")
    competition = load("tiny", two_runs)
    runs = compare_runs(competition)
    _, *lines = describe_comparison(runs, pd.DataFrame(), pd.DataFrame()).split("\n\n")[0].splitlines()
    assert "  best" in lines[0]
    assert "  not clearly" in lines[1]
    low, high = runs["gain_low"][2], runs["gain_high"][2]
    assert f"{-high:.4f} to {-low:.4f}" in lines[2]


def test_the_comparison_says_what_a_run_has_learned_from(two_runs: Path, podium: Podium) -> None:
    path = copy_run(two_runs, "good", "moved").path / "recipe.json"
    moves = {"pseudo": "good+idle", "clean": "drop", "balance": 0.5, "head": "arcface", "extra_sha256": "0" * 64}
    path.write_text(json.dumps({**json.loads(path.read_text()), **moves}))
    said = "head arcface, balance 0.5, pseudo good+idle, clean drop, images from elsewhere"
    assert dict(runs_by_name(two_runs)["moves"]) == {"moved": said, "good": "", "idle": ""}
    lines = podium("compare", "-c", "tiny")[1].split("\n\n")[2].splitlines()
    (first,) = (number for number, line in enumerate(lines) if line.startswith("moved"))
    assert " ".join(lines[first].split()[4:] + lines[first + 1].split()).startswith(said)


def test_kaggles_score_is_that_of_the_run_alone_with_its_weights_of_today(csv: Path, podium: Podium) -> None:
    root = csv.parents[2]
    assert runs_by_name(root)["public_score"].isna().all()
    blend = Path(podium("submit", "-c", "tiny", "--runs", "good", "idle", "--blend", "equal")[1].strip())
    write_history(blend, "0.11")
    assert runs_by_name(root)["public_score"].isna().all()
    write_history(csv, "0.90", "", "0.91")
    assert dict(runs_by_name(root)["public_score"].dropna()) == {"good": 0.91}
    assert "0.91000" in podium("compare", "-c", "tiny")[1]
    shutil.copy(root / "runs/tiny/idle/fold0/oof.npz", root / "runs/tiny/good/fold0/oof.npz")  # trained again
    (root / "runs/tiny/good/fold0/trained.json").unlink()  # by an older version
    assert runs_by_name(root)["public_score"].isna().all()
    (csv.parent / "history.csv").write_text("my,notes\n1,2\n")
    _, err = done(podium("compare", "-c", "tiny"))
    assert "history.csv has other columns" in err


def test_the_comparison_is_printed_for_programs_too(two_runs: Path, podium: Podium) -> None:
    expected = runs_by_name(two_runs)
    rows = json.loads(podium("compare", "-c", "tiny", "--json")[1])
    lines = list(csv_module.DictReader(StringIO(podium("compare", "-c", "tiny", "--csv")[1])))
    assert [row["run"] for row in rows] == [line["run"] for line in lines] == list(expected.index)
    for row, line in zip(rows, lines, strict=True):
        assert row["log_loss"] == pytest.approx(expected["log_loss"][row["run"]], rel=1e-12)
        assert float(line["log_loss"]) == expected["log_loss"][row["run"]]
    assert rows[0]["public_score"] is None
    assert "not allowed with" in one_line(podium("compare", "-c", "tiny", "--json", "--csv"))


def test_runs_are_compared_without_a_folds_file(two_runs: Path) -> None:
    intervals = ["gain_low", "gain_high"]  # the order of the groups changes the resamples
    expected = runs_by_name(two_runs).drop(columns=intervals)
    folds_path("tiny", two_runs).unlink()
    pd.testing.assert_frame_equal(runs_by_name(two_runs).drop(columns=intervals), expected)


def test_a_run_of_other_classes_has_no_score(two_runs: Path, podium: Podium) -> None:
    for path in copy_run(two_runs, "good", "other").path.glob("fold*/oof.npz"):
        replace(Predictions.load(path, ""), classes=("a", "b", "c", "d")).save(path)
    runs = runs_by_name(two_runs)
    assert runs["left_out"]["other"] == "other classes"
    assert np.isnan(runs["score"]["other"])
    out, _ = done(podium("compare", "-c", "tiny"))
    assert "?" in out.split("\n\n")[3]


def test_the_tables_fit_into_120_columns() -> None:
    names = [f"swin_tiny_patch4_window7_224.ms_in22k_ft_in1k-{number:02d}" for number in range(10)]
    row = {"left_out": "score may be chance", "model": names[0], "folds": 5, "folds_in_all": 5, "metric": "accuracy"}
    scores = {"score": 0.5, "fold_spread": 0.1, "log_loss": 1.5, "gain": -0.1, "gain_low": -0.2, "gain_high": -0.05}
    costs: dict[str, object] = {
        "lr": 1e-4,
        "lr_least": 3.33e-5,
        "lr_most": 6.66e-5,
        "image_size": 224,
        "epochs": 100,
        "parameters": 8e8,
    }
    costs |= {"multiply_adds": 1e12, "predicted_per_s": 1e6, "memory_mb": 80_000}
    costs |= {
        "images_per_s": 1234.5,
        "p": 0.01,
        "seconds": 1e6,
        "seed": 1,
        "linear": False,
        "start": "",
        "loss": "focal",
        "optimizer": "muon",
        "level": "strong",
        "augment": "salt",
        "views": "mirror",
        "is_corrected": True,
        "soup": "",
        "moves": "pseudo first+second, clean soften, region boxes.csv, lora 2, balance 0.5, images from elsewhere",
    }
    rows = [{"run": name, **row, **scores, **costs, "public_score": 0.5} for name in names]
    runs = pd.DataFrame([{**row, "images": 10**number} for number, row in enumerate(rows)])
    pairs = pd.DataFrame([(names[0], name, 10**6, 10**5, 10**5, 0.5, 1.0) for name in names[1:]], columns=PAIR_COLUMNS)
    text = describe_comparison(runs, pd.DataFrame(np.full((10, 10), 0.1234), index=names, columns=names), pairs)
    assert max(map(len, text.splitlines())) <= 120
    assert_says(text, "swin_tin..._in1k-03", "3.33e-05 to 6.66e-05", "lr lowered")


def test_long_names_are_shortened_and_stay_apart() -> None:
    heads = [f"tf_efficientnet_lite{number}-head-64" for number in (0, 2)]
    short = shortened([*heads, "a"])
    assert short["a"] == "a"
    assert len({*short.values()}) == 3
    assert all(len(short[name]) < len(name) for name in heads)
    assert shortened([]) == {}


def test_after_compete_the_next_command_uploads_its_csv(two_runs: Path, podium: Podium) -> None:
    assert "submit -c tiny" in podium("compare", "-c", "tiny")[2].splitlines()[-1]
    best = two_runs / "submissions" / "tiny" / "compete.json"
    best.parent.mkdir(parents=True, exist_ok=True)
    best.write_text("{}")
    assert podium("compare", "-c", "tiny")[2].splitlines()[-1].endswith(f"submit --from {best} --upload")


def test_a_log_loss_says_that_it_is_as_predicted_and_compete_that_it_is_calibrated(
    two_runs: Path, podium: Podium
) -> None:
    out, _ = done(podium("compare", "-c", "tiny"))
    assert "\nlog loss: as predicted; blends and `compete` show it calibrated" in out
    assert name_in_compete("log_loss", ONE_LABEL) == "log_loss, calibrated"
    assert name_in_compete("accuracy", ONE_LABEL) == "accuracy"
