"""Labels: their column is found, their text stays unchanged, and mistakes in them are reported with their line."""

from pathlib import Path

import pandas as pd
import pytest

from layouts import IMAGES, SAMPLE, TABLES, load_error, load_files, table, train_labels
from podium.competition.decide.labels import find_separator, normalised_label
from podium.tasks.task import SEVERAL_LABELS
from tiny import assert_says

# --- their column ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("train", "sample"),
    [
        ("id,patient,age,target\n1,p,40,cat\n2,p,50,dog\n3,q,1,cat", "id,target\n5,cat\n4,cat"),
        ("label,variety,id\ncat,x,1\ndog,y,2\ncat,z,3", "id,label\n5,\n4,"),
        ("index,file_name,Label\n0,1.jpg,cat\n1,2.jpg,dog\n2,3.jpg,cat", "name,predict\n5.jpg,cat\n4.jpg,cat"),
        ("image,species\n1,cat\n2,dog\n3,cat", "filename,answer\n5,cat\n4,cat"),
        (",id,notes,target\n0,1,a,cat\n1,2,b,dog\n2,3,c,cat", "id,target\n5,cat\n4,cat"),
        ("Image,Id\n1.jpg,cat\n2.jpg,dog\n3.jpg,cat", "Image,Id\n5.jpg,new\n4.jpg,new"),
        ("id,species,margin1\n1,cat,0.1\n2,dog,0.2\n3,cat,0.3", "id,cat,dog\n5,0.5,0.5\n4,0.5,0.5"),
        ("id,cat,dog\n1,1,0\n2,0,1\n3,1,0", "id,cat,dog\n5,0.5,0.5\n4,0.5,0.5"),
        ("cat,dog,sex,id\n1.0,0.0,m,1\n0.0,1.0,f,2\n1.0,0.0,f,3", "id,dog,cat\n5,0,0\n4,0,0"),
        ("id,cat,dog\n1,True,False\n2,False,True\n3,True,False", "id,cat,dog\n5,0,0\n4,0,0"),
    ],
)
def test_ids_and_labels_are_found_among_other_columns(tmp_path: Path, train: str, sample: str) -> None:
    tables = {"train.csv": train + "\n", "sample_submission.csv": sample + "\n"}
    competition = load_files(tmp_path, IMAGES, tables)
    assert train_labels(competition) == {"train/1.jpg": "cat", "train/2.jpg": "dog", "train/3.jpg": "cat"}
    assert list(competition.test["image"]) == ["test/5.jpg", "test/4.jpg"]


@pytest.mark.parametrize(
    ("train", "answer", "column"),
    [
        (("id,target,class_id", "1,cat,0", "2,dog,1", "3,cat,0"), "0", "class_id"),
        (("id,target,class_id", "1,cat,0", "2,dog,1", "3,cat,0"), "cat", "target"),
        (("id,class_id,class_name", "1,0,cat", "2,1,dog", "3,0,cat"), "cat", "class_name"),
        (("id,class_id,class_name", "1,0,cat", "2,1,dog", "3,0,cat"), "0", "class_id"),
        (("id,class_id,class_name", "1,0,cat", "2,1,dog", "3,0,cat"), "?", "class_id"),
        (("id,target,fold", "1,cat,0", "2,dog,1", "3,cat,0"), "0", "target"),  # a fold is not a label
    ],
)
def test_the_answers_of_the_sample_submission_show_which_column_holds_the_labels(
    tmp_path: Path, train: tuple[str, ...], answer: str, column: str
) -> None:
    tables = {"train.csv": table(*train), "sample_submission.csv": table("id,predict", f"4,{answer}", f"5,{answer}")}
    competition = load_files(tmp_path, IMAGES, tables)
    position = train[0].split(",").index(column)
    assert list(competition.train["target"]) == [row.split(",")[position] for row in train[1:]]
    is_noted = f"answers that are not labels of the training table: '{answer}'" in " ".join(competition.notes)
    wants_labels = competition.submission_format.wants == "labels"
    assert is_noted == (wants_labels and answer not in set(competition.train["target"]))


