"""The submission's format: its columns, what they hold and the classes, from sample submissions of every kind."""

from pathlib import Path

import numpy as np
import pytest

from layouts import IMAGES, TABLES, TRAIN, images_by_id, load_error, load_files, table
from podium.competition.describe import describe
from podium.competition.find.csv_files import read_table
from podium.submissions.check import check_csv
from podium.submissions.write_csv import render
from tiny import assert_says

WIDE = table("id,cat,dog", "4,0.5,0.5", "5,0.5,0.5")


def numbered_rows(labels: tuple[str, ...]) -> str:
    """A training table with these labels for the images 1, 2, 3."""
    return table("id,target", *(f"{i},{label}" for i, label in enumerate(labels, 1)))


def test_the_sample_submission_decides_columns_rows_and_line_ends(tmp_path: Path) -> None:
    sample = "image name,Predicted Class\r\n5.jpg,x\r\n4.jpg,x\r\n"
    competition = load_files(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})
    submission = competition.submission_format
    assert submission.columns == ("image name", "Predicted Class")
    assert submission.csv_style
    assert submission.csv_style.header == "image name,Predicted Class"
    assert submission.csv_style.newline == "\r\n"
    assert submission.wants == "labels"
    assert competition.metric == "accuracy"
    assert list(competition.test["id"]) == ["5.jpg", "4.jpg"]


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("predict,id", ("cat,5", "cat,4")),
        ("predict,id", ("0,5", "0,4")),
        ("target,id", ("cat,5.jpg", "cat,4.jpg")),
        ("cat,id,dog", ("0.5,5,0.5", "0.5,4,0.5")),
    ],
)
def test_ids_may_be_in_another_column_than_the_first(tmp_path: Path, header: str, rows: tuple[str, ...]) -> None:
    competition = load_files(tmp_path, IMAGES, TABLES | {"sample_submission.csv": table(header, *rows)})
    assert list(images_by_id(competition).values()) == ["test/5.jpg", "test/4.jpg"]
    path = tmp_path / "made.csv"
    path.write_text(render(competition, np.array([[0.75, 0.25]] * 2)))
    check_csv(competition, path)
    written = read_table(path)
    assert list(written.columns) == header.split(",")
    assert written.iloc[:, header.split(",").index("id")].tolist() == [row.split(",")[1] for row in rows]
    if "dog" in header:
        assert written["cat"].tolist() == ["0.75", "0.75"]


# --- a column per class ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "columns", "classes"),
    [
        (("cat", "dog", "cat"), ("dog", "cat"), ("dog", "cat")),
        (("0", "1", "10"), ("class_0", "class_1", "class_10"), ("0", "1", "10")),
        (("0", "1", "10"), ("p10", "p0", "p1"), ("10", "0", "1")),
        (("0", "1", "0"), ("0", "1", "2"), ("0", "1", "2")),
        (("c0", "c1", "c0"), ("c0", "c1", "c2", "c3"), ("c0", "c1", "c2", "c3")),
        (("10", "1", "0"), ("c1", "c10", "c0"), ("1", "10", "0")),
    ],
)
def test_a_column_per_class_holds_its_probability(
    tmp_path: Path, labels: tuple[str, ...], columns: tuple[str, ...], classes: tuple[str, ...]
) -> None:
    sample = table(",".join(["id", *columns]), *(",".join([name, *("0.1" for _ in columns)]) for name in "45"))
    tables = {"train.csv": numbered_rows(labels), "sample_submission.csv": sample}
    competition = load_files(tmp_path, IMAGES, tables)
    assert competition.submission_format.columns == ("id", *columns)
    assert competition.submission_format.wants == "probs"
    assert competition.metric == "log_loss"
    assert competition.classes == classes
    unseen = set(classes) - set(labels)
    assert len(competition.notes) == bool(unseen)
    for name in unseen:  # a class without a training image keeps its column, and is noted
        assert name in competition.notes[0]


