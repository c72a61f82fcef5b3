"""podium import: predictions from elsewhere become a run, and blend like any other; what does not fit is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import podium as library
from bars import write_competition as write_bars
from podium.competition.load import load
from podium.folds.folds_csv import read_folds
from podium.saved_runs.import_predictions import import_predictions
from podium.saved_runs.run_folder import Run
from several_labels import write_competition as write_stripes
from tiny import Podium, assert_says, done, one_line, run_of, write_image
from whales import SLUG as WHALES
from whales import UNKNOWN, write_whale_card, write_whales

CLASSES = ["blue", "green", "lonely", "red"]
HERE = ("-c", "tiny")


def tables_of(root: Path, sharpness: float = 2.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns out-of-fold and test predictions that are better than chance, with the folds of folds.csv."""
    competition, rng = load("tiny", root), np.random.default_rng(0)
    train = competition.train
    logits = rng.normal(0, 1, (len(train), 4)) + sharpness * np.array(train["target"].to_numpy()[:, None] == CLASSES)
    held_out = pd.DataFrame({"id": train["id"], "fold": read_folds(competition).of_image})
    held_out[CLASSES] = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    test = pd.DataFrame({"id": competition.test["id"]})
    test[CLASSES] = rng.dirichlet(np.ones(4), len(test))
    return held_out, test


def write(root: Path, held_out: pd.DataFrame, test: pd.DataFrame) -> tuple[str, ...]:
    """Writes both tables; returns the words of the command."""
    held_out.to_csv(root / "oof.csv", index=False)
    test.to_csv(root / "test.csv", index=False)
    return ("import", "team", *HERE, "--oof", str(root / "oof.csv"), "--test", str(root / "test.csv"))


def test_imported_predictions_are_those_of_the_tables(tiny: Path, podium: Podium) -> None:
    held_out, test = tables_of(tiny)
    shuffled = test.sample(frac=1, random_state=0)
    out, err = done(podium(*write(tiny, held_out, shuffled), "--note", "boosted trees"))
    assert "over 2 of 2 folds" in out
    assert "warning" not in err
    run = run_of(tiny, "team")
    kept = library.Run(run.path).held_out().set_index("id")[CLASSES]
    expected = held_out.set_index("id")[CLASSES].loc[kept.index]
    np.testing.assert_allclose(kept, expected, atol=1e-6)
    assert {path.name for path in run.path.rglob("*") if path.is_file()} == {"recipe.json", "oof.npz", "test.npz"}
    assert run.recipe["imported"]["note"] == "boosted trees"
    assert run.recipe["imported"]["folds"] == "same"
    tested = library.load("tiny", tiny), [library.Run(run.path)]
    frame = library.frame(*tested).query("role == 'test'")
    assert frame["id"].tolist() == test["id"].tolist()
    np.testing.assert_allclose(frame[CLASSES], test[CLASSES], atol=1e-6)


def test_predictions_of_a_run_that_are_imported_make_the_same_submission(two_runs: Path, podium: Podium) -> None:
    """All that a submission needs of a run is what it predicts."""
    done(podium("submit", *HERE, "--runs", "good", "--name", "own"))
    frame = library.Run(two_runs / "runs/tiny/good").frame()
    done(podium(*write(two_runs, frame[frame["role"] == "train"], frame[frame["role"] == "test"])))
    out, _ = done(podium("submit", *HERE, "--runs", "team"))
    assert Path(out.strip()).read_text() == (two_runs / "submissions/tiny/own.csv").read_text()


