"""The order of grades: whole numbers have one, the card gives that of words; else it is a guess."""

from pathlib import Path

import pytest

from layouts import IMAGES, TABLES, load_files, table
from podium.basics.errors import PodiumError
from podium.blending.choose_decision import find_kind
from podium.competition.describe import describe
from podium.tasks.task import ONE_LABEL
from tiny import assert_says

KAPPA = 'metric = "quadratic_kappa"\n'
WORDS = TABLES | {
    "train.csv": table("id,target", "1,mild", "2,severe", "3,healthy"),
    "sample_submission.csv": table("id,target", "4,mild", "5,mild"),
}
COLUMNS = WORDS | {"sample_submission.csv": table("id,severe,mild,healthy,moderate", "4,0,0,1,0", "5,0,0,1,0")}
IN_ORDER = 'grades = ["healthy", "mild", "severe"]\n'


def test_the_order_of_words_is_a_guess_and_is_called_one(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, WORDS, KAPPA)
    (note,) = (note for note in competition.notes if "is a guess" in note)
    assert_says(note, "healthy, mild, severe is a guess", 'grades = ["healthy", "mild", "severe"]', "it.toml")
    assert find_kind(competition.metric, ONE_LABEL, competition.classes, competition.card) is None
    assert "is a guess" not in describe(load_files(tmp_path / "other", IMAGES, WORDS))  # accuracy needs no order


@pytest.mark.parametrize("tables", [WORDS, COLUMNS])
def test_the_card_gives_the_order_of_words(tmp_path: Path, tables: dict[str, str]) -> None:
    grades = ["severe", "mild", "healthy"]
    if tables is COLUMNS:
        grades.insert(1, "moderate")  # no training image has it
    competition = load_files(tmp_path, IMAGES, tables, f"{KAPPA}grades = {grades}\n")
    assert list(competition.classes) == grades
    assert f"a grade: {' < '.join(grades)}" in describe(competition)
    assert "is a guess" not in describe(competition)
    kind = find_kind(competition.metric, ONE_LABEL, competition.classes, competition.card)
    assert kind is not None
    assert kind.name == "cut_points"


@pytest.mark.parametrize(
    ("grades", "message"),
    [
        ('["mild", "severe"]', "grades lacks the labels healthy"),
        ('["healthy", "mild", "severe", "mild"]', "names a label twice"),
        ('["healthy", "mild", "Mild", "severe"]', "grades names Mild, but the classes are"),
        ('"mild"', "grades must be a list of texts"),
    ],
)
def test_grades_that_are_not_the_labels_are_refused(tmp_path: Path, grades: str, message: str) -> None:
    with pytest.raises(PodiumError, match=message) as refusal:
        load_files(tmp_path, IMAGES, WORDS, f"{KAPPA}grades = {grades}\n")
    assert "it.toml" in str(refusal.value)


def test_negative_grades_are_in_the_order_of_their_values(tmp_path: Path) -> None:
    numbers = WORDS | {"train.csv": table("id,target", "1,-1", "2,-2", "3,0")}
    competition = load_files(tmp_path, IMAGES, numbers, f'{KAPPA}wants = "labels"')
    assert competition.classes == ("-2", "-1", "0")
    assert "is a guess" not in describe(competition)


@pytest.mark.annex
def test_score_says_that_it_guesses_the_order_of_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from podium_annex.scoring.score_csv import score

    (tmp_path / "made.csv").write_text("id,label\n1,mild\n2,severe\n3,healthy\n")
    (tmp_path / "solution.csv").write_text("id,label\n1,mild\n2,severe\n3,mild\n")
    score(tmp_path / "made.csv", tmp_path / "solution.csv", "quadratic_kappa", None)
    assert "is a guess" in capsys.readouterr().err


def test_decimal_grades_are_in_the_order_of_their_values(tmp_path: Path) -> None:
    tables = {
        "train.csv": table("id,target", "1,9.0", "2,10.0", "3,1.0"),
        "sample_submission.csv": table("id,target", "4,1.0", "5,1.0"),
    }
    competition = load_files(tmp_path, IMAGES, tables, KAPPA)
    assert competition.classes == ("1.0", "9.0", "10.0")
    assert not any("is a guess" in note for note in competition.notes)
    assert find_kind(competition.metric, ONE_LABEL, competition.classes, competition.card) is not None
