"""The submission: the sample's rows, columns and line ends to the letter, or nothing at all."""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium import PodiumError
from podium.competition.csv_files import CsvStyle, csv_text
from podium.competition.load import Competition, load
from podium.competition.submission_format import SubmissionFormat
from podium.submit.check import check_class_shares, check_csv, render
from tiny import write_competition

text = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(str.strip)
names = st.lists(text, min_size=2, max_size=6, unique=True)


def competition(
    ids: list[str], classes: list[str], columns: list[str], wants: str = "labels", newline: str = "\n"
) -> Competition:
    test = pd.DataFrame({"id": ids, "image": [f"{i}.jpg" for i in range(len(ids))]})
    train = pd.DataFrame({"id": classes, "target": classes, "image": classes})
    form = CsvStyle(csv_text([columns], ""), ",", newline)
    shape = SubmissionFormat(tuple(columns), wants, "sample_submission.csv", form)
    return Competition("x", "x", Path(), train, test, tuple(classes), "accuracy", shape, {}, None, "near", ())


@given(names, names, names, st.sampled_from(["\n", "\r\n"]), st.randoms(use_true_random=False))
def test_labels_go_in_as_train_csv_writes_them_in_the_order_of_the_sample(
    ids: list[str], classes: list[str], header: list[str], newline: str, draws: object
) -> None:
    answers = np.random.default_rng(len(ids)).integers(len(classes), size=len(ids))
    written = render(competition(ids, classes, header[:2], newline=newline), np.eye(len(classes))[answers])
    rows = list(csv.reader(io.StringIO(written, newline="")))
    assert rows == [header[:2], *([name, classes[k]] for name, k in zip(ids, answers, strict=True))]
    assert written.endswith(newline)


@given(names, st.lists(text, min_size=3, max_size=6, unique=True), st.integers(0, 99))
def test_probabilities_keep_their_column_and_sum_to_one(ids: list[str], classes: list[str], seed: int) -> None:
    probs = np.random.default_rng(seed).dirichlet(np.ones(len(classes)), len(ids)).astype(np.float32)
    written = render(competition(ids, classes, ["id", *classes], "probs"), probs)
    rows = list(csv.reader(io.StringIO(written, newline="")))
    assert rows[0] == ["id", *classes]
    values = np.array([row[1:] for row in rows[1:]], dtype=float)
    assert np.allclose(values, probs, atol=1e-7)
    assert np.allclose(values.sum(1), 1, atol=1e-5)


def test_one_column_for_two_classes_holds_the_probability_of_the_second() -> None:
    written = render(competition(["a"], ["0", "1"], ["id", "has_cat"], "probs"), np.array([[0.25, 0.75]]))
    assert written == "id,has_cat\na,0.75\n"


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("id,predict\nb,x\na,y\n", "at row 1 first"),
        ("id,predict\na,x\n", "1 ids that differ from the 2 expected, at row 2"),
        ("id,predict\na,x\nb,x\nc,x\n", "3 ids that differ from the 2 expected, at row 3"),
        ("id,label\na,x\nb,y\n", "the columns are ['id', 'label'], not ['id', 'predict']"),
        ("id,predict\na,x\nb,nan\n", "line 3: 'nan' is no prediction"),
        ("id,predict\na,x\nb,\n", "line 3: '' is no prediction"),
    ],
)
def test_whatever_kaggle_would_refuse_is_refused(tmp_path: Path, content: str, answer: str) -> None:
    path = tmp_path / "made.csv"
    path.write_text(content)
    with pytest.raises(PodiumError) as refused:
        check_csv(competition(["a", "b"], ["x", "y"], ["id", "predict"]), path)
    assert answer in str(refused.value)


def test_a_prediction_that_is_no_number_is_never_written() -> None:
    with pytest.raises(PodiumError, match="the prediction for id 'b' is not a number"):
        render(competition(["a", "b"], ["x", "y"], ["id", "predict"]), np.array([[0.5, 0.5], [np.nan, 0.5]]))
    with pytest.raises(PodiumError, match="predictions of shape"):
        render(competition(["a", "b"], ["x", "y"], ["id", "predict"]), np.ones((1, 2)))


@pytest.mark.parametrize(
    "deform",
    [
        lambda text: text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: "\ufeff" + text,
        lambda text: text.rstrip("\n"),
        lambda text: text.replace(",", ";"),
        lambda text: text.replace(",", "\t"),
        lambda text: text.replace("id,predict", ",predict"),
        lambda text: text.replace("id,predict", "id,"),
        lambda text: text.replace("id,predict", '"id", "predict"'),
        lambda text: text.replace("id,predict", " id ,\u00a0predict"),
        lambda text: text.replace("\n0", '\n"0').replace(",red", '","red"'),
        lambda text: text.replace(",red", ","),
        lambda text: text.replace(",red", ",0"),
        lambda text: "\n" + text,
    ],
)
def test_whatever_the_sample_looks_like_its_header_ids_and_line_ends_are_kept(
    tmp_path: Path, deform: Callable[[str], str]
) -> None:
    path = write_competition(tmp_path) / "sample_submission.csv"
    path.write_bytes(deform(path.read_text()).encode())
    of = load("tiny", tmp_path)
    made = tmp_path / "made.csv"
    made.write_bytes(render(of, np.eye(len(of.classes))[np.arange(len(of.test)) % 4]).encode())
    check_csv(of, made)
    sample, text = path.read_bytes().decode("utf-8-sig").lstrip("\n"), made.read_bytes().decode()
    (end,) = set(re.findall("\r?\n|\r", sample))
    assert set(re.findall("\r?\n|\r", text)) == {end}
    wanted, found = sample.rstrip(end).split(end), text.rstrip(end).split(end)
    assert found[0] == wanted[0]
    ids = [[line.strip('"')[:3] for line in lines[1:]] for lines in (wanted, found)]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 7


def test_one_class_for_all_is_refused_unless_it_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    names = [str(number) for number in range(100)]
    of = competition(names, ["a", "b"], ["id", "predict"])
    probs = np.tile([[0.9, 0.1]], (100, 1))
    with pytest.raises(
        PodiumError, match=r"all 100 test images would be answered 'a', which is 50.0% of training.*--anyway"
    ):
        check_class_shares(of, probs, anyway=False)
    check_class_shares(of, probs, anyway=True)
    assert "not mixed as the training images are: 'a' 100.0% instead of 50.0%" in capsys.readouterr().err
    few = competition(names[:9], ["a", "b"], ["id", "predict"])
    check_class_shares(few, probs[:9], anyway=False)  # which may be an accident
    assert "warning" in capsys.readouterr().err
    likely = competition(names, ["a", "b"], ["id", "p"], "probs")
    check_class_shares(
        likely, np.tile([[0.55, 0.45]], (100, 1)), anyway=False
    )  # unsure of all, but of no class more than others
    assert not capsys.readouterr().err
    with pytest.raises(PodiumError, match="all 100 test images"):
        check_class_shares(likely, np.tile([[0.9999, 0.0001]], (100, 1)), anyway=False)


def test_probabilities_that_do_not_sum_to_one_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "made.csv"
    path.write_text("id,x,y\na,0.5,0.5\nb,0.5,0.4\n")
    with pytest.raises(PodiumError, match=r"line 3: the probabilities sum to 0\.9"):
        check_csv(competition(["a", "b"], ["x", "y"], ["id", "x", "y"], "probs"), path)