@pytest.mark.annex
def test_a_submission_that_contains_an_import_is_rebuilt_and_tells_its_source(two_runs: Path, podium: Podium) -> None:
    words = write(two_runs, *tables_of(two_runs))
    done(podium(*words, "--note", "from Ada's notebook"))
    out, _ = done(podium("submit", *HERE, "--runs", "good,team", "--blend", "equal"))
    csv = Path(out.strip())
    content = csv.read_bytes()
    csv.unlink()
    lineage = json.loads(csv.with_suffix(".json").read_text())
    imported = lineage["runs"][1]["recipe"]["imported"]
    assert lineage["runs"][1]["folds"][0]["weights_sha256"] == imported["sha256"]
    done(podium("submit", "--from", csv.with_suffix(".json")))
    assert csv.read_bytes() == content
    out, _ = done(podium("lineage", csv))
    assert_says(out, f"team (oof {imported['oof_sha256'][:16]}", "from Ada's notebook")
    done(podium("compare", *HERE))
    out, _ = done(podium("compare", *HERE, "--json"))
    (row,) = [row for row in json.loads(out) if row["run"] == "team"]
    assert (row["model"], row["left_out"], row["parameters"]) == ("import", "", None)
    done(podium("report", *HERE))
    assert "<h2>Confusion matrix</h2>" in (two_runs / "runs/tiny/team/report.html").read_text()
    # another import under the same name
    other = write(two_runs, *tables_of(two_runs, 1.0))
    (two_runs / "runs/tiny/team").rename(two_runs / "runs/tiny/kept")
    done(podium(*other))
    csv.unlink()
    assert "restore the run" in one_line(podium("submit", "--from", csv.with_suffix(".json")))


# --- folds -------------------------------------------------------------------------------------------


def renumbered(folds: "pd.Series[int]") -> "pd.Series[Any]":
    return folds.map({0: "b", 1: "a", -1: "c"})


def rotated(folds: "pd.Series[int]") -> "pd.Series[int]":
    return pd.Series(np.roll(folds, 1), folds.index)


@pytest.mark.parametrize(
    ("column", "flags", "state"),
    [(renumbered, (), "same"), (rotated, (), "other"), (None, (), "unknown"), (None, ("--same-folds",), "declared")],
)
def test_folds_are_trusted_only_if_they_are_known_to_be_the_same(
    two_runs: Path, podium: Podium, column: Any, flags: tuple[str, ...], state: str
) -> None:
    held_out, test = tables_of(two_runs)
    held_out = held_out.drop(columns="fold") if column is None else held_out.assign(fold=column(held_out["fold"]))
    _, err = done(podium(*write(two_runs, held_out, test), *flags))
    assert run_of(two_runs, "team").recipe["imported"]["folds"] == state
    is_trusted = state in ("same", "declared")
    assert ("warning: team was imported" in err) != is_trusted
    _, out, err = podium("submit", *HERE, "--name", "all")
    lineage = json.loads(Path(out.strip()).with_suffix(".json").read_text())
    assert ("team (" in err) != is_trusted  # left out
    if not is_trusted:
        assert "team" not in {run["run"] for run in lineage["runs"]}
        out, err = done(podium("submit", *HERE, "--runs", "team", "good"))
        assert_says(err, "warning: team was imported", "too good")
        runs = json.loads(Path(out.strip()).with_suffix(".json").read_text())["runs"]
        assert any("too good" in run.get("doubt", "") for run in runs if run["run"] == "team")


def test_declared_folds_that_the_column_contradicts_are_refused(tiny: Path, podium: Podium) -> None:
    held_out, test = tables_of(tiny)
    words = write(tiny, held_out.assign(fold=rotated(held_out["fold"])), test)
    assert "--same-folds is not true" in one_line(podium(*words, "--same-folds"))
    assert not (tiny / "runs/tiny/team").exists()


# --- what does not fit -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda table: table.iloc[1:], "no row for the training image '000'"),
        (lambda table: pd.concat([table, table.iloc[:1]]), "id '000' appears twice"),
        (lambda table: table.assign(id=["0", *table["id"][1:]]), "no training image has the id '0'"),
        (lambda table: table.drop(columns="blue"), "no column for the class 'blue'"),
        (lambda table: table[["id"]].assign(predict="red"), "for the class 'blue'; its columns are id, predict"),
        (lambda table: table.assign(red="red"), "neither words nor gaps can be blended; save what predict_proba"),
        (lambda table: table.assign(red=-1.0), "is no probability"),
        (lambda table: table.rename(columns={"id": "name"}), "no column 'id'"),
    ],
)
def test_tables_that_do_not_fit_are_refused_with_the_place(
    tiny: Path, podium: Podium, change: Any, problem: str
) -> None:
    held_out, test = tables_of(tiny)
    message = one_line(podium(*write(tiny, change(held_out), test)), problem)
    assert str(tiny / "oof.csv") in message
    assert not (tiny / "runs/tiny/team").exists()


