"""The columns that the card names as features: read from both tables, by id, and turned into numbers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from layouts import IMAGES, load_error, load_files, raw_path, table
from podium.competition.decide.features import Features
from podium.competition.describe import describe
from podium.competition.load import Competition, load
from tiny import assert_says

TABLES = {
    "train.csv": table("id,target,age,site,empty", "1,cat,20,arm,", "2,dog,40,leg,", "3,cat,,arm,"),
    "test.csv": table("id,age,site,empty", "4,30,neck,", "5,50,leg,1"),
    "sample_submission.csv": table("id,target", "5,cat", "4,cat"),
}
CARD = 'features = ["age", "site", "empty"]'


def features_of(root: Path, tables: dict[str, str] = TABLES, card: str = CARD) -> Features:
    features = load_files(root, IMAGES, tables, card).features
    assert features is not None
    return features


def test_numbers_are_scaled_and_texts_become_columns(tmp_path: Path) -> None:
    """The columns: the age, whether it is missing, arm, leg; neck is in no training row, and `empty` says nothing."""
    features = features_of(tmp_path)
    assert features.names == ("age", "site", "empty")
    assert "  features age, site, empty\n" in describe(load_files(tmp_path, IMAGES, TABLES, CARD)) + "\n"
    assert features.of_train(["3", "1"]).tolist() == [[0, 1, 1, 0], [-1, 0, 1, 0]]
    # In the order of the sample submission; an age of 50 counts as 40, the highest of the training images.
    assert features.of_test.tolist() == [[1, 0, 0, 1], [0, 0, 0, 0]]
    assert features_of(tmp_path).sha256 == features.sha256
    other = TABLES | {"test.csv": TABLES["test.csv"].replace("30", "31")}
    assert features_of(tmp_path, other).sha256 != features.sha256


@pytest.mark.parametrize("cell", ["abc", "1e308", "nan"])
def test_a_cell_without_a_number_makes_a_column_of_texts_and_is_noted(tmp_path: Path, cell: str) -> None:
    tables = TABLES | {"train.csv": TABLES["train.csv"].replace("3,cat,,", f"3,cat,{cell},")}
    competition = load_files(tmp_path, IMAGES, tables, 'features = ["age"]')
    (note,) = [note for note in competition.notes if "feature" in note]
    assert_says(note, "feature age has 1 cell without a number", f"'{cell}' of 3", "texts")
    assert competition.features is not None
    columns = competition.features.of_train(["1", "2", "3"])
    assert sorted(columns.tolist()) == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]


@pytest.mark.parametrize("cell", ["abc", "1e308"])
def test_a_cell_without_a_number_in_the_test_table_counts_as_the_mean_and_is_noted(tmp_path: Path, cell: str) -> None:
    tables = TABLES | {"test.csv": TABLES["test.csv"].replace("4,30,", f"4,{cell},")}
    competition = load_files(tmp_path, IMAGES, tables, 'features = ["age", "site"]')
    (note,) = [note for note in competition.notes if "feature" in note]
    assert_says(note, f"'{cell}' of 4", "mean")
    assert competition.features is not None
    assert competition.features.of_test[:, 0].tolist() == [1, 0]


def test_the_ids_of_the_test_table_are_found_in_any_column(tmp_path: Path) -> None:
    rows = ["a,30,x,4", "b,50,y,5", "c,90,z,6"]
    features = features_of(tmp_path, TABLES | {"test.csv": table("row,age,empty,name", *rows)}, 'features = ["age"]')
    assert features.of_test[:, 0].tolist() == [1, 0]


def test_no_features_without_the_setting(tmp_path: Path) -> None:
    assert load_files(tmp_path, IMAGES, TABLES).features is None


def test_without_test_images_there_are_features_of_training_images(tmp_path: Path) -> None:
    tables = {"train.csv": TABLES["train.csv"]}
    competition = load_files(tmp_path, IMAGES[:3], tables, CARD)
    assert competition.features is not None
    assert competition.features.of_train(["1"]).shape == (1, 4)
    assert competition.features.of_test.shape == (0, 4)


def test_a_row_that_repeats_an_id_counts_once(tmp_path: Path) -> None:
    train = TABLES["train.csv"] + "1,cat,99,leg,\n"
    assert features_of(tmp_path, TABLES | {"train.csv": train}).of_train(["1"]).tolist() == [[-1, 0, 1, 0]]


@pytest.mark.parametrize(
    ("tables", "card", "problem"),
    [
        ({}, 'features = ["Age"]', "train.csv has no column 'Age', which features names; its columns are id, target,"),
        ({}, 'features = ["target"]', "test.csv has no column 'target', which features names"),
        ({}, 'features = "age"', "features must be a list of texts, not 'age'"),
        ({}, "features = [1]", "features must be a list of texts, not [1]"),
        ({"test.csv": table("id,age,site,empty", "4,30,neck,")}, CARD, "no column has the ids of all test images"),
    ],
)
def test_wrong_features_are_refused(tmp_path: Path, tables: dict[str, str], card: str, problem: str) -> None:
    assert problem in load_error(tmp_path, IMAGES, TABLES | tables, card)


def test_features_need_tables(tmp_path: Path) -> None:
    without_test = {name: text for name, text in TABLES.items() if name != "test.csv"}
    assert "no table of test images, so their features are unknown" in load_error(
        tmp_path / "a", IMAGES, without_test, CARD
    )
    images = [f"train/{name}/{number}.jpg" for name in ("cat", "dog") for number in range(3)]
    assert "features names columns of the training table, and there is none" in load_error(
        tmp_path / "b", images, {}, CARD
    )


@pytest.mark.parametrize("name", ["train.csv", "test.csv"])
def test_known_features_that_a_copy_lacks_are_left_out(tmp_path: Path, name: str) -> None:
    slug = "siim-isic-melanoma-classification"
    columns = "sex,age_approx,anatom_site_general_challenge"
    tables = {
        "train.csv": table(f"image_name,patient_id,{columns},target", "1,a,male,5,arm,0", "2,b,male,5,arm,1"),
        "test.csv": table(f"image_name,patient_id,{columns}", "4,c,male,5,arm", "5,d,male,5,arm"),
        "sample_submission.csv": table("image_name,target", "4,0", "5,0"),
    }
    folder = tmp_path / "data" / "raw" / slug
    load_files(tmp_path, [*IMAGES[:2], *IMAGES[3:]], tables)
    raw_path(tmp_path).rename(folder)
    features = load(slug, tmp_path).features
    assert features is not None
    assert features.names == tuple(columns.split(","))
    (folder / name).write_text(tables[name].replace("age_approx", "age"))
    competition = load(slug, tmp_path)
    assert competition.features is None
    assert f"{name} has no column 'age_approx', so this competition's features are not used" in competition.notes


def test_a_long_text_column_keeps_the_most_frequent_texts(tmp_path: Path) -> None:
    rows = [f"{number},{'cat' if number % 2 else 'dog'},place{number % 50}" for number in range(100)]
    images = [f"train/{number}.jpg" for number in range(100)] + ["test/100.jpg"]
    tables = {
        "train.csv": table("id,target,place", *rows),
        "test.csv": table("id,place", "100,place0"),
        "sample_submission.csv": table("id,target", "100,cat"),
    }
    features = load_files(tmp_path, images, tables, 'features = ["place"]').features
    assert features is not None
    assert features.of_train(["0"]).shape == (1, 30)
    assert np.flatnonzero(features.of_test).tolist() == [0]


def leaves(root: Path, columns: int, card: str = "", test_ids: Sequence[str] = ("4", "5")) -> Competition:
    """Images with so many numbers beside each, in both tables."""
    names = ",".join(f"margin{number}" for number in range(columns))
    cells = {row: ",".join(f"{0.01 * (int(row) + number)}" for number in range(columns)) for row in "12345"}
    labels = {"1": "b", "2": "a", "3": "b"}
    tests = zip(test_ids, "45", strict=True)
    tables = {
        "train.csv": table(f"id,target,{names}", *(f"{row},{label},{cells[row]}" for row, label in labels.items())),
        "test.csv": table(f"id,{names}", *(f"{row},{cells[own]}" for row, own in tests)),
        "sample_submission.csv": table("id,target", "4,a", "5,a"),
    }
    return load_files(root, IMAGES, tables, card)


def test_many_columns_of_numbers_are_features_as_a_guess(tmp_path: Path) -> None:
    competition = leaves(tmp_path, 12)
    assert competition.features is not None
    assert len(competition.features.names) == 12
    (note,) = [note for note in competition.notes if "a guess" in note and "features" in note]
    assert "features = []" in note
    assert leaves(tmp_path / "none", 12, "features = []").features is None
    assert leaves(tmp_path / "few", 4).features is None


def test_guessed_features_never_stop_a_competition(tmp_path: Path) -> None:
    competition = leaves(tmp_path, 12, test_ids=("8", "9"))
    assert competition.features is None
    assert any("not used" in note for note in competition.notes)
