"""Sums of the card: how they are read, and which are refused."""

from pathlib import Path

import numpy as np
import pytest

from by_array import targets_of
from podium.basics.errors import PodiumError
from podium.competition.card import Card
from podium.competition.sums import check_sums, sums_in

COLUMNS = ("green", "dead", "clover", "forage", "total")


def card_with(*sums: str) -> Card:
    return Card(Path("x.toml"), {"sums": list(sums)})


def answers(count: int = 50) -> np.ndarray:
    parts = np.random.default_rng(0).lognormal(2, 1, (count, 3))
    forage = parts[:, [0, 2]].sum(1)
    return np.column_stack([parts, forage, forage + parts[:, 1]]).round(2)


def test_each_sum_becomes_a_row_by_which_the_columns_come_to_zero() -> None:
    rows = sums_in(card_with("forage = green + clover", " total=forage+dead "), COLUMNS)
    assert rows.tolist() == [[1, 0, 1, -1, 0], [0, 1, 0, 1, -1]]
    assert np.abs(answers() @ rows.T).max() < 0.02
    check_sums(card_with("forage = green + clover"), COLUMNS, targets_of(answers()), [""] * 50)
    check_sums(Card(Path("x.toml"), {}), COLUMNS, targets_of(np.arange(3)), [""] * 3)


@pytest.mark.parametrize(
    ("sums", "problem"),
    [
        (["total"], "is not one column and the others that it sums, as in"),
        (["total = "], "is not one column and the others"),
        (["total = green"], "is not one column and the others"),
        (["total = green + total"], "is not one column and the others"),
        (["total = gren + dead"], "no column 'gren'; did you mean green"),
        (["total = wood + dead"], "no column 'wood'; the columns are green, dead"),
        (
            ["total = green + dead", "total = dead + green"],
            "follows from those before it, or contradicts them; delete it",
        ),
    ],
)
def test_what_is_no_sum_is_refused(sums: list[str], problem: str) -> None:
    with pytest.raises(PodiumError, match=r"^x\.toml: sums: ") as refused:
        sums_in(card_with(*sums), COLUMNS)
    assert problem in str(refused.value)


def test_training_answers_that_break_a_sum_are_refused_with_the_worst_of_them() -> None:
    wrong, ids = answers(), [f"i{number}" for number in range(50)]
    wrong[3, 4] += 1
    wrong[7, 4] += 20
    wrong[9, 0] = np.nan  # nobody knows
    with pytest.raises(PodiumError, match=r"does not hold for 2 of 50 training images: .*\bi7\b.*\(20 off\)"):
        check_sums(card_with("total = forage + dead", "forage = green + clover"), COLUMNS, targets_of(wrong), ids)


def test_labels_have_no_sums() -> None:
    with pytest.raises(PodiumError, match="sums are for numbers, but these images have one label an image; delete"):
        check_sums(card_with("total = forage + dead"), COLUMNS, targets_of(np.arange(3)), [""] * 3)
