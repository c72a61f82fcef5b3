"""The submission's shape, from samples as careless hands and other tools leave them."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from layouts import IMAGES, SAMPLE, TABLES, TRAIN, load_it, pairs, refusal, rows
from podium import PodiumError
from podium.competition.csv_files import read_table
from podium.submit.check import check_csv
from podium.submit.write_csv import render

WIDE = rows("id,cat,dog", "4,0.5,0.5", "5,0.5,0.5")


# --- which column holds what -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "card", "last"),
    [
        ("id,cat", "", "cat"),
        ("id,is_cat", "", "cat"),
        ("id,P(Cat)", "", "dog"),  # the word cat is not its last
        ("id,p_Cat", "", "cat"),
        ("id,dog", "", "dog"),
        ("id,not_cat", "", "dog"),
        ("id,target", "", "dog"),
        ("id,target", 'positive = "cat"', "cat"),
        ("id,cat", 'positive = "dog"', "dog"),
    ],
)
def test_one_column_holds_the_probability_of_the_class_it_is_called_by(
    tmp_path: Path, header: str, card: str, last: str
) -> None:
    it = load_it(tmp_path, IMAGES, TABLES | {"sample_submission.csv": rows(header, "5,0.5", "4,0.5")}, card)
    assert it.classes[-1] == last
    assert f"the probability of '{last}'" in it.describe()
    cat = it.classes.index("cat")
    probs = np.full((2, 2), 0.25)
    probs[:, cat] = 0.75
    assert render(it, probs).splitlines()[1] == ("5,0.75" if last == "cat" else "5,0.25")


def test_a_class_that_is_none_is_no_positive_one(tmp_path: Path) -> None:
    tables = TABLES | {"sample_submission.csv": rows("id,target", "5,0.5", "4,0.5")}
    assert 'positive = "bird" is none of two classes; there are cat, dog' in refusal(
        tmp_path, IMAGES, tables, 'positive = "bird"'
    )


def test_a_placeholder_does_not_count_against_a_column_of_the_same_name(tmp_path: Path) -> None:
    tables = {
        "train.csv": rows("id,label,label_id", "1,cat,0", "2,dog,1", "3,cat,0"),
        "sample_submission.csv": rows("id,label", "5,0", "4,0"),
    }
    it = load_it(tmp_path, IMAGES, tables)
    assert it.classes == ("cat", "dog")
    assert "sample_submission.csv answers '0'" in it.notes[0]


@pytest.mark.parametrize(
    ("train", "answer", "column"),
    [
        (("id,target,class_id", "1,cat,0", "2,dog,1", "3,cat,0"), "0", "class_id"),
        (("id,target,class_id", "1,cat,0", "2,dog,1", "3,cat,0"), "cat", "target"),
        (("id,class_id,class_name", "1,0,cat", "2,1,dog", "3,0,cat"), "cat", "class_name"),
        (("id,class_id,class_name", "1,0,cat", "2,1,dog", "3,0,cat"), "0", "class_id"),
        (("id,class_id,class_name", "1,0,cat", "2,1,dog", "3,0,cat"), "?", "class_id"),
        (("id,target,fold", "1,cat,0", "2,dog,1", "3,cat,0"), "0", "target"),  # a fold is no label
    ],
)
def test_the_sample_tells_which_column_holds_the_labels(
    tmp_path: Path, train: tuple[str, ...], answer: str, column: str
) -> None:
    tables = {"train.csv": rows(*train), "sample_submission.csv": rows("id,predict", f"4,{answer}", f"5,{answer}")}
    it = load_it(tmp_path, IMAGES, tables)
    at = train[0].split(",").index(column)
    assert list(it.train["target"]) == [line.split(",")[at] for line in train[1:]]
    noted = f"sample_submission.csv answers '{answer}', which are no labels" in " ".join(it.notes)
    assert noted == (answer not in set(it.train["target"]))


@pytest.mark.parametrize(
    ("labels", "answers", "wants"),
    [
        (("0", "1"), ("5e-1", "5e-1"), "probs"),
        (("0", "1"), ("1e-05", "0.5"), "probs"),
        (("0", "1"), (" 0.5", "0"), "probs"),
        (("0", "1"), ("+0.5", "0."), "probs"),
        (("cat", "dog"), ("0", "0.5"), "probs"),
        (("cat", "dog"), ("0.5", "maybe"), "labels"),
        (("0", "1"), ("1", "0"), "labels"),
        (("0", "1"), ("1.5", "0"), "labels"),
        (("0", "1"), ("nan", "0"), "labels"),
    ],
)
def test_a_probability_may_be_written_in_any_way(
    tmp_path: Path, labels: tuple[str, str], answers: tuple[str, str], wants: str
) -> None:
    tables = {
        "train.csv": rows("id,target", f"1,{labels[0]}", f"2,{labels[1]}", f"3,{labels[0]}"),
        "sample_submission.csv": rows("id,target", f"4,{answers[0]}", f"5,{answers[1]}"),
    }
    it = load_it(tmp_path, IMAGES, tables)
    assert it.submission_format.wants == wants
    strange = wants == "labels" and not set(answers) <= set(labels)
    assert ("are no labels" in " ".join(it.notes)) == strange


@pytest.mark.parametrize(
    "columns",
    [("Cat", "DOG"), ("p(cat)", "p(dog)"), ("cat_prob", "dog_prob"), ("class: Cat", "class: Dog"), ("cat ", " dog")],
)
def test_a_column_may_spell_its_class_otherwise(tmp_path: Path, columns: tuple[str, str]) -> None:
    sample = WIDE.replace("cat,dog", ",".join(columns))
    it = load_it(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})
    assert it.classes == ("cat", "dog")
    assert render(it, np.array([[1.0, 0.0]] * 2)).splitlines() == [f"id,{','.join(columns)}", "4,1,0", "5,1,0"]


def test_numbers_name_classes_however_they_are_written(tmp_path: Path) -> None:
    train = rows("id,target", "1,0", "2,1", "3,10")
    sample = rows("id,10.0,0.0,1.0", "4,0,0,1", "5,0,0,1")
    it = load_it(tmp_path, IMAGES, {"train.csv": train, "sample_submission.csv": sample})
    assert it.classes == ("10", "0", "1")


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (rows(",id,cat,dog", "4,7,0.5,0.5", "5,8,0.5,0.5"), "line 2: the column 'id' is no class"),
        (rows("id,cat,dog,Usage", "4,0.5,0.5,Public", "5,0.5,0.5,Private"), "'Public' in it no probability"),
        (rows("id,cat,dog,", "4,0.5,0.5,", "5,0.5,0.5,"), "the column 'column 4' is no class"),
        (rows("id,predict,Usage", "4,cat,Public", "5,cat,Public"), "the column 'predict' is no class"),
        (rows("id,cat,dog,bird", "4,0,0,12", "5,0,0,1"), "'12' in it no probability"),
    ],
)
def test_a_column_that_is_neither_id_nor_answer_is_refused(tmp_path: Path, sample: str, said: str) -> None:
    assert said in refusal(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample})


def test_a_sample_that_nobody_has_filled_in_may_have_any_class(tmp_path: Path) -> None:
    sample = rows("id,cat,dog,bird", "5,,,", "4,,,")
    assert load_it(tmp_path, IMAGES, TABLES | {"sample_submission.csv": sample}).classes == ("cat", "dog", "bird")


@pytest.mark.parametrize(
    ("header", "lines"),
    [
        ("predict,id", ("cat,5", "cat,4")),
        ("predict,id", ("0,5", "0,4")),
        ("target,id", ("cat,5.jpg", "cat,4.jpg")),
        ("cat,id,dog", ("0.5,5,0.5", "0.5,4,0.5")),
    ],
)
def test_ids_may_stand_elsewhere_than_first(tmp_path: Path, header: str, lines: tuple[str, ...]) -> None:
    it = load_it(tmp_path, IMAGES, TABLES | {"sample_submission.csv": rows(header, *lines)})
    assert list(pairs(it)[1].values()) == ["test/5.jpg", "test/4.jpg"]
    written = render(it, np.array([[0.75, 0.25]] * 2))
    path = tmp_path / "made.csv"
    path.write_text(written)
    check_csv(it, path)
    table = read_table(path)
    assert list(table.columns) == header.split(",")
    assert table.iloc[:, header.split(",").index("id")].tolist() == [line.split(",")[1] for line in lines]
    if "dog" in header:
        assert table["cat"].tolist() == ["0.75", "0.75"]


# --- what is no sample -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["sample_submission.csv.gz", "sample_submission.txt", "example.csv", "Sample Sub.xlsx"]
)
def test_a_sample_that_is_not_known_as_one_is_pointed_out(tmp_path: Path, name: str) -> None:
    it = load_it(tmp_path, IMAGES, {"labels.csv": TRAIN, name: SAMPLE})
    (note,) = it.notes
    assert f"where {name} is one" in note
    assert 'sample_submission = "NAME"' in note
    named = load_it(tmp_path, IMAGES, {}, f'sample_submission = "./{name}"')
    assert list(named.test["id"]) == ["5", "4"]
    assert not load_it(tmp_path, IMAGES, {}, 'sample_submission = ""').notes
    for elsewhere in ("/etc/hostname", "../../../x.csv", "./"):
        assert f'sample_submission = "{elsewhere}"' in refusal(
            tmp_path, IMAGES, {}, f'sample_submission = "{elsewhere}"'
        )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(SAMPLE.encode()), "this is a gzip archive"),
        (b"PK\x03\x04 and so on", "a spreadsheet or a ZIP archive"),
        (b"\n<!DOCTYPE html><html>", "this is a web page and no CSV; download it again"),
        (b"<HTML>", "this is a web page"),
    ],
)
def test_what_is_no_table_is_called_by_its_name(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(PodiumError) as refused:
        read_table(tmp_path / "t.csv")
    assert said in str(refused.value)


@pytest.mark.parametrize("header", ['id,"pre\ndict"', "\n\ufeffid,predict"])
def test_a_header_that_could_not_be_written_again_is_refused_at_once(tmp_path: Path, header: str) -> None:
    said = refusal(tmp_path, IMAGES, TABLES | {"sample_submission.csv": rows(header, "5,cat", "4,cat")})
    assert "sample_submission.csv, line 1: this header cannot be written to the letter" in said


@pytest.mark.parametrize(("gone", "ids"), [("train", "12345"), ("test", "45")])
def test_the_folder_of_one_role_never_serves_the_other(tmp_path: Path, gone: str, ids: str) -> None:
    """Though the one that is left has an image for every id."""
    left = "test" if gone == "train" else "train"
    train = rows("id,target", *(f"{name},{'cat' if name == '4' else 'dog'}" for name in ids))
    images = [f"{left}_image/{name}.jpg" for name in "12345"]
    said = refusal(tmp_path, images, TABLES | {"train.csv": train})
    assert f"{left}_image is its only folder of images, and 2 of them would be both trained on and asked for" in said
    card = f'train_images = "{left}_image"\ntest_images = "{left}_image"'
    assert "both trained on and asked for" in load_it(tmp_path, [], {}, card).notes[0]


@pytest.mark.parametrize("folder", ["train_and_test", "train-test-images", "test-of-skill", "all_images"])
def test_one_folder_may_hold_all_images(tmp_path: Path, folder: str) -> None:
    it = load_it(tmp_path, [f"{folder}/{name}.jpg" for name in "12345"], TABLES)
    assert list(it.test["image"]) == [f"{folder}/5.jpg", f"{folder}/4.jpg"]
    assert not it.notes


def test_a_metric_that_the_form_of_the_answers_contradicts_is_pointed_out(tmp_path: Path) -> None:
    train = TRAIN.replace("2,dog", "2,bird")
    images = [*IMAGES, "train/6.jpg"]
    tables = {"train.csv": train + "6,dog\n", "sample_submission.csv": SAMPLE}
    assert "log_loss is a metric of probs" in " ".join(load_it(tmp_path, images, tables, 'metric = "log_loss"').notes)
    assert not load_it(tmp_path, images, tables, 'metric = "macro_f1"').notes


@pytest.mark.parametrize("name", [" 5", "5 ", "5\u00a0"])
def test_blanks_around_an_id_stay_and_hide_no_image(tmp_path: Path, name: str) -> None:
    it = load_it(tmp_path, IMAGES, TABLES | {"sample_submission.csv": rows("id,target", f"{name},cat", "4,cat")})
    assert pairs(it)[1] == {name: "test/5.jpg", "4": "test/4.jpg"}


def test_ids_without_images_are_shown_with_their_blanks_and_a_way_out(tmp_path: Path) -> None:
    said = refusal(tmp_path, IMAGES, TABLES | {"sample_submission.csv": rows("id,target", "05 ,cat", "4,cat")})
    assert "(ids '05 ')" in said
    assert "name their files in a test.csv, beside 'id'" in said
    tables = {"sample_submission.csv": rows("id,target", "05,cat", "4,cat"), "test.csv": rows("id,file", "05,5", "4,4")}
    assert list(load_it(tmp_path, IMAGES, TABLES | tables).test["image"]) == ["test/5.jpg", "test/4.jpg"]
