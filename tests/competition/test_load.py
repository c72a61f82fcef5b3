"""Loading a competition: where its files are, what is refused or noted as a whole, the hash and the description."""

from pathlib import Path

import pytest

from layouts import IMAGES, SAMPLE, SLUG, TABLES, TRAIN, load_error, load_files, raw_path
from podium.basics.errors import PodiumError
from podium.competition.describe import describe
from podium.competition.load import load, raw_folder
from tiny import assert_says


def test_on_kaggles_own_machines_the_files_are_where_kaggle_mounts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "kaggle" / "input"
    monkeypatch.setattr("podium.competition.load.KAGGLE_INPUT", mounts)
    (mounts / "competitions" / SLUG).mkdir(parents=True)
    assert raw_folder(SLUG, tmp_path) == raw_path(tmp_path)
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Interactive")
    assert raw_folder(SLUG, tmp_path) == mounts / "competitions" / SLUG
    (mounts / SLUG).mkdir()
    assert raw_folder(SLUG, tmp_path) == mounts / SLUG
    assert raw_folder("other", tmp_path) == tmp_path / "data" / "raw" / "other"
    raw_path(tmp_path).mkdir(parents=True)
    assert raw_folder(SLUG, tmp_path) == raw_path(tmp_path)


def test_a_competition_without_files_is_refused_with_the_command_that_gets_them(tmp_path: Path) -> None:
    with pytest.raises(PodiumError, match="does not exist; get the competition's files with: podium data -c it"):
        load(SLUG, tmp_path)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    message = load_error(tmp_path, [], TABLES | {"train.7z": "packed"})
    assert_says(message, f"{raw_path(tmp_path)}: no images below it", "or its archives, and run: podium data -c it")
    assert "delete" not in message


def test_images_without_rows_are_counted(tmp_path: Path) -> None:
    beside_test, others = load_files(tmp_path, [*IMAGES, "train/9.jpg", "test/8.jpg"], TABLES).notes
    assert "1 image in the folder of the test images but in no row of sample_submission.csv" in beside_test
    assert "1 image in neither the training nor the test rows" in others


def test_a_metric_that_contradicts_the_submission_is_noted(tmp_path: Path) -> None:
    train = TRAIN.replace("2,dog", "2,bird") + "6,dog\n"
    images, tables = [*IMAGES, "train/6.jpg"], {"train.csv": train, "sample_submission.csv": SAMPLE}
    (note,) = load_files(tmp_path, images, tables, 'metric = "log_loss"').notes
    assert "log_loss is a metric of probs" in note
    assert not load_files(tmp_path, images, tables, 'metric = "macro_f1"').notes


def test_the_hash_changes_with_every_id_label_and_size_and_with_nothing_else(tmp_path: Path) -> None:
    first = load_files(tmp_path, IMAGES, TABLES)
    assert load(SLUG, tmp_path).train_hash == first.train_hash
    assert first.train_hash != first.test_hash
    hashes = {first.train_hash}
    for change in ({"train/1.jpg": "larger" * 99}, {"train.csv": TRAIN.replace("2,dog", "2,bird")}):
        competition = load_files(tmp_path, [], change)
        assert competition.train_hash not in hashes
        hashes.add(competition.train_hash)


def test_the_description_says_all_that_was_understood(tmp_path: Path) -> None:
    text = describe(load_files(tmp_path, [*IMAGES, "test/6.jpg"], TABLES, 'title = "Pets"'))
    for part in ("Pets", "3 images in train/", "2 images in test/", "2, from 2 images ('cat') down to 1 ('dog')"):
        assert part in text
    for part in (
        "id, target: one label a row, as in sample_submission.csv",
        "accuracy",
        "is sample_submission.csv complete?",
    ):
        assert part in text