@pytest.mark.parametrize(
    "columns",
    [("Cat", "DOG"), ("p(cat)", "p(dog)"), ("cat_prob", "dog_prob"), ("class: Cat", "class: Dog"), ("cat ", " dog")],
)
def test_a_column_may_spell_its_class_differently(tmp_path: Path, columns: tuple[str, str]) -> None:
    sample = WIDE.replace("cat,dog", ",".join(columns))
    competition = load_files(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})
    assert competition.classes == ("cat", "dog")
    lines = render(competition, np.array([[1.0, 0.0]] * 2)).splitlines()
    assert lines == [f"id,{','.join(columns)}", "4,1,0", "5,1,0"]


def test_a_column_may_write_the_number_of_its_class_differently(tmp_path: Path) -> None:
    tables = {
        "train.csv": numbered_rows(("0", "1", "10")),
        "sample_submission.csv": table("id,10.0,0.0,1.0", "4,0,0,1", "5,0,0,1"),
    }
    assert load_files(tmp_path, IMAGES, tables).classes == ("10", "0", "1")


def test_columns_that_are_not_filled_in_may_be_classes_without_a_training_image(tmp_path: Path) -> None:
    sample = table("id,cat,dog,bird", "5,,,", "4,,,")
    competition = load_files(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})
    assert competition.classes == ("cat", "dog", "bird")


def test_without_a_sample_submission_a_card_that_wants_probabilities_gets_a_column_per_class(tmp_path: Path) -> None:
    train = TRAIN.replace("3,cat", "3,bird")
    competition = load_files(tmp_path, IMAGES, {"train.csv": train}, 'wants = "probs"')
    assert competition.submission_format.columns == ("id", "bird", "cat", "dog")


# --- a single column ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "answers", "card", "wants"),
    [
        (("0", "1", "0"), ("0.5", "0.5"), "", "probs"),
        (("0", "1", "0"), ("0.0", "0.0"), "", "probs"),
        (("0", "1", "0"), (".5", ".5"), "", "probs"),
        (("0", "1", "0"), ("5e-1", "5e-1"), "", "probs"),
        (("0", "1", "0"), ("1e-05", "0.5"), "", "probs"),
        (("0", "1", "0"), (" 0.5", "0"), "", "probs"),
        (("0", "1", "0"), ("+0.5", "0."), "", "probs"),
        (("cat", "dog", "cat"), ("0.5", "0.5"), "", "probs"),
        (("cat", "dog", "cat"), ("0", "0.5"), "", "probs"),
        (("cat", "dog", "cat"), ("0.5", "maybe"), "", "labels"),
        (("cat", "dog", "cat"), ("cat", "cat"), "", "labels"),
        (("cat", "dog", "cat"), ("", ""), "", "labels"),
        (("cat", "dog", "cat"), ("0", "1"), "", "probs"),
        (("cat", "dog", "bird"), ("0.5", "0.5"), 'wants = "labels"', "labels"),
        (("0", "1", "0"), ("0", "0"), "", "labels"),
        (("0", "1", "0"), ("1", "0"), "", "labels"),
        (("0", "1", "0"), ("1.5", "0"), "", "labels"),
        (("0", "1", "0"), ("nan", "0"), "", "labels"),
        (("0.0", "1.0", "0.0"), ("0.0", "0.0"), "", "labels"),
        (("0", "1", "0"), ("0", "0"), 'wants = "probs"', "probs"),
        (("0", "1", "0"), ("0", "0"), 'metric = "roc_auc"', "probs"),
        (("0", "1", "0"), ("0.5", "0.5"), 'wants = "labels"', "labels"),
        (("0", "1", "0"), ("0", "0"), 'metric = "accuracy"', "labels"),
    ],
)
def test_with_two_classes_the_placeholders_show_whether_labels_or_probabilities_are_wanted(
    tmp_path: Path, labels: tuple[str, ...], answers: tuple[str, str], card: str, wants: str
) -> None:
    sample = table("id,target", f"4,{answers[0]}", f"5,{answers[1]}")
    tables = {"train.csv": numbered_rows(labels), "sample_submission.csv": sample}
    competition = load_files(tmp_path, IMAGES, tables, card)
    assert competition.submission_format.wants == wants
    assert competition.submission_format.columns == ("id", "target")
    has_unknown_answers = wants == "labels" and not set(answers) <= {*labels, ""}
    assert ("are not labels" in " ".join(competition.notes)) == has_unknown_answers


