"""Scoring a submission: rows are paired by id, columns of probabilities by class."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, cohen_kappa_score

from podium.basics.errors import PodiumError
from podium_annex.scoring.score_csv import score
from tiny import Podium, one_line


def all_scores(folder: Path, submission: str, solution: str, metric: str | None = None) -> dict[str, object]:
    (folder / "made.csv").write_text(submission)
    (folder / "solution.csv").write_text(solution)
    return dict(json.loads(score(folder / "made.csv", folder / "solution.csv", metric)))


def score_texts(folder: Path, submission: str, solution: str, metric: str | None = None) -> float:
    return float(str(all_scores(folder, submission, solution, metric)["score"]))


def test_rows_are_paired_by_id(tmp_path: Path) -> None:
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
    one_line(podium("score", "a.csv", "--solution", "b.csv", "--metric", "acuracy"), "accuracy")


def test_the_class_of_a_column_of_probabilities_can_be_named(tmp_path: Path, podium: Podium) -> None:
    made, solution = tmp_path / "made.csv", tmp_path / "solution.csv"
    made.write_text("id,target\n1,0.9\n2,0.2\n")
    solution.write_text("id,state\n1,healthy\n2,sick\n")
    command = ("score", made, "--solution", solution, "--metric", "roc_auc")
    scores = [json.loads(podium(*command, *flags)[1])["score"] for flags in ((), ("--positive", "healthy"))]
    assert scores == [0, 1]


# --- what the cells hold -----------------------------------------------------------------------------

LABELS = "id,label\n1,a\n2,b\n3,c\n4,a\n"
ONE_HOT = "id,a,b,c\n1,1,0,0\n2,0,1,0\n3,0,0,1\n4,1,0,0\n"
PROBS = "id,a,b,c\n1,.8,.1,.1\n2,.2,.6,.2\n3,.1,.1,.8\n4,.7,.2,.1\n"
PERFECT = {
    "one_hot_probs": (PROBS, ONE_HOT, "roc_auc", 1),
    "one_hot_accuracy": (PROBS, ONE_HOT, "accuracy", 1),
    "one_hot_other_order": (PROBS, "id,c,a,b\n1,0,1,0\n2,0,0,1\n3,1,0,0\n4,0,1,0\n", "accuracy", 1),
    "one_hot_labels": ("id,predict\n1,a\n2,b\n3,c\n4,a\n", ONE_HOT, "accuracy", 1),
    "several_labels": ("id,a,b\n1,.9,.8\n2,.1,.2\n", "id,a,b\n1,1,1\n2,0,0\n", "roc_auc", 1),
    "several_labels_marked": ("id,a,b\n1,1,1\n2,0,0\n", "id,a,b\n1,1,1\n2,0,0\n", "macro_f1", 1),
    "ranking": ("id,label\n1,a b\n2,b c\n3,c a\n4,a\n", LABELS, "map_at_5", 1),
    "ranking_long": ("id,label\n1,a x\n2,b x\n3,c x\n4,a x\n", LABELS, "top_3_accuracy", 1),
    "confidence": ("id,label\n1,a 0.9\n2,b 0.8\n3,c 0.7\n4,a 0.1\n", LABELS, "gap", 1),
    "confidence_seen": ("id,label\n1,a 0.9\n2,b 0.8\n3,c 0.7\n4,a 0.1\n", LABELS, None, 1),
    "ids_last": ("label,id\na,1\nb,2\nc,3\na,4\n", "label,id\na,1\nb,2\nc,3\na,4\n", None, 1),
    "other_columns": ("id,cancer\n1,.9\n2,.1\n", "id,age,cancer,target\n1,1,1,0\n2,0,0,1\n", "roc_auc", 1),
    "usual_name": ("id,predict\n1,x\n2,y\n", "id,place,label\n1,y,x\n2,x,y\n", None, 1),
    "reversed_classes": ("id,1,0\n1,.1,.9\n2,.9,.1\n3,.2,.8\n", "id,y\n1,0\n2,1\n3,0\n", "average_precision", 1),
}


@pytest.mark.parametrize("name", PERFECT)
def test_a_perfect_submission_has_the_best_score(tmp_path: Path, name: str) -> None:
    submission, solution, metric, best = PERFECT[name]
    assert score_texts(tmp_path, submission, solution, metric) == best


def test_a_ranking_counts_the_place_of_the_true_label(tmp_path: Path) -> None:
    submission = "id,label\n1,b a\n2,a c\n3,a b c\n4,a b c\n"
    assert score_texts(tmp_path, submission, LABELS, "map_at_3") == pytest.approx((1 / 2 + 0 + 1 / 3 + 1) / 4)
    assert score_texts(tmp_path, submission, LABELS, "top_3_accuracy") == 0.75


def test_the_surest_answers_count_first_and_a_blank_one_is_wrong(tmp_path: Path) -> None:
    submission = "id,label\n1,a 0.2\n2,c 0.9\n3,c 12\n4,\n"
    assert all_scores(tmp_path, submission, LABELS) == {"metric": "gap", "score": pytest.approx((1 + 2 / 3) / 4)}


def test_of_two_columns_the_positive_class_is_found_by_name(tmp_path: Path) -> None:
    truth, probs = [0, 1, 0, 1], [0.1, 0.7, 0.8, 0.6]
    submission = "id,1,0\n" + "".join(f"{n},{p},{1 - p:.1f}\n" for n, p in enumerate(probs))
    expected = pytest.approx(average_precision_score(truth, probs))
    one_hot = "id,1,0\n" + "".join(f"{n},{y},{1 - y}\n" for n, y in enumerate(truth))
    for solution in (one_hot, "id,y\n" + "".join(f"{n},{y}\n" for n, y in enumerate(truth))):
        assert score_texts(tmp_path, submission, solution, "average_precision") == expected


# --- Usage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["id,Usage,label", "id,usage,target"])
def test_both_parts_of_usage_are_scored(tmp_path: Path, header: str) -> None:
    rows = ["1,Public,a", "2,Private,b", "3,Private,a", "4,Public,c", "5,Ignored,x"]
    submission = "id,predict\n1,a\n2,b\n3,b\n4,c\n5,a\n"
    scores = all_scores(tmp_path, submission, "\n".join([header, *rows, ""]))
    assert scores == {"metric": "accuracy", "score": 0.75, "public": 1.0, "private": 0.5}


def test_a_part_in_which_the_metric_is_not_defined_is_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    solution = "id,y,Usage\n1,0,Public\n2,1,Public\n3,0,Private\n"
    scores = all_scores(tmp_path, "id,y\n1,.1\n2,.9\n3,.2\n", solution, "roc_auc")
    assert scores == {"metric": "roc_auc", "score": 1.0, "public": 1.0, "private": None}
    assert "private" in capsys.readouterr().err


# --- refusals ----------------------------------------------------------------------------------------

ZERO_ONE = "id,y\n1,0\n2,1\n3,0\n"
REFUSED = {
    "numbers": ("id,y\n1,3.25\n2,7.5\n", "id,y\n1,3.5\n2,7.25\n", None, "solution", ("'3.5'", "rmse")),
    "number_columns": ("id,x,y\n1,3,1\n", "id,x,y\n1,3.5,1\n", None, "solution", ("line 2", "'3.5'", "rmse")),
    "probabilities": ("id,y\n1,0.2\n2,0.9\n3,0.1\n", ZERO_ONE, None, "made", ("'0.2'", "roc_auc")),
    "some_probabilities": ("id,y\n1,0\n2,1\n3,0.1\n", ZERO_ONE, None, "made", ("'0.1'", "roc_auc")),
    "other_number": ("id,y\n1,0.0\n2,1.0\n3,0.0\n", ZERO_ONE, None, "made", ("id '1'", "'0.0'", "'0'")),
    "blank": ("id,y\n1,a\n2,b \n3,c\n4,a\n", LABELS, None, "made", ("id '2'", "'b '", "'b'")),
    "mark": ("id,y\n1,1\n2,0\n", "id,y\n1,True\n2,False\n", None, "made", ("id '1'", "'1'", "'True'")),
    "other_labels": ("id,y\n1,x\n2,y\n3,x\n4,x\n", LABELS, None, "made", ("'x'", "a, b, c", "--metric")),
    "ranking": ("id,y\n1,a b\n2,b a\n3,c a\n4,a b\n", LABELS, None, "made", ("'a b'", "map_at_5")),
    "ranking_of_others": ("id,y\n1,x y\n2,x\n3,x\n4,x\n", LABELS, "map_at_5", "made", ("'x'", "a, b, c")),
    "blank_truth": ("id,y\n1,a\n2,b\n", "id,y\n1,a\n2,\n", None, "solution", ("line 3", "blank", "fill it in")),
    "unclear": ("id,p\n1,a\n2,b\n", "id,x,y\n1,a,b\n2,b,a\n", None, "solution", ("x, y", "'p'")),
    "only_usage": ("id,y\n1,a\n", "id,Usage\n1,Public\n", None, "solution", ("'Usage'", "add one")),
    "labels": ("id,y\n1,a\n2,b\n3,c\n4,b\n", LABELS, "log_loss", "made", ("hold labels", "'a'", "accuracy")),
    "labels_of_two": ("id,y\n1,a\n2,b\n", "id,y\n1,b\n2,a\n", "roc_auc", "made", ("hold labels", "column")),
    "neither_0_nor_1": (PROBS, ONE_HOT.replace("0,1,0", "0,2,0"), None, "solution", ("line 3", "'2'", "0 nor 1")),
}

MANY = [f"{number},0.5,0.3,0.2" for number in range(20)]
MARKED = [f"{number},{'0,1,0' if number % 2 else '1,0,0'}" for number in range(20)]


def with_odd_line(marks: str) -> tuple[str, str]:
    """Returns probabilities that sum to 1, and a solution with one 1 in each line but the fifth."""
    files = [MANY, [*MARKED[:3], f"3,{marks}", *MARKED[4:]]]
    submission, solution = ("\n".join(["id,a,b,c", *lines]) for lines in files)
    return submission, solution


@pytest.mark.parametrize(("marks", "found"), [("1,1,0", "2 columns"), ("0,0,0", "no column")])
@pytest.mark.parametrize("metric", [None, "roc_auc", "balanced_accuracy"])
def test_a_line_that_is_not_like_the_others_is_refused(
    tmp_path: Path, marks: str, found: str, metric: str | None
) -> None:
    submission, solution = with_odd_line(marks)
    with pytest.raises(PodiumError) as refused:
        score_texts(tmp_path, submission, solution, metric)
    assert f"solution.csv, line 5: {found}" in str(refused.value)
    assert "correct that line" in str(refused.value)
    several = submission.replace("0.5,", "0.7,")  # these do not sum to 1
    assert all_scores(tmp_path, several, solution)["metric"] == "roc_auc"


@pytest.mark.parametrize("name", REFUSED)
def test_cells_that_cannot_be_compared_are_refused(tmp_path: Path, name: str) -> None:
    submission, solution, metric, file, parts = REFUSED[name]
    with pytest.raises(PodiumError) as refused:
        score_texts(tmp_path, submission, solution, metric)
    message = str(refused.value)
    assert message.startswith(str(tmp_path / f"{file}.csv"))
    assert [part for part in parts if part not in message] == []


def test_a_class_that_the_solution_lacks_is_a_wrong_answer(tmp_path: Path) -> None:
    assert score_texts(tmp_path, "id,y\n1,a\n2,b\n3,rare\n4,a\n", LABELS) == 0.75
