"""Test tables whose rows are pairs of images: found, named in the card, and refused where they do not fit."""

from pathlib import Path

import pytest

from layouts import load_error, load_files
from podium.competition.load import Competition

IMAGES = [f"train/a{number}.jpg" for number in range(4)] + [f"test/b{number}.jpg" for number in range(3)]
TRAIN = "image,individual\na0,x\na1,x\na2,y\na3,y\n"
TEST = "row_id,query,gallery\n0,b0,b1\n1,b1,b0\n2,b0,b2\n"
SAMPLE = "row_id,similarity\n2,0\n0,0\n1,0\n"


def files(tables: dict[str, str]) -> dict[str, str]:
    """Returns the tables with these in their place; "" leaves one out."""
    texts = {"train": TRAIN, "test": TEST, "sample_submission": SAMPLE} | tables
    return {f"{name}.csv": text for name, text in texts.items() if text}


def loaded(root: Path, card: str = "", **tables: str) -> Competition:
    return load_files(root, IMAGES, files(tables), card)


def test_pairs_come_in_the_order_of_the_sample_and_test_images_once(tmp_path: Path) -> None:
    competition = loaded(tmp_path)
    pairs = competition.pairs
    assert pairs is not None
    assert pairs.columns == ("query", "gallery")
    assert (pairs.ids, pairs.first, pairs.second) == (["2", "0", "1"], ["b0", "b0", "b1"], ["b2", "b1", "b0"])
    assert pairs.header == ("row_id", "similarity")
    assert sorted(competition.test["image"]) == ["test/b0.jpg", "test/b1.jpg", "test/b2.jpg"]
    assert competition.answered_by == "match"
    assert list(competition.classes) == ["x", "y"]


def test_the_card_names_them_where_no_sample_shows_them(tmp_path: Path) -> None:
    competition = loaded(tmp_path, 'pairs = ["gallery", "query"]\n', sample_submission="")
    assert competition.pairs is not None
    assert competition.pairs.header == ("row_id", "similarity")
    assert competition.pairs.first == ["b1", "b0", "b2"]


def test_two_names_of_one_image_are_no_pair(tmp_path: Path) -> None:
    test = "image,file,size\nb0,b0.jpg,3\nb1,b1.jpg,3\nb2,b2.jpg,4\n"
    competition = loaded(tmp_path, test=test, sample_submission="image,individual\nb0,x\nb1,x\nb2,x\n")
    assert competition.pairs is None
    assert competition.answered_by == "submit"


@pytest.mark.parametrize("card", ["", "pairs = []\n"])
def test_two_images_in_both_tables_are_no_pair_that_asks_for_a_similarity(tmp_path: Path, card: str) -> None:
    train = "id,left,right,kind\n0,a0,a1,x\n1,a2,a3,y\n" if not card else TRAIN
    assert "pair" not in load_error(
        tmp_path, [*IMAGES, "test/0.jpg"], files({"train": train, "sample_submission": "row_id,kind\n0,x\n9,x\n"}), card
    )


@pytest.mark.parametrize(
    ("card", "tables", "parts"),
    [
        ('pairs = ["query"]\n', {}, ("pairs must be two columns", "it.toml")),
        ('pairs = ["query", "galery"]\n', {}, ("'galery'", "test.csv", "correct that name")),
        ('pairs = ["query", "gallery"]\n', {"test": ""}, ("no test table", "test_table")),
        ("", {"test": TEST.replace("1,b1,b0", "1,b1,b7")}, ("b7",)),
        ("", {"sample_submission": SAMPLE + "9,0\n"}, ("'9'", "line 5", "no pair of")),
        ("", {"test": TEST + "2,b1,b2\n"}, ("'2' appears twice", "line 5")),
        ('pairs = ["query", "gallery"]\n', {"sample_submission": "row_id,x,y\n0,0,0\n"}, ("3 columns",)),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, card: str, tables: dict[str, str], parts: tuple[str, ...]
) -> None:
    message = load_error(tmp_path, IMAGES, files(tables), card)
    for part in parts:
        assert part in message
