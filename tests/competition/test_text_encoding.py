"""Tables and JSON files in the encoding of Western Windows are read, and called a guess; others are refused."""

import json
from pathlib import Path

import pytest

from layouts import IMAGES, SAMPLE, card_path, load_error, load_files, raw_path, table, train_labels
from podium.competition.load import load
from tiny import assert_says

TRAIN = table("id,target", "1,Ñandú", "2,Zaunkönig", "3,Ñandú")
COCO = {
    "images": [{"id": number, "file_name": f"train/{number}.jpg"} for number in (1, 2, 3)],
    "annotations": [{"id": number, "image_id": number, "category_id": number % 2} for number in (1, 2, 3)],
    "categories": [{"id": 0, "name": "Ñandú, café"}, {"id": 1, "name": "Zaunkönig"}],
}


def write_as(root: Path, name: str, text: str, encoding: str) -> None:
    load_files(root, IMAGES, {"train.csv": table("id,target", "1,a", "2,b", "3,a"), "sample_submission.csv": SAMPLE})
    raw_path(root, name).write_bytes(text.encode(encoding))


def test_a_western_table_is_a_guess(tmp_path: Path) -> None:
    write_as(tmp_path, "train.csv", TRAIN, "latin-1")
    competition = load("it", tmp_path)
    assert set(train_labels(competition).values()) == {"Ñandú", "Zaunkönig"}
    assert any("train.csv is not UTF-8" in note and "a guess" in note for note in competition.notes)
    write_as(tmp_path, "train.csv", TRAIN, "utf-8")
    assert not any("UTF-8" in note for note in load("it", tmp_path).notes)


@pytest.mark.parametrize(("text", "encoding"), [("図書館,猫", "shift-jis"), ("中文标签", "gbk")])
def test_other_encodings_are_refused_with_their_line(tmp_path: Path, text: str, encoding: str) -> None:
    write_as(tmp_path, "train.csv", table("id,target", f"1,{text[:2]}", f"2,{text[-1]}", "3,a"), encoding)
    assert_says(load_error(tmp_path, [], {}), "train.csv, line 2: not utf-8", "save the table as UTF-8")


def test_a_western_json_is_read_and_a_broken_one_is_not_quoted(tmp_path: Path) -> None:
    tables = {"sample_submission.csv": SAMPLE}
    load_files(tmp_path, IMAGES, {"train.json": json.dumps(COCO), **tables})
    path = raw_path(tmp_path, "train.json")
    path.write_bytes(json.dumps(COCO, ensure_ascii=False).encode("latin-1"))
    competition = load("it", tmp_path)
    assert len(competition.train) == 3
    assert any("train.json is not UTF-8" in note for note in competition.notes)
    path.write_bytes(json.dumps(COCO, ensure_ascii=False).encode("latin-1").replace(b"caf", b"\x81\x8d"))
    message = load_error(tmp_path, [], {})
    assert "train.json: not a text of JSON" in message
    assert len(message) < 400
    assert not card_path(tmp_path).exists()
