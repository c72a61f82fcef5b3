"""Cases of a test that `make test` leaves to `make test-all`: further forms of a promise that its first cases hold."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_of(first: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    """Returns the values for `parametrize`; only the `first` of them are for every run of the tests."""
    first, values = list(first), list(values)
    assert set(first) <= set(values)
    return [value if value in first else pytest.param(value, marks=pytest.mark.all) for value in values]
