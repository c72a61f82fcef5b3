"""A knob is one value of a recipe, with every fact about it: flags, checks, defaults and old recipes follow from them.

No fact about an option belongs into a list elsewhere, where a new option would be forgotten.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from podium.options.option_kinds import Kind, Limits
from podium.options.search_values import Searched

ALWAYS_RECORDED = object()  # `off` of the knobs that the first version had: no recipe.json lacks them
OF_THE_ROW = object()  # `default` of what depends on the kind of model (recipe_defaults.py)


@dataclass(frozen=True)
class Knob:
    text: str  # the help
    limits: Limits
    _: KW_ONLY
    off: Any  # what a recipe did that was written before the knob existed: nobody can forget it, as it has no default
    default: Any = OF_THE_ROW  # for every model; rows of recipe_defaults.py overrule it
    why: str = ""  # the reason of the default
    kind: Kind | None = None  # of its values; None: that of the field's type
    flag: str = ""  # on the command line, if it is not the name with hyphens
    also_called: tuple[str, ...] = ()  # by other programs
    searched: Searched | None = None
    for_heads: bool = True  # a head on frozen features knows it, too
    is_usual: bool = False  # one of the few that most people use: the help explains it, and names the others
    topic: str = ""  # of those in the help, where no move says it
    is_move: bool = False  # in use only where a run is meant to differ from others: compare names it
    recorded_as: str = ""  # what its hash in recipe.json is of, if the name does not say it
    learns_from: str = ""  # of a knob that names finished runs: what the new run does with them
    is_file: bool = False  # it names a file: looked for before training, hashed into the run, taken to other machines
    may_be_file: bool = False  # or something else: then only taken to clouds; its own code does the rest
    needs_end: bool = False  # of the run: neither a budget may cut it off, nor a search
    is_taken_over: bool = True  # by a run that goes on from another
    against: Mapping[str, str] = field(default_factory=dict)  # other options, and why not both: see request.py


def knob(
    text: str,
    lowest: float = -math.inf,
    highest: float = math.inf,
    *,
    choices: Collection[str] | None = None,
    **facts: Any,
) -> Any:
    """Returns a field of a dataclass of knobs; the facts are those of `Knob`."""
    return field(metadata={"knob": Knob(text, Limits(lowest, highest, choices), **facts)})
