"""podium audit --shift: whether test images look like training images, which do not, and what differs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pictures import write_table
from podium.comparing import shift
from podium.comparing.shift import differing_facts, held_out_logits, measure_shift
from podium.competition.find.csv_files import read_table
from podium.competition.load import Competition, load
from podium.images.audit import load_audit
from podium.tasks.metric_functions import share_in_order
from podium.training.image_features import ImageFeatures, features_of_images
from tiny import Podium, done, one_line, write_competition

SHIFT = ("audit", "-c", "tiny", "--shift")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_competition(tmp_path, per_class=20, test_images=40)
    return tmp_path


def made_features(root: Path, moved: float) -> ImageFeatures:
    """Returns features of which the test images are moved by so many deviations, in two of 20 directions."""
    rng, competition = np.random.default_rng(0), load("tiny", root)
    train, test = (rng.normal(0, 1, (len(rows), 20)) for rows in (competition.train, competition.test))
    test[:, :2] += moved
    return ImageFeatures("a model", train.astype(np.float32), test.astype(np.float32))


def give(monkeypatch: pytest.MonkeyPatch, features: ImageFeatures) -> None:
    def given(competition: Competition, model: str) -> ImageFeatures:
        return features

    monkeypatch.setattr(shift, "features_of_images", given)


def test_images_of_one_kind_look_alike(root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, made_features(root, 0.0))
    out, _ = done(podium(*SHIFT))
    assert "the test images look like the training images" in out
    assert "look least like" not in out


def test_other_images_are_told_apart_and_the_most_foreign_are_named(
    root: Path, podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = made_features(root, 2.0)
    features.test[7, :2] = 9.0
    give(monkeypatch, features)
    out, _ = done(podium(*SHIFT))
    assert "told apart from the training images" in out
    assert "--by-site" in out
    rows = read_table(root / "data/prepared/tiny/shift.csv")
    assert (rows["role"] == "test").sum() == 40
    most = rows[rows["role"] == "test"].sort_values("test_like", ascending=False)["image"].iloc[0]
    assert most == load("tiny", root).test["image"].iloc[7]
    assert f"least like training images: {most}" in out


def test_the_interval_holds_the_truth(root: Path) -> None:
    """Two directions of one deviation: the best that any classifier can reach is an AUC of 0.841."""
    competition, features = load("tiny", root), made_features(root, 1.0)
    told = measure_shift(competition, load_audit(competition), np.concatenate([features.train, features.test]))
    assert told.interval[0] < 0.841
    assert told.interval[0] < told.auc < told.interval[1]
    assert told.is_clear


def test_a_classifier_cannot_know_the_copies_of_an_image() -> None:
    """Each image is there three times, and nothing else tells test images: only a leak could."""
    rng = np.random.default_rng(0)
    features, is_test = rng.normal(0, 1, (60, 200)), np.arange(60) % 2 > 0
    group = np.tile(np.arange(60), 3)
    logits = held_out_logits(np.tile(features, (3, 1)).astype(np.float32), np.tile(is_test, 3), group)
    assert 0.3 < share_in_order(np.tile(is_test, 3), logits) < 0.7


def test_auc_counts_pairs_and_ties() -> None:
    is_test = np.array([False, True, False, True])
    assert share_in_order(is_test, np.array([0.0, 1.0, 1.0, 2.0])) == 3.5 / 4


def test_unreadable_images_are_left_out(root: Path, podium: Podium) -> None:
    load("tiny", root).folder.joinpath("test_image/003.jpg").write_bytes(b"no image")
    competition = load("tiny", root)
    features = features_of_images(competition, "test_resnet", "none", 32)
    assert np.isnan(features.test).any(1).sum() == 1
    told = measure_shift(competition, load_audit(competition), np.concatenate([features.train, features.test]))
    assert (told.rows["role"] == "test").sum() == 39


def test_facts_of_files_and_tables_that_differ_are_told(root: Path) -> None:
    folder = load("tiny", root).folder
    train, test = read_table(folder / "train.csv"), load("tiny", root).test
    lens = ["wide"] * len(train), ["wide" if number % 2 else "long" for number in range(len(test))]
    write_table(
        folder / "train.csv", [("id", "target", "lens"), *zip(train["id"], train["target"], lens[0], strict=True)]
    )
    write_table(folder / "test.csv", [("id", "lens"), *zip(test["id"], lens[1], strict=True)])
    competition = load("tiny", root)
    audited = load_audit(competition)
    facts = differing_facts(competition, audited)
    assert len(facts) == 1
    assert 'column "lens"' in facts[0]
    assert "50%" in facts[0]
    larger = audited.assign(width=np.where(audited["role"] == "test", "60", audited["width"]))
    assert any(
        "pixels up to 1200: 100% of the training images, 0%" in fact for fact in differing_facts(competition, larger)
    )


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--suspects"], ["--shift", "leave out"]),
        (["--drop-bad"], ["--shift", "leave out"]),
    ],
)
def test_flags_that_say_something_else_are_refused(
    root: Path, podium: Podium, words: list[str], parts: list[str]
) -> None:
    one_line(podium(*SHIFT, *words), *parts)


def test_a_model_without_a_use_and_too_few_images_are_refused(tmp_path: Path, podium: Podium) -> None:
    write_competition(tmp_path)
    one_line(podium("audit", "-c", "tiny", "--model", "test_vit"), "--model", "--shift")
    one_line(podium(*SHIFT), "7 test images", "too few", "20")


def test_nothing_of_the_training_labels_is_used(root: Path) -> None:
    competition = load("tiny", root)
    features = made_features(root, 1.0)
    both, rows = np.concatenate([features.train, features.test]), load_audit(competition)
    other = rows.assign(target=np.where(rows["role"] == "train", "red", ""))
    pd.testing.assert_frame_equal(
        measure_shift(competition, rows, both).rows, measure_shift(competition, other, both).rows
    )