def test_a_placeholder_does_not_count_against_a_column_of_the_same_name(tmp_path: Path) -> None:
    tables = {
        "train.csv": table("id,label,fold", "1,cat,a", "2,dog,b", "3,cat,a"),
        "sample_submission.csv": table("id,label", "5,?", "4,?"),
    }
    competition = load_files(tmp_path, IMAGES, tables)
    assert competition.classes == ("cat", "dog")
    assert "answers that are not labels of the training table: '?'" in competition.notes[0]


@pytest.mark.parametrize(
    ("rows", "answer", "classes"),
    [
        (("id,label,label_id", "1,cat,0", "2,dog,1", "3,cat,0"), "0", ("0", "1")),
        (("id,label,label_name", "1,0,cat", "2,1,dog", "3,0,cat"), "cat", ("cat", "dog")),
    ],
)
def test_of_two_columns_of_the_same_labels_that_of_the_samples_kind_wins(
    tmp_path: Path, rows: tuple[str, ...], answer: str, classes: tuple[str, ...]
) -> None:
    tables = {"train.csv": table(*rows), "sample_submission.csv": table("id,label", f"5,{answer}", f"4,{answer}")}
    assert load_files(tmp_path, IMAGES, tables).classes == classes


def test_words_are_refused_where_the_sample_has_numbers(tmp_path: Path) -> None:
    tables = {
        "train.csv": table("id,label", "1,cat", "2,dog", "3,cow"),
        "sample_submission.csv": table("id,label", "5,7", "4,7"),
    }
    assert_says(load_error(tmp_path, IMAGES, tables), "sample_submission.csv", "such as 7", 'target_column = "NAME"')
    competition = load_files(tmp_path, [], {}, 'wants = "labels"')
    assert competition.classes == ("cat", "cow", "dog")


def test_one_probability_of_several_classes_is_of_all_but_the_one_that_is_not_looked_for(tmp_path: Path) -> None:
    tables = {
        "train.csv": table("id,label", "1,normal", "2,pneumonia", "3,covid"),
        "sample_submission.csv": table("id,label", "5,0", "4,0"),
    }
    competition = load_files(tmp_path, IMAGES, tables)
    assert competition.classes == ("normal", "other than normal")
    assert competition.submission_format.wants == "probs"
    (note,) = [note for note in competition.notes if "a guess" in note]
    assert "covid, pneumonia" in note
    competition = load_files(tmp_path, [], {}, 'positive = "covid"')
    assert competition.classes == ("other than covid", "covid")
    tables["train.csv"] = tables["train.csv"].replace("normal", "flu")
    assert_says(load_error(tmp_path / "unclear", IMAGES, tables), "3 classes of words", 'positive = "NAME"')


def test_any_number_of_marked_classes_is_several_labels(tmp_path: Path) -> None:
    tables = {
        "train.csv": table("id,cat,dog", "1,1,0", "2,1,1", "3,0,0"),
        "sample_submission.csv": table("id,cat,dog", "4,0,0", "5,0,0"),
    }
    competition = load_files(tmp_path, IMAGES, tables)
    assert competition.task is SEVERAL_LABELS
    assert list(competition.train["target"]) == ["cat", "cat|dog", ""]
    message = load_error(tmp_path, IMAGES, tables, 'task = "one_label"\n')
    assert_says(message, "train.csv, line 3: 2 classes are marked", 'task = "one_label"')
    assert "'2' in the column of a class is neither 0 nor 1" in load_error(
        tmp_path, IMAGES, tables | {"train.csv": table("id,cat,dog", "1,1,0", "2,2,1", "3,0,0")}
    )


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["rust", "scab", "rust scab", "rust"], " "),
        (["rust", "scab", "scab, rust", "rust"], ","),
        (["1 2 3", "2", "3", "1 3", ""], " "),
        (["Common Chickweed", "Common wheat", "Fat Hen", "Maize"], ""),
        (["red car", "blue car", "red bus", "blue bus", "green bus", "green car"], ""),
        (["a", "b", "c"], ""),
    ],
)
def test_cells_with_several_labels_are_told_from_names_of_several_words(cells: list[str], separator: str) -> None:
    assert find_separator(pd.Series(cells)) == separator


# --- their text --------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["NA", "None", "null", "nan", "NaN", "True", "0", "007", "1e5", " cat", "N/A"])
def test_a_label_stays_unchanged(tmp_path: Path, label: str) -> None:
    train = table("id,target", f"1,{label}", "2,dog", "3,dog")
    competition = load_files(tmp_path, IMAGES, {"train.csv": train, "sample_submission.csv": SAMPLE})
    assert list(competition.train["target"]) == [label, "dog", "dog"]
    assert set(competition.classes) == {label, "dog"}


