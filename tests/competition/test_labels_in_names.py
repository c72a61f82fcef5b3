"""Labels in file names: read if there is one way to read them, told as a note, and settled by the card."""

from pathlib import Path

import pytest

from layouts import SAMPLE, card_path, load_error, load_files, table
from tiny import assert_says

SAMPLE_OF_PROBS = table("id,label", "2,0.5", "1,0.5")
TEST = ["test/1.jpg", "test/2.jpg"]


def in_train(*names: str) -> list[str]:
    return [*(f"train/{name}" for name in names), *TEST]


@pytest.mark.parametrize(
    "names",
    [
        ("cat.0.jpg", "cat.1.jpg", "dog.0.jpg", "dog.12499.jpg"),
        ("cat_001.jpg", "cat_002.jpg", "dog_001.jpg", "dog_002.jpg"),
        ("001_cat.jpg", "002_cat.jpg", "003_dog.jpg", "004_dog.jpg"),
        ("cat-12.png", "cat-13.png", "dog-12.png", "dog-13.png"),
        ("cat12.jpg", "cat13.jpg", "dog1.jpg", "dog2.jpg"),
        ("cat (1).jpg", "cat (2).jpg", "dog (1).jpg", "dog (2).jpg"),
        ("img_cat_1.jpg", "img_cat_2.jpg", "img_dog_1.jpg", "img_dog_2.jpg"),
        ("1-cat-photo.jpg", "2-cat-photo.jpg", "3-dog-photo.jpg", "4-dog-photo.jpg"),
    ],
)
def test_a_word_beside_a_number_is_the_label(tmp_path: Path, names: tuple[str, ...]) -> None:
    competition = load_files(tmp_path, in_train(*names), {"sample_submission.csv": SAMPLE_OF_PROBS})
    assert list(competition.train["id"]) == sorted(names)
    assert list(competition.train["image"]) == [f"train/{name}" for name in sorted(names)]
    assert list(competition.train["target"]) == ["cat", "cat", "dog", "dog"]
    assert competition.submission_format.wants == "probs"
    assert competition.classes == ("cat", "dog")
    (note,) = (note for note in competition.notes if "label_pattern" in note)
    assert f"labels are read from the file names ({min(names)} is 'cat'): cat 2, dog 2" in note
    assert f"in {card_path(tmp_path)}" in note


def test_a_label_may_have_several_words(tmp_path: Path) -> None:
    names = ["Bengal_1.jpg", "Bengal_2.jpg", "great_dane_1.jpg", "great_dane_20.jpg"]
    competition = load_files(tmp_path, in_train(*names), {})
    assert list(competition.train["target"]) == ["Bengal", "Bengal", "great_dane", "great_dane"]
    both = [f"{name}_{i}.jpg" for name in ("basset_hound", "great_dane") for i in (1, 2)]
    competition = load_files(tmp_path / "both", in_train(*both), {})
    assert competition.classes == ("basset_hound", "great_dane")


def test_two_ways_to_read_the_names_are_refused_with_a_line_for_each(tmp_path: Path) -> None:
    names = [f"{animal}_{colour}_{i}.jpg" for animal in ("cat", "dog") for colour in ("black", "red") for i in (1, 2)]
    message = load_error(tmp_path, in_train(*names), {})
    assert "the label of train/cat_black_1.jpg could be 'cat_black' or 'cat' or 'black'" in message
    lines = message.split("; write ")[1].removesuffix(f" in {card_path(tmp_path)}").split(" or ")
    classes = [load_files(tmp_path, [], {}, line).classes for line in lines]
    assert classes == [("cat_black", "cat_red", "dog_black", "dog_red"), ("cat", "dog"), ("black", "red")]


@pytest.mark.parametrize(
    "names",
    [
        ("cat.0.jpg", "cat.1.jpg", "dog.0.jpg", "dog.1.jpg", "readme.jpg"),
        ("cat.0.jpg", "cat.1.jpg", "dog.0.jpg"),
        ("IMG_1.jpg", "IMG_2.jpg", "IMG_3.jpg"),
        ("1.jpg", "2.jpg", "3.jpg"),
        ("cat.jpg", "dog.jpg"),
    ],
    ids=["one name differs", "a class of one image", "one word", "numbers", "words"],
)
def test_names_that_hold_no_labels_are_refused_as_before(tmp_path: Path, names: tuple[str, ...]) -> None:
    message = load_error(tmp_path, in_train(*names), {"sample_submission.csv": SAMPLE})
    assert_says(message, "neither a table of training labels", r"label_pattern = '(\w+)\.\d+'")


def test_the_card_can_give_the_pattern(tmp_path: Path) -> None:
    names = ["x1-cat-a.jpg", "x2-dog-b.jpg", "x3-dog-c.jpg"]
    competition = load_files(tmp_path, in_train(*names), {}, r"label_pattern = 'x\d-(\w+)-.'")
    assert list(competition.train["target"]) == ["cat", "dog", "dog"]
    assert not competition.notes
    table_too = load_files(tmp_path, [], {"train.csv": table("id,target", "x1-cat-a,bird", "x2-dog-b,fish")})
    assert table_too.classes == ("cat", "dog")


def test_a_pattern_of_the_card_that_fits_not_every_name_is_refused_with_the_first(tmp_path: Path) -> None:
    names = ["cat.1.jpg", "dog.2.jpg", "dog3.jpg", "dog4.jpg"]
    message = load_error(tmp_path, in_train(*names), {}, r"label_pattern = '(\w+)\.\d+'")
    assert str(card_path(tmp_path)) in message
    assert r"label_pattern = '(\w+)\.\d+' finds no label in" in message
    assert "train/dog3.jpg; it must fit each whole name" in message


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        ("label_pattern = '('", "is no regular expression"),
        ("label_pattern = 'cat'", "has 0 groups; put the label in one ( )"),
        ("label_pattern = '(a)(b)'", "has 2 groups"),
        ("label_pattern = '(a)'\ntrain_table = 'train.csv'", "train_table and label_pattern both give the labels"),
    ],
)
def test_a_wrong_pattern_is_refused(tmp_path: Path, card: str, problem: str) -> None:
    message = load_error(tmp_path, in_train("cat.1.jpg", "dog.2.jpg"), {"train.csv": "id,target\n1,cat\n"}, card)
    assert str(card_path(tmp_path)) in message
    assert problem in message
