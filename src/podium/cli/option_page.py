"""All that is known of one option of training, or of a move with all its options: `podium train --help smoothing`."""

import inspect
import sys
import textwrap
from dataclasses import fields

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean
from podium.options.extensions.extension_files import MODULE_PREFIX
from podium.options.knob import OF_THE_ROW
from podium.options.moves import MOVES
from podium.options.moves.move import Move
from podium.options.recipe import KNOBS, flag_of, recipe_options
from podium.options.recipe_defaults import OPTIONS_OF_LEVEL, describe_default
from podium.options.removed_options import why_gone

WIDTH = 110  # of a line


def option_page(word: str) -> str:
    """Returns the page of an option, called by its name or its flag, or of a move; raises if there is none."""
    name = word.lstrip("-").replace("-", "_")
    names = {known: known for known in KNOBS} | {flag_of(known).strip("-"): known for known in KNOBS}
    others = {other.replace("-", "_"): known for known, own in KNOBS.items() for other in own.also_called}
    name = (others | names).get(name, name)
    moves = {move.__module__.rpartition(".")[2]: move for move in MOVES if not _is_own(move)}
    move = moves.get(name) or next((move for move in MOVES if name in names_of(move)), None)
    said = [] if move is None else [_said_of(move)]
    if name in KNOBS:
        return "\n".join([_page(name), *said])
    if move is None:
        hint = why_gone(name) or did_you_mean(name, [*KNOBS, *moves], otherwise="podium train --help lists the flags")
        raise PodiumError(f"--help {word}: {hint if why_gone(name) else f'no such option; {hint}'}")
    return "\n\n".join([*said, *map(_page, names_of(move))])


def names_of(move: type[Move]) -> list[str]:
    return [own.name for own in fields(move)]


def _is_own(move: type[Move]) -> bool:
    return move.__module__.startswith(MODULE_PREFIX)


def title_of(move: type[Move]) -> str:
    return move.__module__.rpartition(".")[2].replace("_", "-")


def about(move: type[Move]) -> list[str]:
    """Returns the paragraphs of the move's file, or of its class if it is one's own: what it does, what it gained."""
    return (inspect.getdoc(move if _is_own(move) else sys.modules[move.__module__]) or "").split("\n\n")


def _said_of(move: type[Move]) -> str:
    title = "your own move" if _is_own(move) else f"move {title_of(move)}"
    return "\n".join(_paragraph("" if at else title, part) for at, part in enumerate(about(move)))


def _page(name: str) -> str:
    own, kind = KNOBS[name], recipe_options()[name][0]
    default = describe_default(name).strip(" ()").removeprefix("default").lstrip(": ")
    if not default and own.default is not OF_THE_ROW:
        default = str(own.default or "off")
    levels = {level: options[name] for level, options in OPTIONS_OF_LEVEL.items() if name in options}
    facts = {
        flag_of(name): own.text,
        "values": kind.within(own.limits),
        "default": default,
        "because": own.why,
        "levels": ", ".join(f"{level} {value}" for level, value in levels.items()),
        "a search tries": own.searched.values.describe() if own.searched else "",
        "a frozen head": "" if own.for_heads else "does without it (--linear)",
        "also called": ", ".join(own.also_called),
    }
    return "\n".join(_paragraph(fact, text) for fact, text in facts.items() if text)


def _paragraph(fact: str, text: str) -> str:
    first, rest = f"{fact:15} ", " " * 16
    return textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
