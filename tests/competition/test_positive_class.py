"""Which of two classes a probability is about: the card, a column's name, the labels or a table tell; else a guess."""

from pathlib import Path

import pytest

from layouts import IMAGES, TABLES, load_files, table
from podium.competition.build.positive_class import find_positive
from podium.competition.describe import describe
from tiny import assert_says

GUESS = "is a guess"


def files(
    first: str, second: str, answer: str = "label", header: str = "id,target", further: str = ""
) -> dict[str, str]:
    """Tables of two labels, for submissions of one column of probabilities."""
    rows = (f"1,{first}{further and ',0'}", f"2,{second}{further and ',1'}", f"3,{first}{further and ',0'}")
    sample = table(f"id,{answer}", "4,0.5", "5,0.5")
    return TABLES | {"train.csv": table(f"id,target{further}", *rows), "sample_submission.csv": sample}


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        (("malignant", "benign"), "malignant"),
        (("benign", "malignant"), "malignant"),
        (("abnormal", "normal"), "abnormal"),  # by the alphabet, it would be 'normal'
        (("disease", "healthy"), "disease"),
        (("yes", "no"), "yes"),
        (("No Finding", "Cardiomegaly"), "Cardiomegaly"),
        (("True", "False"), "True"),
        (("cactus", "no_cactus"), "cactus"),
        (("1", "0"), "1"),
    ],
)
def test_labels_tell_which_is_positive(tmp_path: Path, labels: tuple[str, str], positive: str) -> None:
    competition = load_files(tmp_path, IMAGES, files(*labels))
    assert competition.classes[-1] == positive
    assert f"the probability of '{positive}'" in describe(competition)
    assert GUESS not in describe(competition)


def test_the_last_by_the_alphabet_is_a_guess_and_is_called_one(tmp_path: Path) -> None:
    competition = load_files(tmp_path, IMAGES, files("cat", "dog"))
    assert competition.classes == ("cat", "dog")
    (note,) = (note for note in competition.notes if GUESS in note)
    assert_says(note, "'dog', not 'cat'", 'positive = "dog"', "it.toml")


@pytest.mark.parametrize(
    ("tables", "card"),
    [
        (files("cat", "dog"), 'positive = "cat"\n'),
        (files("cat", "dog", answer="is_cat"), ""),
        (files("dog", "cat", further=",target_id"), ""),  # a column marks the cat with 1
    ],
)
def test_what_is_told_is_no_guess(tmp_path: Path, tables: dict[str, str], card: str) -> None:
    if "target_id" in tables["train.csv"]:
        card = 'target_column = "target"\n'
    competition = load_files(tmp_path, IMAGES, tables, card)
    assert competition.classes == ("dog", "cat")
    assert GUESS not in describe(competition)


def test_metrics_of_one_class_call_it_a_guess_where_each_has_a_column(tmp_path: Path) -> None:
    tables = TABLES | {"sample_submission.csv": table("id,cat,dog", "4,0.5,0.5", "5,0.5,0.5")}
    assert GUESS not in describe(load_files(tmp_path, IMAGES, tables))
    assert GUESS in describe(load_files(tmp_path, IMAGES, tables, 'metric = "average_precision"\n'))


def test_more_classes_have_no_positive_one() -> None:
    assert find_positive({}, ["a", "b", "c"]) is None


@pytest.mark.annex
def test_score_says_that_it_guesses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from podium_annex.scoring.score_csv import score

    (tmp_path / "made.csv").write_text("id,answer\n1,0.9\n2,0.2\n")
    (tmp_path / "solution.csv").write_text("id,label\n1,dog\n2,cat\n")
    score(tmp_path / "made.csv", tmp_path / "solution.csv", "roc_auc", None)
    assert "probabilities are of 'dog' is a guess" in capsys.readouterr().err
    score(tmp_path / "made.csv", tmp_path / "solution.csv", "roc_auc", "dog")
    assert GUESS not in capsys.readouterr().err
