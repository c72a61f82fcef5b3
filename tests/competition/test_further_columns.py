"""What a stack of trees learns of a column beside its plain numbers: dates, counts, and what is relative to a group."""

import numpy as np
import pandas as pd
import pytest

from podium.competition.decide.further_columns import further_columns, relative_to_group

GROUPS = np.array([0, 0, 0, 1]), np.array([0, 0])


def test_a_number_is_seen_beside_its_group() -> None:
    train, test = further_columns(pd.Series(["1", "3", " ", "8"]), pd.Series(["5", "5"]), GROUPS)
    assert train.T.tolist() == [[-1, 1, 0, 0], [0.25, 0.75, 0.5, 0.5], [0.5, 1.5, 1, 1]]
    assert test.T.tolist() == [[0, 0], [0.5, 0.5], [1, 1]]


def test_numbers_below_zero_have_no_ratio() -> None:
    train, test = further_columns(pd.Series(["1", "3", "", "8"]), pd.Series(["-5", "5"]), GROUPS)
    assert train.shape == (4, 2)
    assert test.T.tolist() == [[-5, 5], [0.25, 0.75]]


def test_without_groups_a_number_says_nothing_further() -> None:
    train, test = further_columns(pd.Series(["1", "3"]), pd.Series(["5"]), None)
    assert (train.shape, test.shape) == ((2, 0), (1, 0))


def test_a_date_tells_days_season_weekday_and_hour() -> None:
    """1 March 2024 was a Friday, the 61st day of a leap year."""
    train, test = further_columns(pd.Series(["2024-03-01 18:30", "", "2024/3/4"]), pd.Series(["2024-03-02"]), None)
    assert pytest.approx(np.array([[19783 + 18.5 / 24, 0, 19786], [61, 0, 64], [4, 0, 0], [18, 0, 0]])) == train.T
    assert test.tolist() == [[19784, 62, 5, 0]]


def test_a_few_dates_among_texts_are_texts() -> None:
    train, _ = further_columns(pd.Series(["2024-03-01", "front", "front"]), pd.Series(["front"]), None)
    assert train.tolist() == [[1], [3], [3]]  # how many images of both tables have it


def test_nothing_but_blanks_is_no_number() -> None:
    train, test = further_columns(pd.Series(["", ""]), pd.Series([""]), (np.zeros(2, int), np.zeros(1, int)))
    assert (train.tolist(), test.tolist()) == ([[3], [3]], [[3]])


def test_no_image_is_no_error() -> None:
    assert [column.tolist() for column in relative_to_group(np.empty(0), np.empty(0, np.int64))] == [[], []]
