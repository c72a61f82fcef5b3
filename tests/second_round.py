"""Cases of a test that `make test` leaves to `make test-all`: further forms of a promise that its first cases hold."""

import os
from collections.abc import Iterable
from typing import Any

import pytest


def first_of(first: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Returns the values for `parametrize`; only the `first` of them are for every run of the tests."""
    first, values = list(first), list(values)
    assert set(first) <= set(values)
    return [value if value in first else pytest.param(value, marks=pytest.mark.all) for value in values]


def examples(all_of_them: int) -> int:
    """Returns how many examples hypothesis tries: two fifths, and all with `make test-all`."""
    return all_of_them if "PODIUM_TEST_ALL" in os.environ else all_of_them * 2 // 5
