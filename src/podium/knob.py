"""A knob is one value of a recipe, with every fact about it: flags, checks, defaults and old recipes follow from them.

No fact about an option belongs into a list elsewhere, where a new option would be forgotten.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from podium.option_kinds import Kind, Limits
from podium.search_values import Searched

ALWAYS_RECORDED = object()  # `off` of the knobs that the first version had: no recipe.json lacks them
OF_THE_ROW = object()  # `default` of what depends on the kind of model (recipe_defaults.py)


@dataclass(frozen=True)
class Knob:
    text: str  # the help
    limits: Limits
    kind: Kind | None  # of its values; None: that of the field's type
    default: Any  # for every model; rows of recipe_defaults.py overrule it
    why: str  # the reason of the default; "" where there is nothing to explain
    off: Any  # what a recipe did that was written before the knob existed: the value that changes nothing
    flag: str  # on the command line, if it is not the name with hyphens
    also_called: tuple[str, ...]  # by other programs
    searched: Searched | None
    for_heads: bool  # a head on frozen features knows it, too
    is_move: bool  # in use only where a run is meant to differ from others: compare names it
    recorded_as: str  # what its hash in recipe.json is of, if the name does not say it
    learns_from: str  # of a knob that names finished runs: what the new run does with them
    is_taken_over: bool  # by a run that goes on from another
    against: Mapping[str, str]  # options that it does not go with, and why not, as the end of "--this and --that ..."


def knob(
    text: str,
    lowest: float = -math.inf,
    highest: float = math.inf,
    *,
    off: Any,  # nobody can forget it: runs that were begun before the knob could not be resumed
    default: Any = OF_THE_ROW,
    why: str = "",
    choices: Collection[str] | None = None,
    kind: Kind | None = None,
    flag: str = "",
    also_called: tuple[str, ...] = (),
    searched: Searched | None = None,
    for_heads: bool = True,
    is_move: bool = False,
    recorded_as: str = "",
    learns_from: str = "",
    is_taken_over: bool = True,
    against: Mapping[str, str] | None = None,
) -> Any:
    """Returns a field of a dataclass of knobs."""
    limits = Limits(lowest, highest, choices)
    facts = Knob(
        text,
        limits,
        kind,
        default,
        why,
        off,
        flag,
        also_called,
        searched,
        for_heads,
        is_move,
        recorded_as,
        learns_from,
        is_taken_over,
        against or {},
    )
    return field(metadata={"knob": facts})