@pytest.mark.parametrize(
    ("header", "card", "last"),
    [
        ("id,cat", "", "cat"),
        ("id,is_cat", "", "cat"),
        ("id,P(Cat)", "", "dog"),  # the last word is empty
        ("id,p_Cat", "", "cat"),
        ("id,dog", "", "dog"),
        ("id,not_cat", "", "dog"),
        ("id,target", "", "dog"),
        ("id,target", 'positive = "cat"', "cat"),
        ("id,cat", 'positive = "dog"', "dog"),
    ],
)
def test_a_single_column_holds_the_probability_of_the_class_it_is_named_after(
    tmp_path: Path, header: str, card: str, last: str
) -> None:
    sample = table(header, "5,0.5", "4,0.5")
    competition = load_files(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample}, card)
    assert competition.classes[-1] == last
    assert f"the probability of '{last}'" in describe(competition)
    probs = np.full((2, 2), 0.25)
    probs[:, competition.classes.index("cat")] = 0.75
    assert render(competition, probs).splitlines()[1] == ("5,0.75" if last == "cat" else "5,0.25")


def test_a_positive_class_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    tables = TABLES | {"sample_submission.csv": table("id,target", "5,0.5", "4,0.5")}
    message = load_error(tmp_path, IMAGES, tables, 'positive = "bird"')
    assert_says(message, 'positive = "bird" is not one of two classes', "cat, dog")


@pytest.mark.parametrize(
    ("header", "card", "classes"),
    [
        ("id,0,1", "", ("0", "1")),
        ("id,1,0", "", ("0", "1")),
        ("id,1,0", 'positive = "0"', ("1", "0")),
        ("id,0,1", 'positive = "0"', ("1", "0")),
        ("id,p_1,p_0", "", ("0", "1")),
    ],
)
def test_of_two_columns_the_positive_class_is_found_by_name(
    tmp_path: Path, header: str, card: str, classes: tuple[str, ...]
) -> None:
    """Metrics look for it in the last place; the columns of the submission stay as in the sample."""
    tables = {
        "train.csv": table("id,target", "1,0", "2,1", "3,0"),
        "sample_submission.csv": table(header, "5,0.5,0.5", "4,0.5,0.5"),
    }
    competition = load_files(tmp_path, IMAGES, tables, card)
    assert competition.classes == classes
    probs = np.full((2, 2), 0.25)
    probs[:, competition.classes.index("1")] = 0.75
    expected = "5,0.75,0.25" if header.split(",")[1].endswith("1") else "5,0.25,0.75"
    assert render(competition, probs).splitlines()[:2] == [header, expected]


def test_grades_in_columns_keep_the_order_of_their_value_for_kappa(tmp_path: Path) -> None:
    tables = {
        "train.csv": table("id,target", "1,2", "2,10", "3,0"),
        "sample_submission.csv": table("id,10,0,2", "5,0.3,0.3,0.4", "4,0.3,0.3,0.4"),
    }
    competition = load_files(tmp_path, IMAGES, tables, 'metric = "quadratic_kappa"')
    assert competition.classes == ("0", "2", "10")
    probs = np.array([[0.1, 0.2, 0.7]] * 2)
    assert render(competition, probs).splitlines()[:2] == ["id,10,0,2", "5,0.7,0.1,0.2"]


def test_words_in_the_cells_of_the_sample_limit_several_labels_nowhere_and_a_ranking_to_as_many(tmp_path: Path) -> None:
    rows = [f"{number},{labels}" for number, labels in enumerate(("a b c", "a c", "b", "d"), 1)]
    tables = {"train.csv": table("id,tags", *rows), "sample_submission.csv": table("id,tags", "5,a b", "6,a b")}
    images = [f"train/{number}.jpg" for number in range(1, 5)] + ["test/5.jpg", "test/6.jpg"]
    several = load_files(tmp_path, images, tables, task="several_labels")
    assert render(several, np.full((2, 4), 0.9)).split("\n")[1] == "5,a b c d"
    one = table("id,tags", *(f"{number},{'abcd'[number - 1]}" for number in range(1, 5)))
    ranking = load_files(tmp_path, images, {**tables, "train.csv": one})
    assert "the 2 most probable labels" in describe(ranking)
    assert render(ranking, np.array([[0.1, 0.2, 0.3, 0.4]] * 2)).split("\n")[1] == "5,d c"
