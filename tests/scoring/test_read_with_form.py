"""Scoring a submission of a known competition: whatever `submit` can write is read by the form of its answers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score

from layouts import load_files, table
from podium.basics.errors import PodiumError
from podium.competition.load import Competition
from podium.submissions.write_csv import render
from podium.tasks.metrics import METRICS
from podium.tasks.task import ONE_LABEL
from podium_annex.scoring.score_csv import score

TRAIN, TEST = ("1", "2", "3", "4"), ("5", "6", "7")
IMAGES = [f"{role}/{number}.jpg" for role, ids in (("train", TRAIN), ("test", TEST)) for number in ids]
ONE = table("id,label", "1,cat", "2,dog", "3,cat", "4,bird")
TWO = table("id,label", "1,cat", "2,dog", "3,cat", "4,dog")


def rows(header: str, cell: str) -> str:
    return table(header, *(f"{image_id},{cell}" for image_id in TEST))


# By what a cell holds: train.csv, the sample submission, the card, the truth in a solution.
KINDS = {
    "labels": (ONE, rows("id,label", "cat"), "", table("id,label", "5,dog", "6,bird", "7,cat")),
    "grades": (
        table("id,grade", "1,none", "2,mild", "3,severe", "4,none"),
        rows("id,grade", "none"),
        'metric = "quadratic_kappa"\ngrades = ["none", "mild", "severe"]',
        table("id,grade", "5,mild", "6,severe", "7,none"),
    ),
    "sure labels": (ONE, rows("id,labels", "cat 0.1"), "", table("id,label", "5,dog", "6,bird", "7,cat")),
    "ranking": (ONE, rows("id,label", "cat dog bird"), "", table("id,label", "5,dog", "6,bird", "7,cat")),
    "probabilities": (ONE, rows("id,dog,cat,bird", "0.4,0.3,0.3"), "", table("id,label", "5,dog", "6,bird", "7,cat")),
    "probabilities, truth in columns": (
        ONE,
        rows("id,dog,cat,bird", "0.4,0.3,0.3"),
        "",
        table("id,bird,cat,dog", "5,0,0,1", "6,1,0,0", "7,0,1,0"),
    ),
    "one probability": (TWO, rows("id,dog", "0.5"), 'metric = "roc_auc"', table("id,label", "5,dog", "6,cat", "7,dog")),
    "one probability of 0, truth as 0 and 1": (
        table("id,label", "1,0", "2,1", "3,0", "4,1"),
        rows("id,label", "0.5"),
        'metric = "log_loss"\npositive = "0"',
        table("id,label", "5,1", "6,0", "7,0"),
    ),
    "several labels": (
        table("id,tags", "1,cat dog", "2,dog", "3,cat", "4,bird cat"),
        rows("id,tags", "cat dog"),
        'task = "several_labels"',
        table("id,tags", "5,dog", "6,bird cat", "7,cat"),
    ),
    "several labels in columns": (
        table("id,cat,dog", "1,1,1", "2,0,1", "3,1,0", "4,0,0"),
        rows("id,cat,dog", "0.5,0.5"),
        "",
        table("id,cat,dog", "5,1,0", "6,0,1", "7,1,1"),
    ),
    "several targets": (
        table("id,hat,coat", "1,red,x", "2,blue,y", "3,red,z", "4,red,x"),
        rows("id,hat,coat", "red,x"),
        'task = "several_targets"',
        table("id,hat,coat", "5,red,y", "6,blue,z", "7,red,x"),
    ),
    "numbers": (
        table("id,age", "1,1.5", "2,2.5", "3,7.25", "4,0"),
        rows("id,age", "0.5"),
        'metric = "rmse"',
        table("id,age", "5,1", "6,2.5", "7,1e3"),
    ),
}


def loaded(root: Path, name: str) -> Competition:
    train, sample, card, _ = KINDS[name]
    return load_files(root, IMAGES, {"train.csv": train, "sample_submission.csv": sample}, card)


def scores(root: Path, competition: Competition, csv: str, solution: str) -> dict[str, Any]:
    (root / "made.csv").write_text(csv)
    (root / "solution.csv").write_text(solution)
    return dict(json.loads(score(root / "made.csv", root / "solution.csv", competition=competition)))


def true_predictions(competition: Competition, name: str) -> NDArray[np.float64]:
    """Returns the truth of the solution as sure predictions, read by hand."""
    lines = [line.split(",") for line in KINDS[name][3].splitlines()]
    header, answers = lines[0], [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    predictions = np.zeros((len(answers), len(competition.classes)))
    for row, answer in zip(predictions, answers, strict=True):
        for number, class_name in enumerate(competition.classes):
            column, _, label = class_name.partition("=")
            if label:
                row[number] = float(answer[column] == label)
            elif class_name in answer:
                row[number] = float(answer[class_name])
            else:
                row[number] = float(class_name in answer[header[1]].split(" "))
    return predictions


@pytest.mark.parametrize("name", KINDS)
def test_a_perfect_submission_scores_perfectly(tmp_path: Path, name: str) -> None:
    competition = loaded(tmp_path, name)
    csv = render(competition, true_predictions(competition, name))
    result = scores(tmp_path, competition, csv, KINDS[name][3])
    assert result["metric"] == competition.metric
    assert result["score"] == pytest.approx(METRICS[competition.metric]().best, abs=1e-9)


@pytest.mark.parametrize("name", KINDS)
def test_a_wrong_answer_costs_something(tmp_path: Path, name: str) -> None:
    competition = loaded(tmp_path, name)
    wrong = np.roll(true_predictions(competition, name), 1, axis=0) * 0.8 + 0.1
    predictions = wrong / wrong.sum(axis=1, keepdims=True) if competition.task is ONE_LABEL else wrong
    result = scores(tmp_path, competition, render(competition, predictions), KINDS[name][3])
    metric = METRICS[competition.metric]()
    assert metric.better * (metric.best - result["score"]) > 1e-3


def test_grades_are_in_the_order_of_the_card(tmp_path: Path) -> None:
    competition = loaded(tmp_path, "grades")
    csv = table("id,grade", "5,mild", "6,severe", "7,severe")  # the last is two grades off, and one by the alphabet
    expected = cohen_kappa_score([1, 2, 0], [1, 2, 2], weights="quadratic")
    assert scores(tmp_path, competition, csv, KINDS["grades"][3])["score"] == pytest.approx(expected)


def test_a_label_with_a_blank_is_one_label_if_the_competition_says_so(tmp_path: Path) -> None:
    train = table("id,state", "1,leaf spot", "2,rust red", "3,leaf spot", "4,rust red")
    sample = rows("id,state", "leaf spot")
    tables = {"train.csv": train, "sample_submission.csv": sample}
    competition = load_files(tmp_path, IMAGES, tables, 'task = "one_label"')
    assert competition.task is ONE_LABEL
    solution = table("id,state", "5,leaf spot", "6,rust red", "7,leaf spot")
    assert scores(tmp_path, competition, solution, solution)["score"] == 1.0


def test_a_true_label_that_is_no_class_makes_its_answers_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    competition = loaded(tmp_path, "labels")
    csv = table("id,label", "5,dog", "6,bird", "7,cat")
    assert scores(tmp_path, competition, csv, csv.replace("7,cat", "7,fish"))["score"] == pytest.approx(2 / 3)
    assert "fish" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("csv", "solution", "problem"),
    [
        (table("id,label", "5,dog", "6,bird", "7,Cat"), None, "made.csv: id '7': 'Cat' is not a class"),
        (table("id,name", "5,dog", "6,bird", "7,cat"), None, "no column 'label', which sample_submission.csv has"),
        (None, table("id,label", "5,x", "6,y", "7,z"), "solution.csv: id '5': 'x' is not a class"),
        (
            table("id,label", "5,dog", "6,bird", "8,cat"),
            table("id,label", "5,a", "6,b", "8,c"),
            "id '8' is not one of it",
        ),
    ],
)
def test_what_does_not_fit_the_competition_is_refused(
    tmp_path: Path, csv: str | None, solution: str | None, problem: str
) -> None:
    competition, right = loaded(tmp_path, "labels"), KINDS["labels"][3]
    with pytest.raises(PodiumError, match=problem):
        scores(tmp_path, competition, csv or right, solution or right)


def test_a_long_submission_is_scored_image_by_image(tmp_path: Path) -> None:
    names, images = ("any", "left"), [image.replace("/", "/ID_") for image in IMAGES]
    labels = {"1": (1, 1), "2": (0, 0), "3": (1, 0), "4": (0, 1), "5": (1, 0), "6": (0, 1), "7": (1, 1)}

    def long_rows(ids: tuple[str, ...]) -> list[str]:
        return [f"ID_{image}_{name},{labels[image][number]}" for number, name in enumerate(names) for image in ids]

    tables = {
        "train.csv": table("id,label", *long_rows(TRAIN)),
        "sample_submission.csv": table("id,label", *long_rows(TEST)),
    }
    competition = load_files(tmp_path, images, tables, 'metric = "log_loss"')
    assert competition.submission_format.long
    usage = ["Private", "Private", "Public"]
    solution = table(
        "id,label,Usage", *(f"{row},{part}" for row, part in zip(long_rows(TEST[::-1]), usage * 2, strict=True))
    )
    probs = np.array([labels[image] for image in TEST]) * 0.8 + 0.1
    probs[0] = 1 - probs[0]  # image 5, the public one
    result = scores(tmp_path, competition, render(competition, probs), solution)
    assert result["private"] == pytest.approx(-np.log(0.9))
    assert result["public"] == pytest.approx(-np.log(0.1))
    assert result["score"] == pytest.approx(-np.log([0.9, 0.9, 0.1]).mean())


@pytest.mark.parametrize("marks", ["1,1,0", "0,0,0"])
def test_a_true_row_without_exactly_one_class_is_refused(tmp_path: Path, marks: str) -> None:
    competition = loaded(tmp_path, "probabilities, truth in columns")
    csv = rows("id,dog,cat,bird", "0.4,0.3,0.3")
    with pytest.raises(PodiumError, match=r"solution\.csv: id '6' has a 1 in \d columns, not in one"):
        scores(tmp_path, competition, csv, table("id,bird,cat,dog", "5,0,0,1", f"6,{marks}", "7,0,1,0"))


def test_labels_are_no_probabilities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    competition = loaded(tmp_path, "labels")
    (tmp_path / "made.csv").write_text(rows("id,label", "cat"))
    (tmp_path / "solution.csv").write_text(KINDS["labels"][3])
    for metric, is_told in (("log_loss", True), ("accuracy", False), (None, False)):
        score(tmp_path / "made.csv", tmp_path / "solution.csv", metric, competition=competition)
        err = capsys.readouterr().err
        assert (f"made.csv hold labels, and {metric} needs probabilities" in err) == is_told


def test_a_long_submission_may_ask_for_some_numbers_of_an_image(tmp_path: Path) -> None:
    images = [image.replace("/", "/ID_") for image in IMAGES]
    numbers = {"1": (1.5, 2), "2": (0, 7), "3": (3, 4), "4": (9, 8), "5": (1, 2), "6": (3, 4), "7": (5, 6)}
    asked = [("5", 0), ("6", 1), ("7", 0), ("7", 1), ("5", 1)]

    def long_rows(pairs: list[tuple[str, int]]) -> list[str]:
        return [f"ID_{image}_{'xy'[column]},{numbers[image][column]}" for image, column in pairs]

    train = table("id,at", *long_rows([(image, column) for image in TRAIN for column in (0, 1)]))
    sample = table("id,at", *long_rows(asked))
    card = 'metric = "rmse"'
    competition = load_files(tmp_path, images, {"train.csv": train, "sample_submission.csv": sample}, card)
    assert competition.submission_format.long
    order = list(competition.test["id"])
    predictions = np.array([numbers[image_id.removeprefix("ID_")] for image_id in order], float)
    assert scores(tmp_path, competition, render(competition, predictions), sample)["score"] == 0
    csv = render(competition, predictions + np.array([2, 0]))  # two of the five cells are of the column x
    assert scores(tmp_path, competition, csv, sample)["score"] == pytest.approx(np.sqrt(4 * 2 / 5))
    with pytest.raises(PodiumError, match=r"made\.csv: id 'ID_6_y': 'x' is not a number"):
        scores(tmp_path, competition, render(competition, predictions).replace("ID_6_y,4", "ID_6_y,x"), sample)


@pytest.mark.parametrize(("metric", "words"), [("log_loss", "divided by their sum"), ("roc_auc", "as they are")])
def test_probabilities_that_do_not_add_up_are_scored_as_kaggle_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metric: str, words: str
) -> None:
    train, sample, _, solution = KINDS["probabilities"]
    images = {"train.csv": train, "sample_submission.csv": sample}
    competition = load_files(tmp_path, IMAGES, images, f'metric = "{metric}"')
    (tmp_path / "solution.csv").write_text(solution)
    scores = []
    for half in (1.0, 0.5):
        lines = [f"{name},{half * a},{half * b},{half * c}" for name, (a, b, c) in zip(TEST, ROWS, strict=True)]
        (tmp_path / "made.csv").write_text(table("id,dog,cat,bird", *lines))
        scores.append(
            json.loads(score(tmp_path / "made.csv", tmp_path / "solution.csv", competition=competition))["score"]
        )
    assert scores[1] == pytest.approx(scores[0])
    err = capsys.readouterr().err
    assert "3 rows" in err
    assert words in err
    (tmp_path / "made.csv").write_text(table("id,dog,cat,bird", "5,0,0,0", "6,0.5,0.2,0.3", "7,0.5,0.2,0.3"))
    with pytest.raises(PodiumError, match="id '5': the probabilities sum to 0"):
        score(tmp_path / "made.csv", tmp_path / "solution.csv", competition=competition)


ROWS = [(0.6, 0.3, 0.1), (0.2, 0.3, 0.5), (0.3, 0.5, 0.2)]
