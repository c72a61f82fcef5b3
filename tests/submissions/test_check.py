"""The check of a submission: it refuses what Kaggle would refuse, and answers that look like a mistake."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from podium.basics.errors import PodiumError
from podium.competition.decide.answer_groups import Answers
from podium.submissions.check import check_class_shares, check_csv
from submissions.competitions import make_competition
from tiny import assert_says


@pytest.mark.parametrize(
    ("content", "problem", "remedy"),
    [
        ("id,predict\nb,x\na,y\n", "at row 1", "keep the ids"),
        ("id,predict\na,x\n", "1 ids are not the 2 expected; they differ at row 2", "keep the ids"),
        ("id,predict\na,x\nb,x\nc,x\n", "3 ids are not the 2 expected; they differ at row 3", "keep the ids"),
        ("id,label\na,x\nb,y\n", "the columns are ['id', 'label'], not ['id', 'predict']", "use the header"),
        ("id,predict\na,x\nb,nan\n", "line 3: 'nan' is not a class", "the classes are x, y"),
        ("id,predict\na,x\nb,\n", "line 3: '' is not a class", "the classes are x, y"),
    ],
)
def test_a_csv_that_kaggle_would_refuse_is_refused(tmp_path: Path, content: str, problem: str, remedy: str) -> None:
    path = tmp_path / "made.csv"
    path.write_text(content)
    with pytest.raises(PodiumError) as refused:
        check_csv(make_competition(["a", "b"], ["x", "y"], ["id", "predict"]), path)
    for part in (str(path), problem, remedy):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("last_row", "problem"),
    [
        ("b,0.5,0.4", "the probabilities sum to 0.9, not 1; divide them"),
        ("b,0.5,1.5", "'1.5' is not a probability; write a number from 0 to 1"),
    ],
)
def test_wrong_probabilities_are_refused(tmp_path: Path, last_row: str, problem: str) -> None:
    path = tmp_path / "made.csv"
    path.write_text(f"id,x,y\na,0.5,0.5\n{last_row}\n")
    with pytest.raises(PodiumError) as refused:
        check_csv(make_competition(["a", "b"], ["x", "y"], ["id", "x", "y"], "probs"), path)
    assert f"made.csv, line 3: {problem}" in str(refused.value)


def test_one_class_for_all_images_is_refused_unless_the_user_wants_it(capsys: pytest.CaptureFixture[str]) -> None:
    competition = make_competition([str(number) for number in range(100)], ["a", "b"], ["id", "predict"])
    probs = np.tile([[0.9, 0.1]], (100, 1))
    with pytest.raises(PodiumError, match=r"all 100 test images .* 'a', like 50.0% of the training images.*--anyway"):
        check_class_shares(competition, probs, anyway=False)
    check_class_shares(competition, probs, anyway=True)
    warning = capsys.readouterr().err
    assert_says(warning, "podium: warning: ", "'a' 100.0% instead of 50.0%")


def test_one_class_for_a_few_images_may_be_chance_and_gets_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    competition = make_competition([str(number) for number in range(9)], ["a", "b"], ["id", "predict"])
    check_class_shares(competition, np.tile([[0.9, 0.1]], (9, 1)), anyway=False)
    assert "podium: warning: " in capsys.readouterr().err


def test_probabilities_that_are_all_unsure_pass_and_all_sure_of_one_class_do_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    competition = make_competition([str(number) for number in range(100)], ["a", "b"], ["id", "p"], "probs")
    check_class_shares(competition, np.tile([[0.55, 0.45]], (100, 1)), anyway=False)
    assert not capsys.readouterr().err
    with pytest.raises(PodiumError, match="all 100 test images"):
        check_class_shares(competition, np.tile([[0.9999, 0.0001]], (100, 1)), anyway=False)


def test_the_shares_of_answers_for_several_images_count_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Of fifteen images, twelve show the class b, but three of the four patients have a."""
    competition = make_competition([str(number) for number in range(100)], ["a", "b"], ["id", "p"], "probs")
    images = [("0", "p", "a"), ("1", "q", "a"), ("2", "r", "a"), *((f"{n}", "s", "b") for n in range(3, 15))]
    train = pd.DataFrame([(name, label, name) for name, _, label in images], columns=["id", "target", "image"])
    answers = Answers("patient", {name: patient for name, patient, _ in images}, [], [])
    competition = replace(competition, train=train, answers=answers)
    check_class_shares(competition, np.tile([[0.75, 0.25]], (100, 1)), anyway=False)
    assert not capsys.readouterr().err
    check_class_shares(competition, np.tile([[0.2, 0.8]], (100, 1)), anyway=False)
    assert "'b' 80.0% instead of 25.0%" in capsys.readouterr().err
    with pytest.raises(PodiumError, match=r"all 100 test answers \(patient\)"):
        check_class_shares(competition, np.tile([[0.0001, 0.9999]], (100, 1)), anyway=False)


def test_the_mean_of_ranks_is_no_share_but_the_answers_by_rank_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [str(number) for number in range(100)]
    ranks = np.tile([[0.1, 0.9]], (100, 1))
    check_class_shares(make_competition(rows, ["a", "b"], ["id", "p"], "probs"), ranks, anyway=False, are_ranks=True)
    assert not capsys.readouterr().err
    check_class_shares(make_competition(rows, ["a", "b"], ["id", "p"]), ranks, anyway=True, are_ranks=True)
    assert "'b' 100.0% instead of 50.0%" in capsys.readouterr().err
