"""Images with one number, or several, from the files to the submission."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import podium as library
from bars import COLUMNS, FAST, SLUG, write_competition
from by_array import targets_of
from extension_file import write_extension
from podium.competition.load import load
from podium.models.model_file import read_spec
from podium.tasks.metrics import evaluate
from podium.training.context import open_context
from podium.training.learner import Learner
from podium.training.learner_state import learner_state, restore_learner
from second_round import first_of
from templates import template
from tiny import Podium, assert_rebuilt, assert_says, compared_scores, done, one_line, podium_at, train_three
from training.learners import plan_of_task

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
    assert "loss (in deviations)" in log
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


# --- how they are learned ----------------------------------------------------------------------------


@pytest.fixture
def folds(tmp_path: Path, podium: Podium) -> Path:
    """The competition of two numbers with its folds."""
    write_competition(tmp_path, COLUMNS["two"])
    done(podium("folds", "-c", SLUG, "--k", "3"))
    return tmp_path


@pytest.mark.parametrize("words", [("--target-scale", "log1p"), ("--target-scale", "rank"), ("--loss", "poisson")])
def test_on_every_scale_answers_are_numbers_in_their_own_unit(
    folds: Path, podium: Podium, words: tuple[str, str]
) -> None:
    done(podium(*TRAIN, *words, "--folds", "0", "--name", "tuned"))
    names = ["tuned"]
    if "--loss" not in words:  # a frozen head has one loss
        names.append("head")
        done(podium("train", *FAST, "--model", "test_resnet", *words, "--folds", "0", "--linear", "--name", "head"))
    for name in names:
        run = library.Run(folds / "runs" / SLUG / name)
        known, scale = run.out_of_fold(0), words[1].replace("poisson", "log1p")
        assert read_spec(run.weights_path(0)).target_scale == scale
        assert evaluate("r2", known.target, known.probs) > 0
        assert known.probs[:, 0].mean() == pytest.approx(22_000, rel=0.3)
        assert known.probs[:, 1].mean() == pytest.approx(2.2, rel=0.3)
    out, _ = done(podium("submit", "-c", SLUG, "--runs", "tuned"))
    assert share_explained(pd.read_csv(out.strip()), pd.read_csv(folds / "solution.csv")) > 0


def test_a_training_on_a_scale_resumes_to_the_bit(folds: Path) -> None:
    options = {"model": "test_resnet", "loss": "huber", "target_scale": "rank"}
    with open_context(plan_of_task(folds, SLUG, **options)) as context:
        whole, first, second = (Learner(context, fold=0) for _ in range(3))
        numbers = torch.from_numpy(context.images.targets.values[context.images.training_rows(0)[:8]])
    images = torch.randint(0, 256, (8, 32, 32, 3), dtype=torch.uint8)
    for learner, steps in ((whole, 4), (first, 2)):
        for _ in range(steps):
            learner.step(images, numbers)
    restore_learner(second, *learner_state(first))
    for _ in range(2):
        second.step(images, numbers)
    pairs = zip(whole.model.state_dict().values(), second.model.state_dict().values(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)
    assert whole.spec == second.spec
    assert len(whole.spec.curves) == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--loss", "poisson"), "--loss poisson is for numbers from 0 on, but the lowest is -2.5; leave it out"),
        (("--target-scale", "log1p"), "--target-scale log1p is for numbers from 0 on, but the lowest is -2.5"),
        (("--loss", "quantile"), "--loss quantile and --quantile need each other"),
        (("--quantile", "0.5"), "--loss quantile and --quantile need each other"),
        (("--loss", "poisson", "--target-scale", "rank"), "leave out one of them"),
        (("--target-weights", "hight:2"), "--target-weights: no column 'hight'; did you mean height?"),
        (("--target-weights", "height=2"), "--target-weights must be COLUMN:WEIGHT, joined by +"),
        (("--loss", "focal"), "or --loss absolute, huber, quantile, poisson; leave that out"),
        (("--loss", "huber", "--linear"), "--linear cannot be combined with --loss"),
    ],
)
def test_what_does_not_suit_the_numbers_is_refused(
    tmp_path: Path, podium: Podium, words: tuple[str, ...], problem: str
) -> None:
    write_competition(tmp_path, COLUMNS["one"])
    table = tmp_path / "data" / "raw" / SLUG / "train.csv"
    rows = pd.read_csv(table)
    rows.assign(height=[-2.5, *rows["height"][1:]]).to_csv(table, index=False)
    done(podium("folds", "-c", SLUG, "--k", "3"))
    assert problem in one_line(podium(*TRAIN, *words))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("words", [("--loss", "huber"), ("--target-scale", "rank"), ("--target-weights", "cat:2")])
def test_labels_have_neither_a_loss_of_numbers_nor_a_scale(tiny: Path, podium: Podium, words: tuple[str, str]) -> None:
    problem = one_line(podium("train", "-c", "tiny", "--model", "test_vit", "--weights", "none", *words))
    assert words[0] in problem
    assert "for numbers, but these images have one label; leave that out" in problem


def test_a_loss_of_ones_own_learns_numbers(folds: Path, podium: Podium) -> None:
    source = """
