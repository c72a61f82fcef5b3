"""The columns that a decision of the project's own gets: those that both tables have, by the ids of the answers."""

from pathlib import Path

from extension_file import write_extension
from layouts import IMAGES, SAMPLE, TABLES, load_files, raw_path, table

TRAIN = table("id,target,site,only_here", "2,dog,007,x", "1,cat,NA,y", "3,cat,,z")
TEST = table("number,site,target,id", "1,a,cat,4", "2, b ,cat,5")


def test_both_tables_have_them_as_they_are_written(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, {"train.csv": TRAIN, "test.csv": TEST, "sample_submission.csv": SAMPLE})
    shared = competition.shared_columns
    assert shared.train.to_dict("index") == {
        "2": {"id": "2", "site": "007"},
        "1": {"id": "1", "site": "NA"},
        "3": {"id": "3", "site": ""},
    }
    assert shared.test.index.tolist() == ["5", "4"] == competition.answer_ids  # as in the sample submission
    assert shared.test["site"].tolist() == [" b ", "a"]
    assert "target" not in shared.test  # of the answers
    assert shared.describe() == "the table has the columns id, site"


def test_why_there_are_none_is_said(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, TABLES)
    assert "there is no test table" in competition.shared_columns.describe()
    assert competition.shared_columns.test.index.tolist() == ["5", "4"]
    tables = {**TABLES, "test.csv": table("name,site", "4,a", "9,b")}
    described = load_files(tmp_path / "other ids", IMAGES, tables).shared_columns.describe()
    assert "no column of test.csv has all ids of the submission" in described
    tables = {**TABLES, "test.csv": table("name,site", "4,a", "5,b")}
    assert "share none" in load_files(tmp_path / "none", IMAGES, tables).shared_columns.describe()
    folders = [f"train/{label}/{number}.jpg" for label in ("cat", "dog") for number in (1, 2)]
    tables = {"sample_submission.csv": SAMPLE, "test.csv": table("id,site", "4,a", "5,b")}
    competition = load_files(tmp_path / "folders", [*folders, "test/4.jpg", "test/5.jpg"], tables)
    assert "there is no training table" in competition.shared_columns.describe()


def test_an_answer_for_several_images_has_the_cells_of_the_first_one(tmp_path: Path) -> None:
    images = [*(f"train/i{number}.jpg" for number in range(6)), *(f"test/t{number}.jpg" for number in range(3))]
    rows = [f"i{number},p{number // 2},{number},{'ill' if number < 2 else 'well'}" for number in range(6)]
    tables = {
        "train.csv": table("image_id,patient_id,age,label", *rows),
        "test.csv": table("image_id,patient_id,age", "t0,p8,80", "t1,p9,91", "t2,p8,82"),
        "sample_submission.csv": table("patient_id,ill,well", "p9,0.5,0.5", "p8,0.5,0.5"),
    }
    shared = load_files(tmp_path, images, tables).shared_columns
    assert shared.train["age"].to_dict() == {"p0": "0", "p1": "2", "p2": "4"}
    assert shared.test["age"].to_dict() == {"p9": "91", "p8": "80"}


def test_a_reader_of_the_project_gives_them_too(tmp_path: Path) -> None:
    source = """
import pandas as pd
from podium import extend

@extend.reader
def mine(folder):
    rows = [("1", "cat", "train/1.jpg", 7), ("2", "dog", "train/2.jpg", None), ("3", "cat", "train/3.jpg", 9)]
    train = pd.DataFrame(rows, columns=["id", "target", "image", "site"])
    return train, pd.DataFrame({"id": ["4", "5"], "image": ["test/4.jpg", "test/5.jpg"], "site": ["b", "a"]})
"""
    write_extension(tmp_path, source)
    competition = load_files(tmp_path, IMAGES, {"sample_submission.csv": SAMPLE})
    assert competition.shared_columns.train["site"].to_dict() == {"1": "7.0", "2": "", "3": "9.0"}
    assert competition.shared_columns.test["site"].to_dict() == {"5": "a", "4": "b"}
    (tmp_path / "mine.py").write_text(source.replace('"site": ["b", "a"]', '"place": ["b", "a"]'))
    again = load_files(tmp_path, [], {})
    assert again.shared_columns.train.columns.tolist() == ["id", "image"]
    assert raw_path(tmp_path).is_dir()