@pytest.mark.parametrize(
    ("first", "second", "are_similar"),
    [
        ("9007199254740993", "9007199254740992", False),
        ("12345678901234567890.5", "12345678901234567890.4", False),
        ("7", "007", True),
        ("0", "-0", True),
        (".5", "0.50", True),
        ("1e3", "1000", False),
        ("cat", "c\u200bat", True),
        ("a", "A", False),
    ],
)
def test_which_labels_look_the_same(first: str, second: str, are_similar: bool) -> None:
    assert (normalised_label(first) == normalised_label(second)) == are_similar


def test_labels_that_look_the_same_are_noted_with_their_lines(tmp_path: Path) -> None:
    train = table("id,target", "1,cat", "2,cat ", "3,dog", "4,1", "5,1.0", "6,Cat", "7,c at")
    images = [f"train/{name}.jpg" for name in range(1, 8)] + ["test/9.jpg"]
    tables = {"train.csv": train, "sample_submission.csv": "id,target\n9,cat\n"}
    competition = load_files(tmp_path, images, tables)
    assert competition.classes == ("1", "1.0", "Cat", "c at", "cat", "cat ", "dog")
    words, numbers = competition.notes
    assert "train.csv: 'cat' (line 2) and 'cat ' (line 3) are different classes" in words
    assert "train.csv: '1' (line 5) and '1.0' (line 6) are different classes" in numbers
    assert "correct the table" in words
    tables["train.csv"] = train.replace("cat ", "cat\xa0").replace("1.0", "2")
    (note,) = load_files(tmp_path, images, tables).notes
    assert note.startswith("train.csv: 'cat' (line 2) and 'cat\\xa0' (line 3) are different classes")


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (("10", "9", "0"), ("0", "9", "10")),
        (("010", "9", "0"), ("0", "010", "9")),
        (("-1", "1", "0"), ("-1", "0", "1")),
        (("b", "A", "a"), ("A", "a", "b")),
        (("9" * 5000, "8", "1"), ("1", "8", "9" * 5000)),
        (("٣", "1", "2"), ("1", "2", "٣")),
    ],
)
def test_classes_are_sorted_by_value_if_all_are_numbers(
    tmp_path: Path, labels: tuple[str, ...], classes: tuple[str, ...]
) -> None:
    train = table("id,target", *(f"{i},{label}" for i, label in enumerate(labels, 1)))
    assert load_files(tmp_path, IMAGES, TABLES | {"train.csv": train}).classes == classes


@pytest.mark.parametrize(
    ("column", "card", "is_noted"),
    [("age", "", True), ("label", "", False), ("landmark_id", "", False), ("age", 'task = "one_label"', False)],
)
def test_whole_numbers_under_an_unusual_name_are_classes_with_a_note(
    tmp_path: Path, column: str, card: str, is_noted: bool
) -> None:
    images = [f"train/{number}.jpg" for number in range(24)]
    tables = {"train.csv": table(f"id,{column}", *(f"{number},{20 + number // 2}" for number in range(24)))}
    competition = load_files(tmp_path, [*images, "test/30.jpg"], tables, card)
    assert len(competition.classes) == 12
    notes = [note for note in competition.notes if "are classes here" in note]
    assert len(notes) == is_noted
    if is_noted:
        assert "'age'" in notes[0]
        assert 'task = "numbers"' in notes[0]


@pytest.mark.parametrize("card", ["", 'metric = "rmse"'])
def test_numbers_with_a_decimal_comma_are_named(tmp_path: Path, card: str) -> None:
    images = [f"train/{number}.jpg" for number in range(12)]
    rows = [f"{number};{number + 0.5}".replace(".", ",") for number in range(12)]
    tables = {"train.csv": table("id;price", *rows)}
    if card:
        message = load_error(tmp_path, [*images, "test/20.jpg"], tables, card)
        assert "train.csv, line 2: '0,5' in the column 'price'" in message
    else:
        (message,) = (note for note in load_files(tmp_path, [*images, "test/20.jpg"], tables).notes if "price" in note)
        assert "'0,5' are labels here" in message
    assert "point" in message