from podium import extend

@extend.loss
def distances(outputs, numbers):
    return (outputs - numbers).abs().nan_to_num().mean(1)
"""
    write_extension(folds, source)
    out, _ = done(podium(*TRAIN, "--loss", "distances", "--folds", "0", "--epochs", "1"))
    assert "rmse" in out


# --- sums --------------------------------------------------------------------------------------------


def with_a_sum(root: Path) -> Path:
    """Writes three columns, of which the last is the sum of the others; returns the card."""
    write_competition(root, COLUMNS["two"])
    for name in ("data/raw/bars/train.csv", "data/raw/bars/sample_submission.csv"):
        rows = pd.read_csv(root / name)
        rows.assign(width=rows["width"] * 5000, both=rows["height"] + rows["width"] * 5000).to_csv(
            root / name, index=False
        )
    card = root / "data" / "competitions" / f"{SLUG}.toml"
    card.parent.mkdir(parents=True)
    card.write_text('sums = ["both = height + width"]\n')
    return card


def test_a_submission_holds_the_sums_of_the_card(tmp_path: Path, podium: Podium) -> None:
    card = with_a_sum(tmp_path)
    done(podium("folds", "-c", SLUG, "--k", "3"))
    done(podium("train", *FAST, "--model", "test_resnet", "--target-scale", "rank", "--linear", "--name", "head"))
    out, err = done(podium("submit", "-c", SLUG, "--runs", "head"))
    written = Path(out.strip())
    assert "both = height + width holds, and numbers stay in the range of training: height from" in err
    submission, table = pd.read_csv(written), pd.read_csv(tmp_path / "data" / "raw" / SLUG / "train.csv")
    assert (submission["both"] - submission["height"] - submission["width"]).abs().max() < 0.01
    for column in ("height", "width", "both"):
        assert submission[column].between(table[column].min() - 1e-6, table[column].max() + 1e-6).all()
    decision = json.loads(written.with_suffix(".json").read_text())["decision"]
    assert decision["kind"] == "sums"
    assert len(decision["numbers"]) == 12
    assert_rebuilt(podium, written)
    card.write_text("")
    out, _ = done(podium("submit", "-c", SLUG, "--runs", "head", "--name", "without"))
    submission = pd.read_csv(out.strip())
    assert (submission["both"] - submission["height"] - submission["width"]).abs().max() > 10


def test_a_sum_that_training_breaks_stops_every_command(tmp_path: Path, podium: Podium) -> None:
    card = with_a_sum(tmp_path)
    card.write_text('sums = ["height = both + width"]\n')
    problem = one_line(podium("folds", "-c", SLUG, "--k", "3"))
    assert_says(problem, f"{card}: sums: 'height = both + width' does not hold for", " off); correct the table")
