"""The kinds of values that an option of a run can have. A new kind is one more `Kind` here."""

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from podium.basics.image_size import parse_size, sides_of

AUTO = "auto"
NEIGHBOURS = "neighbours"  # a head that may have a number: neighbours:5
MOST_VOTERS = 100  # of that head


@dataclass(frozen=True)
class Limits:
    """Which values of its kind an option accepts."""

    lowest: float = -math.inf
    highest: float = math.inf
    choices: Collection[str] | None = None  # of texts and names; None: any


@dataclass(frozen=True)
class Kind:
    """How a value is read, and what can be wrong with it."""

    read: Callable[[Any], Any]  # a type, or a function whose ValueError says what is not right
    problem: Callable[[Any, Limits], str]  # what the value must be and what it is; nothing if it is right
    metavar: str = ""  # in the help of its flag; none: the option's name

    def within(self, limits: Limits) -> str:
        """Returns which values there are, in words; nothing if any text is one."""
        if limits.choices is not None:
            return ", ".join(limits.choices)
        if math.isinf(limits.lowest):
            return "on or off" if self.read is bool else ""
        return (
            f"{limits.lowest:,} to {limits.highest:,}" if math.isfinite(limits.highest) else f"{limits.lowest:,} and up"
        )


def parse_whole_number_or_auto(value: Any) -> int | str:
    """Returns the number, or `auto`; raises ValueError if it is neither a whole number nor `auto`."""
    if value == AUTO:
        return AUTO
    if isinstance(value, bool) or not re.fullmatch("[0-9]+", str(value)):
        raise ValueError(f"a whole number or auto, not {value!r}")
    return int(value)


def parse_finish(value: Any) -> str:
    """Returns SIZE:EPOCHS, or nothing for nothing; raises ValueError for anything else."""
    if value == "":
        return ""
    if not isinstance(value, str) or not re.fullmatch("[1-9][0-9]*(x[1-9][0-9]*)?:[1-9][0-9]{0,4}", value):
        raise ValueError(f"SIZE:EPOCHS as in 320:2, not {value!r}")
    return value


def parse_weights(value: Any) -> dict[str, float]:
    """Returns the weight of each name in NAME:WEIGHT+NAME:WEIGHT; raises ValueError if it is not of this form."""
    weights: dict[str, float] = {}
    for part in str(value).split("+") if value else ():
        name, _, number = part.rpartition(":")
        weight = float(number) if re.fullmatch("[0-9]+([.][0-9]+)?", number) else 0.0
        if not name or not weight or name in weights:
            raise ValueError(f"COLUMN:WEIGHT, joined by +, as in height:2+width:0.5, not {value!r}")
        weights[name] = weight
    return weights


def _problem_with_switch(value: Any, _: Limits) -> str:
    return "" if isinstance(value, bool) else f"true or false, not {value!r}"


def _problem_with_whole_number(value: Any, limits: Limits) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        return f"a whole number, not {value!r}"
    return _out_of_bounds(value, limits)


def _problem_with_number(value: Any, limits: Limits) -> str:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return f"a number, not {value!r}"
    return _out_of_bounds(value, limits)


def _out_of_bounds(value: float, limits: Limits) -> str:
    lowest, highest = limits.lowest, limits.highest
    if lowest <= value <= highest:  # not so if it is NaN
        return ""
    bounds = f"at least {lowest:,}" if highest == math.inf else f"between {lowest:,} and {highest:,}"
    return f"{bounds}, not {value}"


def _problem_with_text(value: Any, limits: Limits) -> str:
    if not isinstance(value, str):
        return f"text, not {value!r}"
    if limits.choices is None or value in limits.choices:
        return ""
    return f"one of {', '.join(limits.choices)}, not '{value}'"


def _problem_with_names(value: Any, limits: Limits) -> str:
    if not isinstance(value, str) or limits.choices is None or value == "none":
        return _problem_with_text(value, Limits())
    names = value.split("+")
    if set(names) <= set(limits.choices) and len(set(names)) == len(names):
        return ""
    some = (
        f", or some of {', '.join(limits.choices)} joined by +" if limits.choices else " (docs/extend.md adds others)"
    )
    return f"none{some}, not '{value}'"


def _problem_with_size(value: Any, limits: Limits) -> str:
    try:
        sides = sides_of(parse_size(value))
    except ValueError as problem:
        return str(problem)
    is_right = limits.lowest <= min(sides) and max(sides) <= limits.highest
    return "" if is_right else f"between {limits.lowest:,} and {limits.highest:,}, not {value}"


def _problem_with_whole_number_or_auto(value: Any, limits: Limits) -> str:
    return "" if value == AUTO else _problem_with_whole_number(value, limits)


def _problem_with_finish(value: Any, limits: Limits) -> str:
    try:
        size = parse_finish(value).partition(":")[0]
    except ValueError as problem:
        return str(problem)
    return _problem_with_size(parse_size(size), limits) if size else ""


def _problem_with_weights(value: Any, limits: Limits) -> str:
    try:
        parse_weights(value)
    except ValueError as problem:
        return str(problem)
    return _problem_with_text(value, limits)


def _problem_with_head(value: Any, limits: Limits) -> str:
    name, colon, count = str(value).partition(":")
    if name != NEIGHBOURS or not colon:
        return _problem_with_text(value, limits)
    is_right = re.fullmatch("[1-9][0-9]*", count) and int(count) <= MOST_VOTERS
    return "" if is_right else f"{NEIGHBOURS}:K with K between 1 and {MOST_VOTERS}, not {value!r}"


SWITCH = Kind(bool, _problem_with_switch)
WHOLE_NUMBER = Kind(int, _problem_with_whole_number, "N")
NUMBER = Kind(float, _problem_with_number, "X")
TEXT = Kind(str, _problem_with_text)
NAMES = Kind(str, _problem_with_names)  # "none", or some of several, joined by +
SIZE = Kind(parse_size, _problem_with_size, "SIZE")
WHOLE_NUMBER_OR_AUTO = Kind(parse_whole_number_or_auto, _problem_with_whole_number_or_auto, "N")
FINISH = Kind(parse_finish, _problem_with_finish, "SIZE:EPOCHS")
WEIGHTS = Kind(str, _problem_with_weights, "COLUMN:WEIGHT+...")
HEAD = Kind(str, _problem_with_head)
KINDS_OF_TYPES: dict[type, Kind] = {bool: SWITCH, int: WHOLE_NUMBER, float: NUMBER, str: TEXT}