def test_test_images_need_predictions_too(tiny: Path, podium: Podium) -> None:
    held_out, test = tables_of(tiny)
    assert "no row for the test image" in one_line(podium(*write(tiny, held_out, test.iloc[1:])))
    assert "--test" in one_line(podium("import", "team", *HERE, "--oof", tiny / "oof.csv"))


def test_probabilities_that_do_not_sum_to_1_are_divided_by_their_sum(tiny: Path, podium: Podium) -> None:
    held_out, test = tables_of(tiny)
    percents = held_out.assign(**{name: 100 * held_out[name] for name in CLASSES})
    _, err = done(podium(*write(tiny, percents, test)))
    assert "divided by their sum" in err
    assert run_of(tiny, "team").out_of_fold(0).probs.sum(1) == pytest.approx(1)


def test_a_name_that_is_taken_is_refused(two_runs: Path, podium: Podium) -> None:
    words = ["import", "good", *write(two_runs, *tables_of(two_runs))[2:]]
    assert "choose another name" in one_line(podium(*words))


# --- other tasks -------------------------------------------------------------------------------------


def write_two_classes(root: Path, sample: tuple[str, str]) -> None:
    """Makes a competition of cats and dogs without images' content, whose sample has these columns and values."""
    folder = root / "data/raw/pets"
    (folder / "train").mkdir(parents=True)
    (folder / "test").mkdir()
    lines = ["id,label"]
    for number in range(12):
        write_image(folder / "train" / f"t{number}.jpg", (20 * number, 10, 10), number)
        lines.append(f"t{number},{number % 2}")
    for number in range(4):
        write_image(folder / "test" / f"s{number}.jpg", (20 * number, 10, 10), 50 + number)
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    rows = [f"s{number},{sample[1]}" for number in range(4)]
    (folder / "sample_submission.csv").write_text("\n".join([f"id,{sample[0]}", *rows]) + "\n")


def test_of_two_classes_the_column_of_the_sample_is_enough(tmp_path: Path, podium: Podium) -> None:
    write_two_classes(tmp_path, ("label", "0.5"))
    done(podium("folds", "-c", "pets", "--k", "2"))
    competition = library.load("pets", tmp_path)
    truth = competition.train["target"].astype(float)
    held_out = pd.DataFrame({"id": competition.train["id"], "label": 0.1 + 0.8 * truth})
    test = pd.DataFrame({"id": competition.test["id"], "label": [0.9, 0.1, 0.2, 0.3]})
    run = competition.add_predictions("team", held_out, test, note="trees", same_folds=True)
    assert run.score(metric="accuracy") == 1.0
    frame = run.frame()
    tested = frame[frame["role"] == "test"]
    np.testing.assert_allclose(tested["1"], test["label"], atol=1e-6)
    np.testing.assert_allclose(tested["0"] + tested["1"], 1.0, atol=1e-6)
    with pytest.raises(library.PodiumError, match=r"the data frame of oof, line 1: 1.7 .* no probability"):
        competition.add_predictions("high", held_out.assign(label=1.7), test)


def test_numbers_are_taken_as_they_are(tmp_path: Path) -> None:
    write_bars(tmp_path, ["height", "width"])
    (slug,) = (path.name for path in (tmp_path / "data/raw").iterdir())
    competition = library.load(slug, tmp_path)
    truth = competition.targets.values
    numbers = pd.DataFrame(truth, columns=list(competition.classes)).fillna(0) + 0.5
    held_out = numbers.assign(id=competition.train["id"])
    test = pd.DataFrame(0.0, range(len(competition.test)), list(competition.classes)).assign(id=competition.test["id"])
    run = competition.add_predictions("team", held_out, test)
    assert run.score(metric="rmse") == pytest.approx(0.5)
    with pytest.raises(library.PodiumError, match="no column for the number 'width'; its columns are"):
        competition.add_predictions("other", held_out.drop(columns="width"), test)
    with pytest.raises(library.PodiumError, match="'tall' in the column 'width' is no number"):
        competition.add_predictions("other", held_out.assign(width="tall"), test)


