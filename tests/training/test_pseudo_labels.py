"""Test images are learned as the fold's own models label them: --pseudo RUN[+RUN...]."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.basics.errors import PodiumError
from podium.options.moves.balancing import ClassBalance
from podium.saved_runs.prediction_files import Predictions
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, Task
from podium.training.augment import TrainView
from podium.training.context import open_context
from podium.training.epoch_images import WithAdded
from podium.training.learner import Learner
from podium.training.lessons import make_lessons
from podium.training.pseudo_labels import confidence_of, sharpened
from templates import copied
from tiny import (
    FAST,
    Podium,
    assert_says,
    done,
    one_line,
    podium_at,
    run_of,
    stop_in_step,
    tiny_with_folds,
    write_image,
)
from training.learners import TASKS, context_of, plan_of_task

TRAIN = ("train", *FAST, "--device", "cpu", "--model", "test_vit", "--folds", "0", "--batch-size", "4", "--epochs", "3")
PARTS = (1, 1, 2, 2, 2)  # the columns of five classes of two targets


def with_first_runs(root: Path) -> None:
    tiny_with_folds(root)
    for name, seed in (("first", 0), ("second", 1)):
        words = ("--model", "test_convnext", "--epochs", "3", "--name", name, "--seed", seed)
        podium_at(root, "train", *FAST, *words)


labelled = copied(with_first_runs)  # The tiny competition with two runs of two folds.


# --- what is learned ---------------------------------------------------------------------------------


def test_a_fold_learns_the_answers_of_its_own_models_only(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.training.pseudo_labels._kept_power", lambda *_: 2.0)
    with context_of(labelled, "student", model="test_vit", pseudo="first+second") as context:
        lessons = make_lessons(context, 0)
        own, count = context.images.training_rows(0), len(context.competition.test)
        labels = context.images.targets.values[own]
        held_out = set(context.competition.train["image"].iloc[context.images.held_out_rows(0)])
        test = context.competition.test["image"].tolist()
    answers = [
        Predictions.load(run_of(labelled, name).fold_folder(0) / "test.npz", "").probs for name in ("first", "second")
    ]
    assert not (run_of(labelled, "first").fold_folder(1) / "test.npz").exists()  # no other fold's model was asked
    mean = np.mean(answers, 0)
    taught = lessons.targets[np.arange(len(own) + count)]
    assert np.array_equal(taught[: len(own)], np.eye(mean.shape[1], dtype=np.float32)[labels])
    assert np.allclose(taught[len(own) :], mean**2 / (mean**2).sum(1, keepdims=True), atol=1e-6)
    assert lessons.table["image"].tolist()[len(own) :] == test
    assert not set(lessons.table["image"]) & held_out
    assert len(set(lessons.rows.tolist())) == len(lessons.rows)  # each image has random draws of its own


def test_the_power_is_the_best_on_images_of_the_other_folds(labelled: Path, podium: Podium) -> None:
    _, err = done(podium(*TRAIN, "--name", "student", "--pseudo", "first"))
    assert_says(err, "fold 0 also learns from 7 test images", "pseudo-labels of first")
    held_out = run_of(labelled, "first").out_of_fold(1)
    losses = {}
    for power in (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 15.0):
        sharper = sharpened(held_out.probs, power, ONE_LABEL)
        losses[power] = -np.log(sharper[np.arange(len(sharper)), held_out.target.values].clip(1e-15)).mean()
    best = min(losses, key=losses.__getitem__)
    assert best == 1 or f"sharpened by the power {best:g}" in err


@pytest.mark.parametrize(
    ("slug", "write"), [TASKS[0], *(pytest.param(*task, marks=pytest.mark.all) for task in TASKS[1:])]
)
def test_every_task_learns_its_test_images(tmp_path: Path, slug: str, write: Callable[[Path], object]) -> None:
    write(tmp_path)
    podium_at(tmp_path, "folds", "-c", slug, "--k", "3")
    small = ("--model", "test_resnet", "--weights", "none", "--image-size", "32", "--epochs", "1")
    podium_at(tmp_path, "train", "-c", slug, *small, "--name", "first", "--folds", "0")
    with open_context(plan_of_task(tmp_path, slug, model="test_resnet", pseudo="first")) as context:
        learner = Learner(context, 0)
        count = len(learner.lessons.rows)
        images = learner.lessons.images(context.images, TrainView(context.recipe, learner.spec))
        batch = images.load([(0, index) for index in range(count - 8, count)])  # the last ones are test images
        assert not isinstance(batch, PodiumError)
        assert batch[1].shape == (8, len(context.competition.classes))
        assert learner.step(*batch).isfinite()
        assert count == len(context.images.training_rows(0)) + len(context.competition.test)


def test_a_run_goes_on_from_itself_with_its_own_answers(labelled: Path, podium: Podium) -> None:
    """Training at test time: the weights of a finished run learn the test images for some epochs."""
    _, err = done(
        podium(
            "train",
            "-c",
            "tiny",
            "--from",
            "first",
            "--pseudo",
            "first",
            "--epochs",
            "1",
            "--folds",
            "0",
            "--workers",
            "0",
        )
    )
    assert "goes on from first" in err
    recipe = run_of(labelled, "first-more").recipe
    assert (recipe["start"], recipe["pseudo"]) == ("first", "first")
    assert set(recipe["pseudo_sha256"]) == {"0"}


def test_other_test_images_or_weights_cannot_go_on(labelled: Path, podium: Podium) -> None:
    command = (*TRAIN, "--pseudo", "first", "--name", "student")
    stop_in_step(podium, 2, *command)
    other = run_of(labelled, "second").weights_path(0)
    kept = run_of(labelled, "first").fold_folder(0)
    before = {name: (kept / name).read_bytes() for name in ("model.safetensors", "oof.npz")}
    for name in before:
        shutil.copy(other.parent / name, kept / name)
    assert "other weights of pseudo first" in one_line(podium(*command))
    for name, content in before.items():
        (kept / name).write_bytes(content)
    write_image(labelled / "data" / "raw" / "tiny" / "test_image" / "000.jpg", (9, 9, 9), 5, (60, 60))
    assert "the test changed" in one_line(podium(*command))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--pseudo", "nobody"), "no run 'nobody'"),
        (("--pseudo", "student"), "'student' cannot learn from itself"),
        (("--linear", "--pseudo", "first"), "--linear cannot be combined with --pseudo"),
    ],
)
def test_what_makes_no_sense_is_refused(labelled: Path, podium: Podium, words: tuple[str, ...], problem: str) -> None:
    assert problem in one_line(podium(*TRAIN, "--name", "student", *words))


def test_without_test_images_there_is_nothing_to_label(labelled: Path, podium: Podium) -> None:
    folder = labelled / "data" / "raw" / "tiny"
    shutil.rmtree(folder / "test_image")
    (folder / "sample_submission.csv").unlink()
    one_line(podium(*TRAIN, "--name", "student", "--pseudo", "first"), "has no images without labels; leave it out")


# --- powers and confidence ---------------------------------------------------------------------------


@given(st.sampled_from([ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS]), st.floats(1, 100), st.integers(0, 99))
def test_sharper_answers_stay_probabilities_and_name_the_same_class(task: Task, power: float, seed: int) -> None:
    rng, columns = np.random.default_rng(seed), PARTS if task is SEVERAL_TARGETS else ()
    probs = rng.random((20, 5))
    for part in task.parts(5, columns):
        probs[:, part] = rng.dirichlet(np.full(part.stop - part.start, 0.3), 20)
    sharper = sharpened(probs, power, task, columns)
    assert np.isfinite(sharper).all()
    for part in task.parts(5, columns):
        assert np.array_equal(sharper[:, part].argmax(1), probs[:, part].argmax(1))
        assert np.allclose(sharper[:, part].sum(1), 1)
    if task is SEVERAL_LABELS:
        assert np.array_equal(sharper > 0.5, probs > 0.5)
    assert (confidence_of(sharper, task, columns) >= confidence_of(probs, task, columns) - 1e-6).all()
    assert (confidence_of(probs, task, columns) > 0).all()


def test_numbers_are_learned_as_they_are() -> None:
    numbers = np.array([[1.5, -3.0], [2.0, 9.0]])
    assert sharpened(numbers, 15.0, NUMBERS) is numbers
    assert confidence_of(numbers, NUMBERS).tolist() == [1, 1]


# --- what an epoch shows -----------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 80), st.integers(0, 9))
def test_images_that_join_are_spread_evenly_and_shown_as_their_weights_say(own: int, others: int, seed: int) -> None:
    times = np.random.default_rng(seed).random(others) + 0.1
    times *= min(own, others) / times.sum()
    images = WithAdded(own, times)
    shown = images.draw(np.random.default_rng(seed))
    assert len(shown) == len(images) == own + min(own, others)
    assert sorted(shown[shown < own]) == list(range(own))
    counts = np.bincount(shown[shown >= own] - own, minlength=others)
    assert np.abs(counts - times).max() < 1 + 1e-6
    share = min(own, others) / len(shown)
    for start in range(0, len(shown), 8):
        batch = shown[start : start + 8]
        assert abs((batch >= own).sum() - share * len(batch)) <= 2


def test_images_that_join_a_balanced_epoch_are_numbered_after_all_of_its_images() -> None:
    balance = ClassBalance(np.repeat([0, 1], [20, 4]), 1.0)
    images = WithAdded(balance, np.full(3, 1.0))
    shown = images.draw(np.random.default_rng(0))
    assert len(shown) == len(images) == 24 + 3
    assert sorted(shown[shown >= 24].tolist()) == [24, 25, 26]


# --- rounds ------------------------------------------------------------------------------------------


def test_each_round_learns_from_the_round_before(labelled: Path, podium: Podium) -> None:
    done(podium(*TRAIN, "--name", "student", "--pseudo", "first", "--rounds", "2", "--epochs", "1"))
    assert run_of(labelled, "student-round1").recipe["pseudo"] == "first"
    assert run_of(labelled, "student").recipe["pseudo"] == "student-round1"
    one_line(
        podium(*TRAIN, "--name", "other", "--pseudo", "first", "--rounds", "2", "--budget", "5m"),
        "--budget is for one run, not for 2 rounds",
    )
    assert "--rounds is for pseudo-labels" in one_line(podium(*TRAIN, "--name", "other", "--rounds", "2"))
    done(podium(*TRAIN, "--name", "third", "--pseudo", "first", "--rounds", "3", "--dry-run"))
