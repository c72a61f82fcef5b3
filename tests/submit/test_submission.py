"""The submission: the sample's rows, columns and line ends to the letter, or nothing at all."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from podium import PodiumError
from podium.competition.csv_files import CsvStyle, csv_text
from podium.competition.load import Competition, load
from podium.competition.score import score
from podium.competition.submission_format import SubmissionFormat
from podium.submit.check import check_class_shares, check_csv, render
from tiny import Podium, write_competition

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


def scored(tmp_path: Path, submission: str, solution: str, metric: str | None = None) -> float:
    (tmp_path / "made.csv").write_text(submission)
    (tmp_path / "solution.csv").write_text(solution)
    return float(json.loads(score(tmp_path / "made.csv", tmp_path / "solution.csv", metric))["score"])


def test_a_score_pairs_rows_by_id_and_ignores_kaggles_usage_column(tmp_path: Path) -> None:
    solution = "id,label,Usage\n1,a,Public\n2,b,Private\n3,a,Private\n4,c,Public\n"
    assert scored(tmp_path, "id,predict\n4,c\n3,b\n2,b\n1,a\n", solution) == 0.75
    assert scored(tmp_path, "id,predict\n4,c\n3,b\n2,b\n1,a\n", solution, "balanced_accuracy") == pytest.approx(5 / 6)


def test_a_score_of_probabilities_knows_its_columns(tmp_path: Path) -> None:
    wide = "id,b,a\n1,0.2,0.8\n2,0.6,0.4\n"
    assert scored(tmp_path, wide, "id,label\n1,a\n2,b\n") == pytest.approx(-(np.log(0.8) + np.log(0.6)) / 2)
    assert scored(tmp_path, wide, "id,label\n1,a\n2,b\n", "accuracy") == 1.0
    assert scored(tmp_path, "id,p\n1,0.1\n2,0.9\n3,0.3\n", "id,y\n1,0\n2,1\n3,0\n", "roc_auc") == 1.0


def test_kappa_measures_on_the_whole_scale(tmp_path: Path) -> None:
    truth, said = [0, 1, 2, 4, 4, 0], [0, 1, 1, 4, 2, 1]
    tables = ["id,x\n" + "".join(f"{i},{value}\n" for i, value in enumerate(values)) for values in (said, truth)]
    wanted = cohen_kappa_score(truth, said, weights="quadratic", labels=[0, 1, 2, 3, 4])
    assert scored(tmp_path, tables[0], tables[1], "quadratic_kappa") == pytest.approx(wanted)


def test_columns_with_a_prefix_are_their_classes(tmp_path: Path) -> None:
    wide = "id,class_a,class_b\n1,0.8,0.2\n2,0.4,0.6\n"
    assert scored(tmp_path, wide, "id,label\n1,a\n2,b\n", "accuracy") == 1.0


@pytest.mark.parametrize(
    ("submission", "answer"),
    [
        ("id,predict\n1,a\n", "'2' is missing first"),
        ("id,predict\n1,a\n2,b\n3,a\n", "1 are in no row of it"),
        ("id,predict\n1,a\n1,a\n", "line 3: id '1' stands there twice"),
        ("id\n1\n2\n", "one column only"),
        ("id,a,c\n1,0.5,0.5\n2,0.5,0.5\n", "no column for the class 'b'"),
        ("id,a,b\n1,0.5,0.5\n2,0,0\n", "id '2' has no probabilities"),
        ("id,a,b\n1,0.5,1.5\n2,0,1\n", "id '1' has no probabilities"),
        ("id,a,b\n1,0.5,0.5\n2,x,0.5\n", "id '2' has a probability that is not a number"),
    ],
)
def test_a_score_refuses_what_it_cannot_pair(tmp_path: Path, podium: Podium, submission: str, answer: str) -> None:
    (tmp_path / "made.csv").write_text(submission)
    (tmp_path / "solution.csv").write_text("id,label\n1,a\n2,b\n")
    status, _, err = podium("score", tmp_path / "made.csv", "--solution", tmp_path / "solution.csv")
    assert status == 1
    assert answer in err


def test_a_metric_that_is_unknown_names_those_there_are(podium: Podium) -> None:
    status, _, err = podium("score", "a.csv", "--solution", "b.csv", "--metric", "acuracy")
    assert status == 1
    assert "accuracy" in err


def test_a_score_may_be_told_whose_probability_a_column_holds(tmp_path: Path, podium: Podium) -> None:
    made, truth = tmp_path / "made.csv", tmp_path / "truth.csv"
    made.write_text("id,target\n1,0.9\n2,0.2\n")
    truth.write_text("id,state\n1,healthy\n2,sick\n")
    command = ("score", made, "--solution", truth, "--metric", "roc_auc")
    found = [json.loads(podium(*command, *more)[1])["score"] for more in ((), ("--positive", "healthy"))]
    assert found == [0, 1]
