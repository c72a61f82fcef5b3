"""A decision of the project's own for every task: what it may return, and what becomes of it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from podium.basics.errors import PodiumError
from podium.blending.own_decision import OwnDecision, Undecided
from podium.options.extensions import extend
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, Task

PROBS = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [0.1, 0.3, 0.6]])
Ask = Callable[[Callable[..., Any]], np.ndarray]


@pytest.fixture(autouse=True)
def _withdrawn() -> Iterator[None]:
    yield
    extend.withdraw_all()


def asking(task: Task = ONE_LABEL, classes: tuple[str, ...] = ("a", "b", "c"), may_be_names: bool = True) -> Ask:
    """Returns what asks a function for the answers of three images."""
    table = pd.DataFrame({"site": ["x", "x", "y"]}, index=["i", "k", "j"])
    undecided = Undecided(table, "the table has the columns site", task, classes, may_be_names and task is ONE_LABEL)

    def ask(function: Callable[..., Any]) -> np.ndarray:
        extend.withdraw_all()
        extend.decision(function)
        return OwnDecision(function.__name__, "mine.py", "").apply(PROBS[:, : len(classes)], undecided)

    return ask


def one_answer_for_each_site(ids: list[str], probabilities: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    return probabilities.groupby(table["site"]).transform("mean")


def test_images_of_a_site_get_one_answer() -> None:
    decided = asking()(one_answer_for_each_site)
    assert decided == pytest.approx(np.array([[0.45, 0.35, 0.2], [0.45, 0.35, 0.2], [0.1, 0.3, 0.6]]))


def test_a_table_of_pandas_may_be_in_another_order() -> None:
    ask, weights = asking(), np.array([1.0, 2.0, 1.0])
    expected = PROBS * weights / (PROBS * weights).sum(1, keepdims=True)
    for order in ([0, 1, 2], [2, 0, 1]):

        def own(ids: list[str], probabilities: pd.DataFrame, table: pd.DataFrame, order: list[int] = order) -> Any:
            weighed = probabilities * weights
            probabilities[:] = 0.0  # its arguments are its own
            return weighed.iloc[order, order[::-1]]

        assert ask(own) == pytest.approx(expected)
        assert PROBS[0, 0] == 0.7


@pytest.mark.parametrize(
    "make",
    [
        list,
        np.array,
        lambda names: pd.Series(names, ["i", "k", "j"]),
        lambda names: pd.Series(names[::-1], ["j", "k", "i"]),
    ],
)
def test_names_of_classes_become_the_most_probable_ones(make: Callable[[list[str]], Any]) -> None:
    def own(ids: list[str], probabilities: pd.DataFrame, table: pd.DataFrame) -> Any:
        return make(["c", "b", "a"])

    decided = asking()(own)
    assert decided.argmax(1).tolist() == [2, 1, 0]
    assert decided.sum(1) == pytest.approx(1)
    assert decided[0, 0] > decided[0, 1] > 0  # a ranking keeps its order behind the answer


def test_names_are_no_answers_where_probabilities_are_wanted() -> None:
    def own(ids: list[str], probabilities: pd.DataFrame, table: pd.DataFrame) -> Any:
        return probabilities.idxmax(axis=1)

    with pytest.raises(PodiumError, match="returned 3 values; return 3 rows and 3 columns, as the probabilities have"):
        asking(may_be_names=False)(own)


def test_several_labels_may_be_0_and_1() -> None:
    def own(ids: list[str], probabilities: pd.DataFrame, table: pd.DataFrame) -> Any:
        return probabilities > 0.25

    assert asking(SEVERAL_LABELS)(own).tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 1]]

    def odds(ids: list[str], probabilities: pd.DataFrame, table: pd.DataFrame) -> Any:
        return 2 * probabilities

    with pytest.raises(PodiumError, match=r"returned 1\.4 for 'a' of the id 'i', which is no probability"):
        asking(SEVERAL_LABELS)(odds)


def test_the_labels_of_each_column_sum_to_1() -> None:
    def own(ids: list[str], probabilities: pd.DataFrame, table: pd.DataFrame) -> Any:
        return probabilities * [1, 1, 5]

    decided = asking(SEVERAL_TARGETS, ("s=1", "s=2", "t=1"))(own)
    assert decided[0] == pytest.approx([0.7 / 0.9, 0.2 / 0.9, 1])


def test_numbers_may_be_any_and_of_one_column_a_series() -> None:
    def own(ids: list[str], probabilities: pd.DataFrame, table: pd.DataFrame) -> Any:
        return -100 * probabilities["age"].round()

    assert asking(NUMBERS, ("age",))(own).tolist() == [[-100], [0], [0]]

    def infinite(ids: list[str], probabilities: pd.DataFrame, table: pd.DataFrame) -> Any:
        return probabilities / 0

    with pytest.raises(PodiumError, match="returned inf for 'age' of the id 'i', which is no number"):
        asking(NUMBERS, ("age",))(infinite)
