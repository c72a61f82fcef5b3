"""Several images, one answer: their probabilities are pooled, and the way is chosen on images it was not chosen on."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from by_array import targets_of
from patients import FAST, SLUG, write_patients
from podium.blending.choose_pooling import choose_pooling
from podium.blending.held_out import HeldOut
from podium.blending.pool_images import pool_held_out, pool_test
from podium.competition.decide.answer_groups import Answers
from podium.competition.load import Competition, load
from podium.saved_runs.run_folder import Run
from podium.tasks.pool import Pool
from podium.tasks.task import SEVERAL_LABELS
from submissions.competitions import make_competition
from tiny import Podium, assert_rebuilt, assert_says, done

IMAGES = 4  # of an answer
TRAIN = ("train", *FAST, "--model", "test_resnet", "--lr", "1e-2", "--epochs", "5", "--mix", "0", "--views", "none")


def make_held_out(shows: float, seed: int, answers: int = 150) -> HeldOut:
    """Of each answer with label 1, every image shows it with this probability, and one at least."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(rng.integers(0, 2, answers), IMAGES)
    is_shown = (labels == 1) & ((rng.random(len(labels)) < shows) | (np.arange(len(labels)) % IMAGES == 0))
    logits = np.where(is_shown, 2.0, -2.0) + rng.normal(0, 0.7, len(labels))
    second = 1 / (1 + np.exp(-logits))
    numbers = np.repeat(np.arange(answers), IMAGES)
    return HeldOut(
        probs=np.stack([1 - second, second], 1)[None],
        targets=targets_of(labels),
        parts=numbers % 5,
        groups=numbers,
        ids=[f"{number}-{image}" for image, number in enumerate(numbers)],
    )


def with_answers(held_out: HeldOut) -> Competition:
    competition = replace(make_competition(["a"], ["0", "1"], ["id", "label"], "probs"), metric="log_loss")
    of_train = {name: name.split("-")[0] for name in held_out.ids}
    return replace(competition, answers=Answers("patient", of_train, ["x", "y", "x"], ["y", "x"]))


def test_the_ways_are_what_they_say() -> None:
    competition = with_answers(make_held_out(1, 0))
    probs = np.array([[0.8, 0.2], [0.5, 0.5], [0.4, 0.6]])  # of x, y and x
    assert pool_test(competition, probs, Pool("mean")) == pytest.approx(np.array([[0.5, 0.5], [0.6, 0.4]]))
    assert pool_test(competition, probs, Pool("max")) == pytest.approx(np.array([[0.5, 0.5], [0.8 / 1.4, 0.6 / 1.4]]))
    assert pool_test(competition, probs, Pool("noisy_or")) == pytest.approx(np.array([[0.5, 0.5], [0.32, 0.68]]))
    several = replace(competition, task=SEVERAL_LABELS)
    assert pool_test(several, probs, Pool("max")) == pytest.approx(np.array([[0.5, 0.5], [0.8, 0.6]]))
    assert pool_test(several, probs, Pool("noisy_or")) == pytest.approx(np.array([[0.5, 0.5], [0.88, 0.68]]))
    assert pool_test(replace(competition, answers=None), probs, Pool("max")) is probs


def test_one_telling_image_among_strangers_decides_where_that_is_better() -> None:
    held_out = make_held_out(shows=0, seed=1)
    judged = choose_pooling(held_out, with_answers(held_out))
    assert judged.taken is not None
    assert judged.taken.way in ("max", "noisy_or")
    assert judged.gain.gain > 0
    assert pool_held_out(held_out, with_answers(held_out), judged.taken).probs.shape == (1, 150, 2)


def test_the_mean_stays_where_all_images_tell_the_same() -> None:
    held_out = make_held_out(shows=1, seed=2)
    assert choose_pooling(held_out, with_answers(held_out)).taken is None
    pooled = pool_held_out(held_out, with_answers(held_out))
    assert len(pooled) == 150
    assert pooled.targets.values.tolist() == held_out.targets.values[::IMAGES].tolist() or sorted(pooled.ids) == list(
        pooled.ids
    )


def test_one_image_with_1_makes_an_answer_of_1() -> None:
    held_out = make_held_out(shows=1, seed=3, answers=30)
    targets = np.where(np.arange(120) % IMAGES == 2, held_out.targets.values, 0)
    pooled = pool_held_out(replace(held_out, targets=targets_of(targets)), with_answers(held_out))
    expected = dict(zip((name.split("-")[0] for name in held_out.ids), held_out.targets.values.tolist(), strict=True))
    assert dict(zip(pooled.ids, pooled.targets.values.tolist(), strict=True)) == expected


@pytest.mark.parametrize("way", ["mean", "max", "noisy_or"])
def test_one_image_with_1_decides_wherever_the_submission_puts_its_class(way: str) -> None:
    held_out = make_held_out(shows=0, seed=3, answers=30)
    targets = np.where(np.arange(120) % IMAGES == 2, held_out.targets.values, 0)
    usual = replace(held_out, targets=targets_of(targets))
    turned = replace(
        held_out, targets=targets_of(1 - targets), probs=held_out.probs[:, :, ::-1]
    )  # the same images: 1 is class 0
    competition = with_answers(held_out)
    pooled = pool_held_out(usual, competition, Pool(way))
    pooled_turned = pool_held_out(turned, replace(competition, classes=("1", "0")), Pool(way))
    assert 0 < pooled.targets.values.sum() < 30
    assert (pooled_turned.targets.values == 1 - pooled.targets.values).all()
    assert pooled_turned.probs[:, :, ::-1] == pytest.approx(pooled.probs)


def spread_over_patients(run: Run) -> float:
    """Returns the deviation of the folds' log losses, each the mean over the fold's patients."""
    scores = []
    for fold in run.finished():
        oof = run.out_of_fold(fold)
        solution_form = pd.Series(oof.probs[np.arange(len(oof.id)), oof.target.values].astype(float), oof.id)
        patients = solution_form.groupby(solution_form.index.str.split("_").str[0]).mean()
        scores.append(-np.log(patients).mean())
    return float(np.std(scores, ddof=1))


def test_from_files_to_a_row_for_each_patient(tmp_path: Path, podium: Podium) -> None:
    write_patients(tmp_path)
    done(podium("folds", "-c", SLUG, "--k", "2"))
    folds = pd.read_csv(tmp_path / "data" / "prepared" / SLUG / "folds.csv")
    assert folds["fold"].groupby(folds["id"].str.split("_").str[0]).nunique().max() == 1
    for name, words in {"a": TRAIN, "b": (*TRAIN, "--seed", "1")}.items():
        done(podium(*words, "--name", name))
    out, _ = done(podium("compare", "-c", SLUG, "--json"))
    rows = {row["run"]: row for row in json.loads(out)}
    assert {row["images"] for row in rows.values()} == {36}
    assert rows["a"]["fold_spread"] == pytest.approx(spread_over_patients(Run(tmp_path / "runs" / SLUG / "a")))
    out, err = done(podium("submit", "-c", SLUG))
    assert_says(err, "of the images' probabilities", "on 36 held-out answers (patient_id)")
    written = Path(out.strip())
    submission = pd.read_csv(written)
    assert submission["patient_id"].tolist() == load(SLUG, tmp_path).answer_ids
    is_ill = submission["patient_id"].str[1:].astype(int) % 3 == 0
    assert ((submission["ill"] > 0.5) == is_ill).mean() > 0.7
    assert_rebuilt(podium, written)
    done(podium("lineage", written))
