"""The cells of a submission: what is written is read back, whatever the task and the form."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from podium.competition.answer_form import (
    AnswerForm,
    LabelForm,
    LabelInEachColumnForm,
    LabelListForm,
    LabelWithProbabilityForm,
    NumberForm,
    ProbabilityForm,
    RankingForm,
)
from second_round import examples

CLASSES = ("cat", "7", "a b", "dog")
PARTS = ("hat=red", "hat=blue", "coat=red", "coat=none", "coat=x")
FORMS: dict[str, AnswerForm] = {
    "label": LabelForm(("label",), CLASSES),
    "sure label": LabelWithProbabilityForm(("label",), CLASSES),
    "labels": LabelListForm(("labels",), CLASSES, ";", may_be_blank=True),
    "labels, one at least": LabelListForm(("labels",), CLASSES, ";", may_be_blank=False),
    "label in each column": LabelInEachColumnForm(("hat", "coat"), PARTS),
    "ranking": RankingForm(("labels",), CLASSES, ";", 3),
    "probabilities": ProbabilityForm(("cat", "7", "a b", "dog"), CLASSES, (0, 1, 2, 3), True),
    "probabilities in another order": ProbabilityForm(("dog", "cat", "7", "a b"), CLASSES, (3, 0, 1, 2), True),
    "one probability": ProbabilityForm(("is_dog",), ("cat", "dog"), (1,), True),
    "probabilities of several labels": ProbabilityForm(CLASSES, CLASSES, (0, 1, 2, 3), False),
    "numbers": NumberForm(("age", "weight"), ("age", "weight")),
}


def some_predictions(form: AnswerForm, seed: int, count: int = 7) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    if isinstance(form, NumberForm) and not isinstance(form, ProbabilityForm):
        return rng.normal(0, 100, (count, len(form.classes)))
    if isinstance(form, LabelListForm) or not getattr(form, "of_one_label", True):
        return rng.random((count, len(form.classes)))
    return rng.dirichlet(np.ones(len(form.classes)), count)


def columns_of(form: AnswerForm, rows: Sequence[Sequence[str]]) -> "list[pd.Series[str]]":
    table = pd.DataFrame(rows, columns=list(form.columns), dtype=object)
    return [table[column] for column in form.columns]


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=examples(100))
@given(seed=st.integers(0, 10_000))
def test_what_is_written_is_read_back(name: str, seed: int) -> None:
    form = FORMS[name]
    rows = form.write(some_predictions(form, seed))
    cells = columns_of(form, rows)
    assert form.find_problem(cells) is None
    read = form.read(cells)
    assert read.shape == (len(rows), len(form.classes))
    assert form.write(read) == rows
    assert form.agree(cells, columns_of(form, form.write(read)))


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.wants in ("probs", "numbers")])
def test_numbers_are_read_as_they_were(name: str) -> None:
    form = FORMS[name]
    predictions = some_predictions(form, 1)
    assert np.allclose(form.read(columns_of(form, form.write(predictions))), predictions, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", FORMS)
def test_the_values_are_what_is_written_without_rounding(name: str) -> None:
    form = FORMS[name]
    predictions = some_predictions(form, 2)
    for written, values in zip(zip(*form.write(predictions), strict=True), form.values(predictions), strict=True):
        for cell, value in zip(written, values, strict=True):
            assert cell == value if isinstance(value, str) else math.isclose(float(cell), value, rel_tol=1e-8)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("label", ["Cat"]),
        ("sure label", ["cat"]),
        ("sure label", ["cat 1.5"]),
        ("labels", ["cat;mouse"]),
        ("label in each column", ["none", "red"]),
        ("ranking", ["cat;cat;dog"]),
        ("ranking", ["cat;dog"]),
        ("probabilities", ["0.5", "0.5", "0.5", "0"]),
        ("one probability", ["1.01"]),
        ("numbers", ["1", "nan"]),
        ("numbers", ["1", ""]),
    ],
)
def test_a_wrong_cell_is_found_with_its_line(name: str, row: list[str]) -> None:
    form = FORMS[name]
    right = form.write(some_predictions(form, 3, 1))[0]
    problem = form.find_problem(columns_of(form, [right, row, right]))
    assert problem is not None
    assert problem[0] == 1
    assert "; " in problem[1]  # the remedy


def test_an_image_gets_its_most_probable_label_unless_it_may_have_none() -> None:
    unsure = np.array([[0.1, 0.4, 0.2, 0.3]])
    assert FORMS["labels"].write(unsure) == [[""]]
    assert FORMS["labels, one at least"].write(unsure) == [["7"]]
    assert unsure.max() == 0.4  # not changed


def test_files_agree_that_differ_by_rounding_only() -> None:
    for name, rows, near, far in (
        (
            "probabilities of several labels",
            ["0.5"] * 4,
            ["0.501", "0.5", "0.499", "0.5"],
            ["0.6", "0.5", "0.5", "0.5"],
        ),
        ("sure label", ["cat 0.5"], ["cat 0.501"], ["cat 0.6"]),
        ("ranking", ["cat;dog;7"], ["cat;dog;7"], ["dog;cat;7"]),
        ("label", ["cat"], ["cat"], ["dog"]),
    ):
        form = FORMS[name]
        own = columns_of(form, [rows])
        assert form.agree(own, columns_of(form, [near])), name
        assert not form.agree(own, columns_of(form, [far])), name


def test_two_places_of_one_ranking_may_be_exchanged() -> None:
    form = FORMS["ranking"]
    rows = [["cat;dog;7"]] * 1000
    exchanged = [*rows[:-1], ["cat;7;dog"]]
    assert form.agree(columns_of(form, rows), columns_of(form, exchanged))
