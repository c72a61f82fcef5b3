"""Blending: weights that are right where one knows them, and an estimate that keeps its word."""

import argparse
import json
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podium import PodiumError
from podium.cli import flags
from podium.competition.load import load
from podium.folds.folds_csv import folds_path, read_groups
from podium.metrics import METRICS, evaluate, score_per_image
from podium.submit.blend import WAYS, Blend, HeldOut, convex, fit, greedy, held_out, temperature, tempered, ways
from podium.submit.choose_blend import choose_blend
from podium.training.predictions import Predictions
from podium.training.run_folder import Run
from tiny import Podium, one_line, podium_at, write_competition


def drawn(strengths: tuple[float, ...], images: int, seed: int, classes: int = 8, shared: float = 0.5) -> HeldOut:
    """Runs that know the truth as well as their strength says, and err alike in part; of known temperature 1."""
    draws = np.random.default_rng(seed)
    targets = draws.integers(classes, size=images)
    common = draws.normal(size=(images, classes))
    probs = []
    for strength in strengths:
        logits = shared * common + (1 - shared**2) ** 0.5 * draws.normal(size=(images, classes))
        logits[np.arange(images), targets] += strength
        probs.append(np.exp(strength * logits))  # what Bayes says of such noise
    normed = np.array([each / each.sum(1, keepdims=True) for each in probs])
    return HeldOut(normed, targets, np.arange(images) % 5, np.arange(images))


def test_equal_runs_get_equal_weights_and_a_run_of_noise_gets_none() -> None:
    alike = choose_blend(drawn((2.0, 2.0, 2.0), 3000, 0), "accuracy", 1000)
    assert alike.blend.way == "equal"
    assert alike.blend.weights == pytest.approx((1 / 3,) * 3)
    unlike = choose_blend(drawn((3.0, 2.5, 0.2), 3000, 1), "accuracy", 1000)
    assert unlike.blend.way != "equal"
    assert unlike.blend.weights[2] < 0.1
    found = {each.way: each for each in unlike.judged}
    assert found[unlike.blend.way].between[0] > 0  # better than equal weights, and not by chance


