"""The CSV of a submission: it has the rows, the columns and the line ends of the sample submission."""

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podium.basics.errors import PodiumError
from podium.competition.load import load
from podium.submissions.write_csv import render, write_csv
from podium.tasks.task import NUMBERS
from submissions.competitions import make_competition
from tiny import Podium, done, write_competition

text = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(str.strip)
names = st.lists(text, min_size=2, max_size=6, unique=True)


@given(names, names, names, st.sampled_from(["\n", "\r\n"]))
def test_labels_are_written_as_in_train_csv_in_the_order_of_the_sample(
    ids: list[str], classes: list[str], header: list[str], newline: str
) -> None:
    labels = np.random.default_rng(len(ids)).integers(len(classes), size=len(ids))
    competition = make_competition(ids, classes, header[:2], newline=newline)
    written = render(competition, np.eye(len(classes))[labels])
    rows = list(csv.reader(io.StringIO(written, newline="")))
    expected = [[image_id, classes[label]] for image_id, label in zip(ids, labels, strict=True)]
    assert rows == [header[:2], *expected]
    assert written.endswith(newline)


@given(names, st.lists(text, min_size=3, max_size=6, unique=True), st.integers(0, 99))
def test_probabilities_keep_their_column_and_sum_to_one(ids: list[str], classes: list[str], seed: int) -> None:
    probs = np.random.default_rng(seed).dirichlet(np.ones(len(classes)), len(ids)).astype(np.float32)
    written = render(make_competition(ids, classes, ["id", *classes], "probs"), probs)
    rows = list(csv.reader(io.StringIO(written, newline="")))
    assert rows[0] == ["id", *classes]
    values = np.array([row[1:] for row in rows[1:]], dtype=float)
    assert np.allclose(values, probs, atol=1e-7)
    assert np.allclose(values.sum(1), 1, atol=1e-5)


def test_one_column_for_two_classes_holds_the_probability_of_the_second() -> None:
    competition = make_competition(["a"], ["0", "1"], ["id", "has_cat"], "probs")
    assert render(competition, np.array([[0.25, 0.75]])) == "id,has_cat\na,0.75\n"


def test_a_ranking_holds_the_most_probable_labels_in_order(tmp_path: Path) -> None:
    competition = make_competition(["a", "b"], ["x", "y", "z"], ["id", "guess"], "ranking")
    expected = replace(competition.submission_format, places=2, separator=" ")
    competition = replace(competition, submission_format=expected)
    text = render(competition, np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]]))
    assert text == "id,guess\na,y z\nb,x y\n"
    write_csv(competition, tmp_path / "right.csv", text)
    for cell in ("y", "y y", "y z x", "y q", ""):
        with pytest.raises(PodiumError, match=f"'{cell}' is not a ranking of different classes"):
            write_csv(competition, tmp_path / "wrong.csv", text.replace("y z", cell))
    assert not (tmp_path / "wrong.csv").exists()


def test_a_label_may_have_its_probability_beside_it(tmp_path: Path) -> None:
    competition = make_competition(["a", "b"], ["7", "138982"], ["id", "landmarks"])
    form = replace(competition.submission_format, has_confidence=True)
    competition, path = replace(competition, submission_format=form), tmp_path / "x.csv"
    text = render(competition, np.array([[0.25, 0.75], [1.0, 0.0]]))
    assert text == "id,landmarks\na,138982 0.75\nb,7 1\n"
    write_csv(competition, path, text)
    for wrong in ("138982", "9 0.75", "138982 x", "138982 1.5"):
        with pytest.raises(PodiumError, match=f"line 2: '{wrong}' is not a class and its probability"):
            write_csv(competition, path, text.replace("138982 0.75", wrong))


def test_numbers_are_written_as_they_are(tmp_path: Path) -> None:
    competition = replace(make_competition(["a", "b"], ["u", "v"], ["id", "u", "v"], "numbers"), task=NUMBERS)
    text = render(competition, np.array([[-2.5, 1e6], [0.1, 3.0]]))
    assert text == "id,u,v\na,-2.5,1000000\nb,0.1,3\n"
    write_csv(competition, tmp_path / "right.csv", text)
    for cell in ("x", "inf", ""):
        with pytest.raises(PodiumError, match=f"'{cell}' is not a number"):
            write_csv(competition, tmp_path / "wrong.csv", text.replace("-2.5", cell))


def test_predictions_that_are_not_numbers_or_too_few_are_never_written() -> None:
    competition = make_competition(["a", "b"], ["x", "y"], ["id", "predict"])
    with pytest.raises(PodiumError, match=r"id 'b' is not a number; .* --runs"):
        render(competition, np.array([[0.5, 0.5], [np.nan, 0.5]]))
    with pytest.raises(PodiumError, match=r"predictions of shape \(1, 2\) for 2 rows and 2 classes; give a row"):
        render(competition, np.ones((1, 2)))


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
        lambda text: text.replace(",red", ",?"),
        lambda text: "\n" + text,
    ],
)
def test_the_header_ids_and_line_ends_of_any_sample_are_kept(tmp_path: Path, deform: Callable[[str], str]) -> None:
    sample_path = write_competition(tmp_path) / "sample_submission.csv"
    sample_path.write_bytes(deform(sample_path.read_text()).encode())
    competition = load("tiny", tmp_path)
    csv_path = tmp_path / "made.csv"
    probs = np.eye(len(competition.classes))[np.arange(len(competition.test)) % 4]
    write_csv(competition, csv_path, render(competition, probs))
    sample = sample_path.read_bytes().decode("utf-8-sig").lstrip("\n")
    written = csv_path.read_bytes().decode()
    (newline,) = set(re.findall("\r?\n|\r", sample))
    assert set(re.findall("\r?\n|\r", written)) == {newline}
    sample_lines, lines = sample.rstrip(newline).split(newline), written.rstrip(newline).split(newline)
    assert lines[0] == sample_lines[0]
    ids = [line.strip('"')[:3] for line in lines[1:]]
    assert ids == [line.strip('"')[:3] for line in sample_lines[1:]]
    assert len(ids) == 7


@pytest.mark.annex
def test_an_index_without_a_name_is_copied_row_for_row(tmp_path: Path, podium: Podium) -> None:
    """As pandas writes it where nobody tells it not to."""
    folder = write_competition(tmp_path)
    sample = pd.read_csv(folder / "sample_submission.csv", dtype=str)
    sample.to_csv(folder / "sample_submission.csv")
    competition = load("tiny", tmp_path)
    assert competition.submission_format.answer_columns == ("predict",)
    path = tmp_path / "made.csv"
    write_csv(competition, path, render(competition, np.eye(len(competition.classes))[np.arange(7) % 4]))
    written = pd.read_csv(path, dtype=str)
    assert list(written.columns) == ["Unnamed: 0", "id", "predict"]
    assert written["Unnamed: 0"].tolist() == [str(number) for number in range(7)]
    assert written["id"].tolist() == sample["id"].tolist()
    out, _ = done(podium("score", path, "--solution", tmp_path / "solution.csv", "-c", "tiny"))
    assert '"score"' in out


def test_a_csv_that_kaggle_would_refuse_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(PodiumError, match="line 3"):
        write_csv(
            make_competition(["a", "b"], ["x", "y"], ["id", "predict"]), tmp_path / "made.csv", "id,predict\na,x\nb,z\n"
        )
    assert not list(tmp_path.iterdir())
