"""The kinds of values that an option can have: what each reads, and what it says of a value that is wrong."""

import math
from typing import Any

import pytest

from podium.options.option_kinds import (
    FINISH,
    KINDS_OF_TYPES,
    NAMES,
    NUMBER,
    SIZE,
    SWITCH,
    TEXT,
    WEIGHTS,
    WHOLE_NUMBER,
    WHOLE_NUMBER_OR_AUTO,
    Kind,
    Limits,
)

PIXELS = Limits(1, 4096)
WORDS = Limits(choices=("mirror", "flip"))


@pytest.mark.parametrize(
    ("kind", "limits", "given", "value"),
    [
        (SWITCH, Limits(), True, True),
        (WHOLE_NUMBER, PIXELS, "224", 224),
        (NUMBER, Limits(0, 1), "0.5", 0.5),
        (NUMBER, Limits(0, 1), 1, 1.0),
        (TEXT, WORDS, "flip", "flip"),
        (TEXT, Limits(), "anything", "anything"),
        (NAMES, WORDS, "flip+mirror", "flip+mirror"),
        (NAMES, Limits(choices=()), "none", "none"),
        (SIZE, PIXELS, "80x80", 80),
        (SIZE, PIXELS, "80x60", "80x60"),
        (WHOLE_NUMBER_OR_AUTO, PIXELS, "auto", "auto"),
        (WHOLE_NUMBER_OR_AUTO, PIXELS, "4", 4),
        (FINISH, PIXELS, "320:2", "320:2"),
        (FINISH, PIXELS, "", ""),
        (WEIGHTS, Limits(), "a:b:2+c:0.5", "a:b:2+c:0.5"),
    ],
)
def test_a_value_that_is_read_is_right(kind: Kind, limits: Limits, given: Any, value: Any) -> None:
    read = kind.read(given)
    assert (read, type(read)) == (value, type(value))
    assert kind.problem(read, limits) == ""


@pytest.mark.parametrize(
    ("kind", "limits", "value", "must_be"),
    [
        (SWITCH, Limits(), 1, "true or false"),
        (WHOLE_NUMBER, PIXELS, True, "a whole number"),
        (WHOLE_NUMBER, PIXELS, 2.5, "a whole number"),
        (WHOLE_NUMBER, PIXELS, 5000, "between 1 and 4,096"),
        (WHOLE_NUMBER, Limits(1), 0, "at least 1"),
        (NUMBER, Limits(0, 1), True, "a number"),
        (NUMBER, Limits(0, 1), "0.5", "a number"),
        (NUMBER, Limits(0, 1), math.nan, "between 0 and 1"),
        (TEXT, WORDS, "turn", "one of mirror, flip"),
        (TEXT, Limits(), 3, "text"),
        (NAMES, WORDS, "flip+flip", "none, or some of mirror, flip"),
        (NAMES, WORDS, "flip+turn", "none, or some of mirror, flip"),
        (NAMES, WORDS, 3, "text"),
        (NAMES, Limits(choices=()), "turn", "none (docs/extend.md"),
        (SIZE, PIXELS, "80x", "a number of pixels"),
        (SIZE, PIXELS, "80x5000", "between 1 and 4,096"),
        (WHOLE_NUMBER_OR_AUTO, PIXELS, 0, "between 1 and 4,096"),
        (WHOLE_NUMBER_OR_AUTO, PIXELS, "many", "a whole number"),
        (FINISH, PIXELS, "320", "SIZE:EPOCHS"),
        (FINISH, PIXELS, 320, "SIZE:EPOCHS"),
        (FINISH, PIXELS, "5000:2", "between 1 and 4,096"),
        (WEIGHTS, Limits(), "height", "COLUMN:WEIGHT"),
        (WEIGHTS, Limits(), "height:0", "COLUMN:WEIGHT"),
        (WEIGHTS, Limits(), "height:1+height:2", "COLUMN:WEIGHT"),
    ],
)
def test_a_wrong_value_is_told_what_it_must_be(kind: Kind, limits: Limits, value: Any, must_be: str) -> None:
    problem = kind.problem(value, limits)
    assert problem.startswith(must_be)
    assert ", not " in problem


def test_every_type_of_an_option_has_a_kind() -> None:
    assert {bool: SWITCH, int: WHOLE_NUMBER, float: NUMBER, str: TEXT} == KINDS_OF_TYPES
