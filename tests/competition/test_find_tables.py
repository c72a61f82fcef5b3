"""Finding tables: by the names in use or by the card; headers and open quotes."""

import os
from pathlib import Path

import pytest

from layouts import IMAGES, SAMPLE, SLUG, TABLES, TRAIN, load_error, load_files, raw_path, table
from podium.basics.errors import PodiumError
from podium.competition.load import load
from tiny import assert_says


@pytest.mark.parametrize("train", ["train.csv", "Train.csv", "train_labels.csv", "trainLabels.csv", "labels.csv"])
@pytest.mark.parametrize(
    "sample",
    [
        "sample_submission.csv",
        "sampleSubmission.csv",
        "SampleSubmission.csv",
        "sample_sub.csv",
        "submission_format.csv",
        "example_submission.csv",
        "sample.csv",
    ],
)
def test_tables_are_found_by_the_names_in_use(tmp_path: Path, train: str, sample: str) -> None:
    competition = load_files(tmp_path, IMAGES, {train: TRAIN, sample: SAMPLE})
    assert list(competition.train["target"]) == ["cat", "dog", "cat"]
    assert list(competition.test["id"]) == ["5", "4"]
    assert competition.submission_format.source == sample


@pytest.mark.parametrize("name", ["tables/train.csv", "train.tsv", "Training_set.csv", "train_cultivar_mapping.csv"])
def test_the_training_table_may_be_in_a_folder_or_have_a_longer_name(tmp_path: Path, name: str) -> None:
    tables = {name: TRAIN, "sample_submission.csv": SAMPLE, "tables/old/train_1.csv": "x\n1\n"}
    assert list(load_files(tmp_path, IMAGES, tables).train["target"]) == ["cat", "dog", "cat"]


@pytest.mark.parametrize("name", ["test.csv", "Test.csv", "test_ids.csv", "Testing_set.csv"])
def test_the_test_table_is_found_by_the_names_in_use(tmp_path: Path, name: str) -> None:
    tables = {"train.csv": TRAIN, name: table("filename", "5.jpg", "4.jpg")}
    assert list(load_files(tmp_path, IMAGES, tables).test["id"]) == ["5.jpg", "4.jpg"]


@pytest.mark.parametrize(
    ("extra", "key"), [("train_labels.csv", "train_table"), ("sample_submission_stage2.csv", "sample_submission")]
)
def test_two_tables_that_fit_equally_well_are_refused(tmp_path: Path, extra: str, key: str) -> None:
    message = load_error(tmp_path, IMAGES, TABLES | {extra: TRAIN})
    assert extra in message
    assert f'write {key} = "NAME" in {tmp_path}/data/competitions/it.toml' in message


@pytest.mark.parametrize(
    "name", ["sample_submission.csv.gz", "sample_submission.txt", "example.csv", "Sample Sub.xlsx"]
)
def test_a_possible_sample_submission_is_noted_and_the_card_can_name_it(tmp_path: Path, name: str) -> None:
    competition = load_files(tmp_path, IMAGES, {"labels.csv": TRAIN, name: SAMPLE})
    (note,) = competition.notes
    assert_says(note, "no sample submission was found", f"if it is {name}", 'sample_submission = "NAME"')
    competition = load_files(tmp_path, IMAGES, {}, f'sample_submission = "./{name}"')
    assert list(competition.test["id"]) == ["5", "4"]
    assert not load_files(tmp_path, IMAGES, {}, 'sample_submission = ""').notes
    for outside in ("/etc/hostname", "../../../x.csv", "./"):
        card = f'sample_submission = "{outside}"'
        assert card in load_error(tmp_path, IMAGES, {}, card)


@pytest.mark.parametrize("name", ["train.csv", "sample_submission.csv"])
def test_a_table_without_a_header_is_refused(tmp_path: Path, name: str) -> None:
    rows = TABLES[name].split("\n", 1)[1]
    message = load_error(tmp_path, IMAGES, TABLES | {name: rows})
    assert_says(message, f"{name}, line 1", "names an image, so there is no header; add one")


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_cell_of_several_lines_is_noted_because_it_may_hold_other_rows(tmp_path: Path, line_end: str) -> None:
    train = table("id,target,about", '1,cat,"', "2,dog,x", '3,cat,"', "7,dog,x").replace("\n", line_end)
    competition = load_files(tmp_path, [*IMAGES, "train/7.jpg"], TABLES | {"train.csv": train})
    (note,) = [note for note in competition.notes if "train.csv" in note]
    assert_says(note, "1 row with a cell of several lines, the first on line 2", "is a quote not closed")


def test_a_table_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    load_files(tmp_path, IMAGES, TABLES)
    path = raw_path(tmp_path, "train.csv")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(PodiumError, match=r"train\.csv: not a regular file"):
        load(SLUG, tmp_path)