def test_several_labels_have_a_probability_each(tmp_path: Path) -> None:
    write_stripes(tmp_path, as_tags=True, count=24, tests=4)
    (slug,) = (path.name for path in (tmp_path / "data/raw").iterdir())
    competition = library.load(slug, tmp_path)
    probs = pd.DataFrame(0.1 + 0.8 * competition.targets.values, columns=list(competition.classes))
    test = pd.DataFrame(0.9, range(4), list(competition.classes)).assign(id=competition.test["id"])
    run = competition.add_predictions("team", probs.assign(id=competition.train["id"]), test)
    assert run.score(metric="log_loss") == pytest.approx(-np.log(0.9), rel=1e-3)
    assert run.frame().query("role == 'test'")[list(competition.classes)].to_numpy() == pytest.approx(0.9)


def test_an_image_of_a_class_that_a_fold_holds_out_whole_counts_as_unknown(tmp_path: Path, podium: Podium) -> None:
    write_whales(tmp_path, images_each=4, singles=2, strangers=48)
    write_whale_card(tmp_path, f'unknown = "{UNKNOWN}"\n')
    competition = library.load(WHALES, tmp_path)
    competition.folds(k=2)
    names = list(competition.classes)
    held_out = pd.DataFrame(np.eye(len(names))[competition.targets.values], columns=names)
    test = pd.DataFrame(1.0, range(len(competition.test)), names).assign(id=competition.test["id"])
    run = competition.add_predictions("team", held_out.assign(id=competition.train["id"]), test, same_folds=True)
    truth = run.held_out()["target"]
    assert set(truth) > {UNKNOWN}
    assert run.score(metric="accuracy") == pytest.approx((truth != UNKNOWN).mean(), abs=0.05)
    done(podium("submit", "-c", WHALES, "--anyway"))


# --- what needs weights ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("predict", *HERE, "team", "IMAGES"),
        pytest.param(("explain", *HERE, "team"), marks=pytest.mark.annex),
        pytest.param(("explain", *HERE, "team", "--regions"), marks=pytest.mark.annex),
        pytest.param(("export", *HERE, "team", "--onnx"), marks=pytest.mark.annex),
        pytest.param(("soup", *HERE, "team", "good"), marks=pytest.mark.annex),
        pytest.param(("verify", *HERE, "team"), marks=pytest.mark.annex),
        ("train", *HERE, "--from", "team", "--name", "more"),
        ("train", *HERE, "--model", "test_vit", "--weights", "none", "--teacher", "team"),
        ("train", *HERE, "--model", "test_vit", "--weights", "none", "--pseudo", "team"),
        ("train", *HERE, "--model", "test_vit", "--weights", "none", "--region", "attention:team"),
        ("train", *HERE, "--model", "test_vit", "--weights", "none", "--name", "team"),
        pytest.param(("kaggle-bundle", *HERE, "--runs", "team"), marks=pytest.mark.annex),
    ],
    ids=lambda words: " ".join(words[:1] + words[3:5]),
)
def test_what_needs_weights_refuses_an_import(two_runs: Path, podium: Podium, words: tuple[str, ...]) -> None:
    done(podium(*write(two_runs, *tables_of(two_runs))))
    images = str(two_runs / "data/raw/tiny/test_image")
    one_line(podium(*(images if word == "IMAGES" else word for word in words)), "predictions from elsewhere")


def test_an_import_that_was_stopped_leaves_no_run(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    held_out, test = tables_of(tiny)
    competition = load("tiny", tiny)
    with monkeypatch.context() as patched:
        patched.setattr("podium.saved_runs.import_predictions.rename_durably", stop)
        with pytest.raises(KeyboardInterrupt):
            import_predictions(competition, "team", held_out, test)
    assert not run_of(tiny, "team").path.exists()
    run = import_predictions(competition, "team", held_out, test)
    assert run.finished() == [0, 1]
    assert [path.name for path in run.path.parent.iterdir()] == ["team"]


def test_a_run_of_which_parts_are_of_another_import_is_refused(two_runs: Path, podium: Podium) -> None:
    done(podium(*write(two_runs, *tables_of(two_runs))))
    run = Run(two_runs / "runs/tiny/team")
    recipe = run.path / "recipe.json"
    content = json.loads(recipe.read_text())
    content["imported"]["sha256"] = "0" * 64
    recipe.write_text(json.dumps(content))
    assert "import the predictions again" in one_line(podium("submit", *HERE, "--runs", "team"))
