"""Ranks, compared with those of scipy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, rankdata

from podium.comparing.pair_tests import _binomial_test
from podium.tasks.ranks import average_ranks


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(1, 3))
def test_they_are_those_of_scipy(numbers: list[int], columns: int) -> None:
    values = np.array(numbers, np.float32)
    assert np.array_equal(average_ranks(values), rankdata(values))
    table = np.stack([np.roll(values, shift) for shift in range(columns)], 1)
    assert np.array_equal(average_ranks(table), rankdata(table, axis=0))


@given(st.integers(0, 400), st.integers(0, 400))
def test_the_test_of_a_coin_is_that_of_scipy(heads: int, tails: int) -> None:
    if heads + tails:
        assert np.isclose(_binomial_test(heads, heads + tails), binomtest(heads, heads + tails).pvalue, rtol=1e-9)