@pytest.mark.parametrize("metric", ["accuracy", "log_loss", "macro_f1", "quadratic_kappa"])
def test_what_is_chosen_is_near_the_best_on_images_that_nobody_has_seen(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podium.submit.choose_blend.RESAMPLES_OF_SLOW", 60)
    strengths = (3.0, 2.0, 0.5)
    verdict, unseen = choose_blend(drawn(strengths, 1500, 2), metric, 50_000), drawn(strengths, 50_000, 3)
    better = METRICS[metric]().better
    scores = {
        way: better * evaluate(metric, unseen.targets, fit(way, unseen.probs, unseen.targets, metric)(unseen.probs))
        for way in ("equal", "convex")
    }
    found = better * evaluate(metric, unseen.targets, verdict.blend(unseen.probs))
    assert found >= scores["equal"]
    assert found > scores["convex"] - 0.02
    low, high = sorted(better * bound for bound in verdict.between)
    assert low - 0.01 <= found <= high + 0.01  # one in twenty is outside, and twice that many tests would fail


def test_an_estimate_covers_the_score_of_a_test_set_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(60):
        verdict, test = (
            choose_blend(drawn((2.0, 1.5), 400, seed), "accuracy", 300, "equal"),
            drawn((2.0, 1.5), 300, 999 + seed),
        )
        low, high = verdict.between
        covered += low <= evaluate("accuracy", test.targets, verdict.blend(test.probs)) <= high
    assert covered >= 54  # of 60, and 57 are meant


def test_an_estimate_covers_the_score_of_a_mean_over_folds_too() -> None:
    covered = uncorrected = 0
    for seed in range(40):
        seen, models = drawn((2.0,), 1500, seed, shared=0.9), drawn((2.0,) * 5, 1000, 999 + seed, shared=0.9)
        verdict = choose_blend(seen, "accuracy", 1000)
        score = evaluate("accuracy", models.targets, models.probs.mean(0))
        found = verdict.of_folds("accuracy", [list(models.probs)])
        covered += found.between[0] <= score <= found.between[1]
        uncorrected += verdict.between[0] <= score <= verdict.between[1]
    assert covered >= 36  # of 40, and 38 are meant
    assert uncorrected < 20


@pytest.mark.parametrize("metric", ["accuracy", "log_loss", "macro_f1"])
@pytest.mark.parametrize("heat", [1.0, 2.0])
def test_what_a_mean_over_folds_adds_is_told_before_any_label_is_known(metric: str, heat: float) -> None:
    """Five models that err apart in part, each less sure than it should be or not."""
    models = drawn((2.0,) * 5, 4000, 11, shared=0.8)
    said = tempered(models.probs.reshape(-1, 8), heat).reshape(models.probs.shape)
    verdict = choose_blend(HeldOut(said[:1], models.targets, models.parts, models.groups), metric, 4000, "equal")
    found = verdict.of_folds(metric, [list(said)])
    single = np.mean([evaluate(metric, models.targets, each) for each in said])
    truth = evaluate(metric, models.targets, said.mean(0)) - single
    assert METRICS[metric]().better * truth > 0.02
    assert found.folds_add == pytest.approx(truth, rel=0.3)
    assert found.between == pytest.approx([bound + found.folds_add for bound in verdict.between])
    assert verdict.of_folds(metric, [[said[0]]]) == verdict  # of one fold there is no mean
    two = choose_blend(HeldOut(said[:2], models.targets, models.parts, models.groups), metric, 4000, "equal")
    assert abs(two.of_folds(metric, [list(said[:3]), list(said[3:])]).folds_add) < abs(found.folds_add)


def test_images_of_one_group_tell_less_than_as_many_strangers() -> None:
    """The same images and answers, ten times each: the interval is that of a tenth of them."""
    few = drawn((2.0, 1.0), 400, 5)
    kin = HeldOut(*(np.repeat(each, 10, axis=-2 if each.ndim == 3 else 0) for each in astuple(few)))
    strangers = replace(kin, groups=np.arange(4000))
    for metric in ("accuracy", "log_loss"):
        widths, gains = [], []
        for seen, tests in ((few, 300), (kin, 3000), (strangers, 3000)):
            verdict = choose_blend(seen, metric, tests, "convex")
            widths.append(verdict.between[1] - verdict.between[0])
            low, high = verdict.judged[-1].between
            gains.append(high - low)
        assert widths[1] == pytest.approx(widths[0], rel=0.15)
        assert widths[2] < 0.5 * widths[0]
        assert gains[1] == pytest.approx(gains[0], rel=0.15)
        assert gains[2] < 0.5 * gains[0]


def test_of_one_group_nothing_is_fitted_and_nothing_expected() -> None:
    seen = drawn((2.0, 1.0), 100, 0)
    for groups in (np.zeros(100, np.int64), np.arange(100) % 2):
        few = replace(seen, parts=groups, groups=groups)
        for metric in ("accuracy", "log_loss", "macro_f1"):
            verdict = choose_blend(few, metric, 50)
            assert verdict.blend.way == "equal"
            low, high = verdict.between
            assert np.isnan(low) if groups.max() == 0 and metric != "accuracy" else low < high
        with pytest.raises(PodiumError, match=r"100 images, of [12] groups, that all runs held out"):
            choose_blend(few, "accuracy", 50, "convex")


def test_where_nothing_was_wrong_something_may_yet_be() -> None:
    sure = drawn((20.0,), 1000, 0)
    low, _ = choose_blend(replace(sure, groups=np.arange(1000) // 20), "accuracy", 1000).between
    assert low < 0.97  # of fifty groups, not of a thousand images
    low, high = choose_blend(drawn((20.0,), 200, 0), "accuracy", 100).between
    assert low < 0.99 < high == 1


def test_weights_of_the_least_log_loss_are_found() -> None:
    seen = drawn((2.0, 1.0), 4000, 4)
    weights = convex(seen.probs, seen.targets, "log_loss")
    losses = {
        share: evaluate("log_loss", seen.targets, share * seen.probs[0] + (1 - share) * seen.probs[1])
        for share in np.linspace(0, 1, 101)
    }
    assert weights.sum() == pytest.approx(1)
    assert weights[0] == pytest.approx(min(losses, key=lambda share: losses[share]), abs=0.011)
    assert greedy(seen.probs, seen.targets, "log_loss")[0] == pytest.approx(weights[0], abs=0.05)


@given(st.floats(0.6, 2.5), st.integers(0, 99))
@settings(max_examples=20)
def test_a_temperature_that_was_put_in_is_taken_out(heat: float, seed: int) -> None:
    seen = drawn((2.0,), 3000, seed, shared=0.0)
    heated = tempered(seen.probs[0], heat)
    assert temperature(heated, seen.targets) == pytest.approx(1 / heat, rel=0.1)
    assert np.allclose(tempered(heated, 1 / heat), seen.probs[0], atol=1e-5)
    assert np.allclose(heated.sum(1), 1)


def test_no_probability_of_exactly_nothing_breaks_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.submit.choose_blend.RESAMPLES_OF_SLOW", 20)
    sure = np.eye(4)[np.arange(40) % 4]
    seen = HeldOut(np.array([sure, np.roll(sure, 1, 1)]), np.arange(40) % 4, np.arange(40) % 2, np.arange(40))
    for metric in METRICS:
        verdict = choose_blend(seen, metric, 10)
        assert np.isfinite(verdict.blend(seen.probs)).all()
        assert verdict.blend.weights[0] >= 0.5


def test_a_rare_class_that_a_resample_lacks_breaks_nothing() -> None:
    targets = np.array([1] * 2 + [0] * 58)
    probs = np.random.default_rng(0).dirichlet((1, 1), (2, 60))
    verdict = choose_blend(HeldOut(probs, targets, np.arange(60) % 5, np.arange(60)), "roc_auc", 30)
    assert sum(verdict.blend.weights) == pytest.approx(1)


def test_nothing_is_fitted_to_the_part_that_is_scored() -> None:
    """Where each part would want other weights, weights that fit it would score 1."""
    right = np.eye(2)[np.zeros(100, int)] * 0.8 + 0.1
    parts = np.arange(100) % 2
    probs = np.array([np.where(parts[:, None] == run, right, right[:, ::-1]) for run in range(2)])
    seen = HeldOut(probs, np.zeros(100, np.int64), parts, np.arange(100))
    scores = {each.way: each.score for each in choose_blend(seen, "accuracy", 10).judged}
    assert scores["convex"] == scores["greedy"] == 0


def test_the_command_line_knows_all_ways() -> None:
    """It names them itself: to ask blend.py would import scipy before any help is printed."""
    command = argparse.ArgumentParser()
    flags.kaggle_bundle(command)
    (choices,) = [each.choices for each in command._actions if each.dest == "blend"]
    assert tuple(choices or ()) == WAYS


def test_one_run_has_nothing_to_weigh() -> None:
    assert ways(1, "accuracy") == ("equal",)
    assert ways(1, "log_loss") == ("equal", "equal-calibrated")
    assert ways(2, "accuracy") == WAYS
    assert WAYS[0] == "equal"
    with pytest.raises(PodiumError, match="weights cannot be fitted to 10 images"):
        choose_blend(drawn((2.0, 2.0), 10, 0), "accuracy", 10, "greedy")
    assert choose_blend(drawn((2.0, 2.0), 10, 0), "accuracy", 10).blend == Blend("equal", (0.5, 0.5), (1.0, 1.0))


@pytest.mark.parametrize("metric", ["accuracy", "log_loss"])
def test_the_values_of_images_have_the_score_for_their_mean(metric: str) -> None:
    seen = drawn((1.0,), 500, 5)
    values = score_per_image(metric, seen.targets, seen.probs[0])
    assert values is not None
    assert values.mean() == pytest.approx(evaluate(metric, seen.targets, seen.probs[0]))
    assert score_per_image("macro_f1", seen.targets, seen.probs[0]) is None


def write_run(root: Path, name: str, held_out: dict[int, list[str]], seed: int) -> Run:
    run = Run(root / name)
    for fold, ids in held_out.items():
        run.fold(fold).mkdir(parents=True)
        draws = np.random.default_rng(seed + fold)
        probs = draws.dirichlet(np.ones(2), len(ids)).astype(np.float32)
        Predictions(np.array(ids), probs, np.array([int(each) % 2 for each in ids]), ("a", "b")).save(
            run.fold(fold) / "oof.npz"
        )
    return run


def test_runs_meet_on_the_images_that_all_held_out(tmp_path: Path) -> None:
    first = write_run(tmp_path, "first", {0: ["1", "2", "3"], 1: ["4", "5"]}, 0)
    second = write_run(tmp_path, "second", {1: ["5", "3"], 2: ["9"], 4: ["1"]}, 7)
    seen = held_out([first, second], ("a", "b"))
    assert seen.targets.tolist() == [1, 1, 1]
    assert seen.parts.tolist() == [0, 0, 1]  # the first's folds of 1, 3 and 5
    said = {run: {fold: run.out_of_fold(fold).probs for fold in run.finished()} for run in (first, second)}
    assert np.array_equal(seen.probs[0], [said[first][0][0], said[first][0][2], said[first][1][1]])
    assert np.array_equal(seen.probs[1], [said[second][4][0], said[second][1][1], said[second][1][0]])
    lonely = held_out([first, write_run(tmp_path, "third", {0: ["7"]}, 1)], ("a", "b"))
    assert len(lonely) == 0
    one_fold = held_out([write_run(tmp_path, "fourth", {2: [str(n) for n in range(50)]}, 1)], ("a", "b"))
    assert sorted(set(one_fold.parts.tolist())) == [0, 1, 2, 3, 4]


def test_images_of_one_group_are_known_by_the_folds_file_or_else_by_the_card(tmp_path: Path) -> None:
    raw = write_competition(tmp_path)
    table = (raw / "train.csv").read_text().splitlines()
    patients = [f"{line},{'' if n == 3 else f'p{n // 4}'}" for n, line in enumerate(table[1:])]
    (raw / "train.csv").write_text("\n".join([f"{table[0]},patient", *patients, ""]))
    assert read_groups(load("tiny", tmp_path), tmp_path) == {}
    by_card = read_groups(load("tiny", tmp_path, group_column="patient"), tmp_path)
    assert (by_card["000"], by_card["004"], "003" in by_card) == ("p0", "p1", False)
    podium_at(tmp_path, "folds", "-c", "tiny", "--k", "2", "--group", "patient")
    by_folds = read_groups(load("tiny", tmp_path), tmp_path)
    assert by_folds["000"] == by_folds["001"] == by_folds["002"] != by_folds["003"]
    folds_path("tiny", tmp_path).write_text("id,fold\n000,0\n")  # anybody's, without groups
    assert read_groups(load("tiny", tmp_path), tmp_path) == {}

    run = write_run(tmp_path, "one", {0: ["000", "001", "12", "004"]}, 0)
    kin = held_out([run], ("a", "b"), {"000": "12", "001": "12"}).groups  # the image 12 is none of the group 12
    assert kin[0] == kin[1]
    assert len(set(kin.tolist())) == 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, one of which has learned nothing."""
    root = tmp_path_factory.mktemp("blended")
    write_competition(root, each=12, test=9)
    podium_at(root, "folds", "-c", "tiny", "--k", "2")
    common = (
        "--weights",
        "none",
        "--image-size",
        "32",
        "--batch-size",
        "8",
        "--workers",
        "0",
        "--model",
        "test_convnext",
    )
    for name, epochs, rate in (("good", "8", "3e-3"), ("idle", "1", "1e-9")):
        words = ("train", "-c", "tiny", "--name", name, "--epochs", epochs, "--lr", rate)
        podium_at(root, *words, *common)
    return root


@pytest.fixture
def both(trained: Path, tmp_path: Path) -> Path:
    import shutil

    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_a_blend_is_told_and_its_lineage_rebuilds_it_to_the_byte(both: Path, podium: Podium) -> None:
    status, out, err = podium("submit", "-c", "tiny", "--blend", "greedy-calibrated")
    assert status == 0, err
    assert "ways to blend" in err
    assert "expect between" in err
    csv = Path(out.strip())
    made = csv.read_bytes()
    lineage = json.loads(csv.with_suffix(".json").read_text())
    assert lineage["blend"]["way"] == "greedy-calibrated"
    assert lineage["runs"][0]["weight"] > 0.7  # good's
    assert lineage["estimate"]["images"] == 36
    assert {"commit", "versions", "train_sha256", "test_sha256", "sha256"} <= set(lineage)

    status, told, _ = podium("lineage", csv)
    assert status == 0
    for fact in (lineage["sha256"], lineage["blend"]["way"], "good fold 1", "idle fold 0", "held-out images", "torch"):
        assert fact in told

    csv.unlink()
    for path in both.glob("runs/tiny/*/fold*/test.npz"):
        path.unlink()
    status, out, err = podium("submit", "--from", csv.with_suffix(".json"))
    assert status == 0, err
    assert (out.strip(), csv.read_bytes()) == (str(csv), made)
    assert podium("submit", "--from", csv.with_suffix(".json"))[0] == 0  # it is there, and right


def test_a_sample_whose_columns_have_changed_places_gets_its_columns(both: Path, podium: Podium) -> None:
    sample = both / "data" / "raw" / "tiny" / "sample_submission.csv"
    ids = [line.partition(",")[0] for line in sample.read_text().splitlines()[1:]]
    made = {}
    for order in (("red", "lonely", "blue", "green"), ("green", "blue", "lonely", "red")):
        sample.write_text("\n".join([",".join(("id", *order)), *(f"{each},0,0,0,1" for each in ids), ""]))
        status, out, err = podium("submit", "-c", "tiny", "--name", order[0])
        assert status == 0, err
        made[order[0]] = table = pd.read_csv(out.strip(), dtype={"id": str})
        assert list(table.columns) == ["id", *order]
        assert list(table["id"]) == ids
    pd.testing.assert_frame_equal(made["red"], made["green"][made["red"].columns])
    truth = pd.read_csv(both / "solution.csv", dtype=str).set_index("id")["target"]
    assert (made["red"].set_index("id").idxmax(axis=1) == truth[ids]).mean() > 0.8  # of the classes' own models


def test_predictions_can_be_put_in_another_order_and_back() -> None:
    said = Predictions(np.array(["1", "2"]), np.eye(3, dtype=np.float32)[:2], np.array([2, -1]), ("a", "b", "c"))
    turned = said.of(("c", "a", "b"))
    assert turned.probs.tolist() == [[0, 1, 0], [0, 0, 1]]
    assert turned.target.tolist() == [0, -1]
    assert turned.of(said.classes).probs.tolist() == said.probs.tolist()
    assert turned.of(said.classes).target.tolist() == [2, -1]


def test_a_lineage_that_cannot_be_kept_says_why(both: Path, podium: Podium) -> None:
    _, out, _ = podium("submit", "-c", "tiny", "--runs", "good")
    csv = Path(out.strip())
    record = csv.with_suffix(".json")
    made = csv.read_text()

    csv.write_text(made.replace("red", "blue"))
    assert "has been changed since" in one_line(podium("lineage", csv))
    assert "is not what good.json tells of" in one_line(podium("submit", "--from", record))
    csv.write_text(made)

    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "sha256": "0" * 64}))
    csv.unlink()
    assert "give another CSV here than good.json tells of" in one_line(podium("submit", "--from", record))
    record.write_text(json.dumps({**content, "test_sha256": "0" * 64}))
    assert "the test data is not that of" in one_line(podium("submit", "--from", record))
    assert not csv.exists()

    recipe = {**content["runs"][0]["recipe"], "views": "none"}
    record.write_text(json.dumps({**content, "runs": [{**content["runs"][0], "recipe": recipe}]}))
    assert "views was none and is mirror" in one_line(podium("submit", "--from", record))

    record.write_text(json.dumps(content))
    assert "leave out --runs" in one_line(podium("submit", "--from", record, "--runs", "good"))
    weights = both / "runs" / "tiny" / "good" / "fold1" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert "model.safetensors is not what was trained" in one_line(podium("submit", "--from", record))
    (both / "runs" / "tiny" / "good").rename(both / "good")
    assert "needs the run" in one_line(podium("submit", "--from", record))
    blend = content["blend"]
    changes: tuple[dict[str, object], ...] = (
        {"blend": {**blend, "weights": [0.5, 0.5]}},
        {"blend": {**blend, "weights": [float("nan")]}},
        {"blend": {**blend, "temperatures": []}},
        {"blend": {**blend, "temperature": 0}},
        {"runs": []},
        {"runs": [{**content["runs"][0], "folds": []}]},
        {"runs": [{**content["runs"][0], "run": "../../elsewhere"}]},
        {"runs": [{**content["runs"][0], "folds": content["runs"][0]["folds"] * 2}]},
        {"competition": "../.."},
        {"sha256": "x"},
        {"form": {}},
        {"blend": {**blend, "temperature": 10**400}},
        {"runs": [{**content["runs"][0], "folds": [{**content["runs"][0]["folds"][0], "predicted_from": 3}]}]},
    )
    wrong = [json.dumps({**content, **change}) for change in changes]
    for text in ("{}", "[]", "no json", '{"runs": 3}', "[" * 100_000, *wrong):
        record.write_text(text)
        assert "is no lineage of podium submit" in one_line(podium("submit", "--from", record))
    record.unlink()
    assert "podium submit writes it beside its CSV" in one_line(podium("lineage", csv))


def test_what_has_changed_since_is_called_by_its_name(both: Path, podium: Podium) -> None:
    status, out, err = podium("submit", "-c", "tiny", "--runs", "good")
    assert status == 0, err
    csv = Path(out.strip())
    record = csv.with_suffix(".json")
    kept = both / "runs" / "tiny" / "good" / "fold1" / "test.npz"
    again = ("submit", "--from", record)
    csv.unlink()
    assert "is not there; rebuild it with: podium --root" in one_line(podium("lineage", csv))

    sample = both / "data" / "raw" / "tiny" / "sample_submission.csv"
    before = sample.read_text()
    for change, what in (
        (before.replace("id,predict", "id,answer"), "header was 'id,predict' and would be 'id,answer'"),
        (before.replace("\n", "\r\n"), "newline was '\\n' and would be '\\r\\n'"),
    ):
        sample.write_bytes(change.encode())
        assert what in one_line(podium(*again))
    sample.write_text(before)

    said = Predictions.load(kept, "")
    replace(said, probs=np.eye(4, dtype=np.float32)[np.roll(said.probs.argmax(1), 1)]).save(kept)
    assert f"{kept} holds other predictions, delete it" in one_line(podium(*again))
    replace(said, probs=said.probs[:3]).save(kept)  # of another data set
    assert podium(*again)[0] == 0
    csv.unlink()

    image, other = (both / "data" / "raw" / "tiny" / "test_image" / f"{name}.jpg" for name in ("003", "004"))
    size = image.stat().st_size  # names and sizes are hashed with the competition
    image.write_bytes(other.read_bytes().ljust(size, b" ")[:size])
    assert "the test images' pixels are not those of then" in one_line(podium(*again))
    assert not csv.exists()


def test_predictions_that_cannot_be_kept_are_made_all_the_same(both: Path, podium: Podium) -> None:
    for fold in range(2):
        (both / "runs" / "tiny" / "good" / f"fold{fold}" / "test.npz" / "in the way").mkdir(parents=True)
    status, _, err = podium("submit", "-c", "tiny", "--runs", "good")
    assert status == 0, err
    assert "the next submission predicts again" in err


def test_names_that_are_in_the_way_are_refused_before_anything_is_predicted(both: Path, podium: Podium) -> None:
    assert "history.csv is where Kaggle's verdicts stand" in one_line(
        podium("submit", "-c", "tiny", "--name", "history")
    )
    (both / "runs" / "tiny" / "idle").rename(both / "runs" / "tiny" / "a copy")
    assert "a copy is no name for a run: rename it" in one_line(podium("submit", "-c", "tiny"))


@pytest.mark.parametrize("path", ["", ".", "/"])
def test_what_is_no_file_has_no_lineage(podium: Podium, path: str) -> None:
    assert "name a CSV or the JSON beside it" in one_line(podium("lineage", path))
    assert "name a CSV or the JSON beside it" in one_line(podium("submit", "--from", path))


def test_runs_are_compared(both: Path, podium: Podium) -> None:
    status, out, err = podium("compare", "-c", "tiny")
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0].split() == ["run", "model", "folds", "accuracy", "±", "parameters", "images/s", "training"]
    assert [line.split()[0] for line in lines[1:3]] == ["good", "idle"]  # the best first
    assert lines[1].split()[1:5] == ["test_convnext", "2", "of", "2"]
    run = Run(both / "runs" / "tiny" / "good")
    scores = [run.score(fold, "accuracy") for fold in (0, 1)]
    assert f"{np.mean(scores):.5f}" in lines[1]
    seen = held_out([run, Run(both / "runs" / "tiny" / "idle")], ("blue", "green", "lonely", "red")).probs.argmax(2)
    assert f"{np.mean(seen[0] != seen[1]):.2%}" in lines[5]
    assert len(podium("compare", "-c", "tiny", "--runs", "idle")[1].splitlines()) == 2
