"""Cases of a test that `make test` leaves to `make test-all`: further forms of a promise that its first cases hold."""

import os
from collections.abc import Iterable
from typing import Any

import pytest


def first_of(first: Iterable[Any], values: Iterable[Any], annex: Iterable[Any] = ()) -> list[Any]:
    """Returns the values for `parametrize`; only the `first` are for every run, and those of the annex need it."""
    first, values, annex = list(first), list(values), list(annex)
    assert {*first, *annex} <= set(values)
    kinds = ((pytest.mark.all, lambda value: value not in first), (pytest.mark.annex, lambda value: value in annex))
    return [pytest.param(value, marks=[mark for mark, has in kinds if has(value)]) for value in values]


def examples(all_of_them: int) -> int:
    """Returns how many examples hypothesis tries: two fifths, and all with `make test-all`."""
    return all_of_them if "PODIUM_TEST_ALL" in os.environ else all_of_them * 2 // 5
