"""Scoring a submission: rows are paired by id, columns of probabilities by class."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from podium.competition.score_csv import score
from tiny import Podium, one_line


def score_texts(folder: Path, submission: str, solution: str, metric: str | None = None) -> float:
    (folder / "made.csv").write_text(submission)
    (folder / "solution.csv").write_text(solution)
    return float(json.loads(score(folder / "made.csv", folder / "solution.csv", metric))["score"])


def test_rows_are_paired_by_id_and_kaggles_usage_column_is_ignored(tmp_path: Path) -> None:
    submission = "id,predict\n4,c\n3,b\n2,b\n1,a\n"
    solution = "id,label,Usage\n1,a,Public\n2,b,Private\n3,a,Private\n4,c,Public\n"
    assert score_texts(tmp_path, submission, solution) == 0.75
    assert score_texts(tmp_path, submission, solution, "balanced_accuracy") == pytest.approx(5 / 6)


def test_columns_of_probabilities_are_paired_by_class(tmp_path: Path) -> None:
    submission, solution = "id,b,a\n1,0.2,0.8\n2,0.6,0.4\n", "id,label\n1,a\n2,b\n"
    assert score_texts(tmp_path, submission, solution) == pytest.approx(-(np.log(0.8) + np.log(0.6)) / 2)
    assert score_texts(tmp_path, submission, solution, "accuracy") == 1.0


def test_one_column_of_probabilities_belongs_to_the_second_class(tmp_path: Path) -> None:
    assert score_texts(tmp_path, "id,p\n1,0.1\n2,0.9\n3,0.3\n", "id,y\n1,0\n2,1\n3,0\n", "roc_auc") == 1.0


def test_columns_may_have_a_prefix_before_the_class(tmp_path: Path) -> None:
    submission = "id,class_a,class_b\n1,0.8,0.2\n2,0.4,0.6\n"
    assert score_texts(tmp_path, submission, "id,label\n1,a\n2,b\n", "accuracy") == 1.0


def test_kappa_uses_the_whole_scale_even_where_a_grade_never_occurs(tmp_path: Path) -> None:
    truth, answers = [0, 1, 2, 4, 4, 0], [0, 1, 1, 4, 2, 1]
    submission, solution = (
        "id,x\n" + "".join(f"{image_id},{grade}\n" for image_id, grade in enumerate(grades))
        for grades in (answers, truth)
    )
    expected = cohen_kappa_score(truth, answers, weights="quadratic", labels=[0, 1, 2, 3, 4])
    assert score_texts(tmp_path, submission, solution, "quadratic_kappa") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("submission", "problem"),
    [
        ("id,predict\n1,a\n", "'2' is missing"),
        ("id,predict\n1,a\n2,b\n3,a\n", "3 ids do not match the 2 of"),
        ("id,predict\n1,a\n1,a\n", "line 3: id '1'"),
        ("id\n1\n2\n", "only one column"),
        ("id,a,c\n1,0.5,0.5\n2,0.5,0.5\n", "no column for the class 'b'"),
        ("id,a,b\n1,0.5,0.5\n2,0,0\n", "id '2' has no probabilities"),
        ("id,a,b\n1,0.5,1.5\n2,0,1\n", "id '1' has no probabilities"),
        ("id,a,b\n1,0.5,0.5\n2,x,0.5\n", "id '2' has a probability that is not a number"),
    ],
)
def test_a_submission_that_does_not_fit_the_solution_is_refused(
    tmp_path: Path, podium: Podium, submission: str, problem: str
) -> None:
    made, solution = tmp_path / "made.csv", tmp_path / "solution.csv"
    made.write_text(submission)
    solution.write_text("id,label\n1,a\n2,b\n")
    message = one_line(podium("score", made, "--solution", solution))
    assert str(made) in message
    assert problem in message


def test_an_unknown_metric_is_refused_with_a_near_one(podium: Podium) -> None:
    message = one_line(podium("score", "a.csv", "--solution", "b.csv", "--metric", "acuracy"))
    assert "accuracy" in message


def test_the_class_of_a_column_of_probabilities_can_be_named(tmp_path: Path, podium: Podium) -> None:
    made, solution = tmp_path / "made.csv", tmp_path / "solution.csv"
    made.write_text("id,target\n1,0.9\n2,0.2\n")
    solution.write_text("id,state\n1,healthy\n2,sick\n")
    command = ("score", made, "--solution", solution, "--metric", "roc_auc")
    scores = [json.loads(podium(*command, *flags)[1])["score"] for flags in ((), ("--positive", "healthy"))]
    assert scores == [0, 1]
