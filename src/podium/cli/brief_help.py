"""The help of a command with many flags: those that most people use, then the groups of the others, in a line each.

podium train --help            podium train --help all            podium train --help mixing
"""

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable
from copy import copy
from dataclasses import fields

from podium.cli.option_page import is_own, option_page
from podium.cli.parser import OF_ANNEX, lacks
from podium.errors import PodiumError
from podium.moves import MOVES
from podium.moves.move import Move
from podium.recipe import KNOBS, flag_of

WIDTH = 100
USUAL = (
    *("--model", "--weights", "--folds", "--name", "--seeds", "--from", "--linear"),
    *("--image-size", "--epochs", "--batch-size", "--lr", "--level", "--views"),
    *("--budget", "--dry-run", "--device", "-c"),
)


def explain(command: argparse.ArgumentParser, word: str) -> str:
    """Returns what is to be said of a flag, an option or a move; without a word, of the command."""
    flag = f"--{word.lstrip('-').replace('_', '-')}"
    action = command._option_string_actions.get(flag)
    if not word or word == "all":
        return command.format_help() if word else brief_help(command)
    if action is None and lacks(flag):
        raise PodiumError(f"{flag} {OF_ANNEX}")
    if action is None or flag in map(flag_of, KNOBS):
        return option_page(word)
    formatter = command._get_formatter()
    formatter.add_arguments([action])
    return formatter.format_help().strip()


def brief_help(command: argparse.ArgumentParser) -> str:
    usual = [action for action in command._actions if set(action.option_strings) & set(USUAL)]
    usual.sort(key=lambda action: min(USUAL.index(flag) for flag in action.option_strings if flag in USUAL))
    formatter = command._get_formatter()
    formatter.add_usage("%(prog)s [FLAG VALUE ...]", (), ())
    formatter.add_text(command.description)
    formatter.start_section("most used")
    formatter.add_arguments(map(_shortened, usual))
    formatter.end_section()
    others = [action for action in command._actions if action not in usual and action.option_strings]
    lines = [
        formatter.format_help(),
        f"further flags (`{command.prog} --help all` explains every one, `--help NAME` one, or a group with",
        "what it gained here):",
        *_groups(command, [next(flag for flag in action.option_strings if flag.startswith("--")) for action in others]),
    ]
    return "\n".join(lines)


def _shortened(action: argparse.Action) -> argparse.Action:
    """Returns the flag without its default for each kind of model."""
    short = copy(action)
    short.help = re.sub(r"\(default by kind of model: .*\)", "(default: by the kind of model)", action.help or "")
    return short


def _groups(command: argparse.ArgumentParser, flags: list[str]) -> list[str]:
    """Returns what there is beside the usual flags: of this command, of the recipe, of each move."""
    of_recipe = {flag_of(name): name for name in KNOBS}
    of_moves = {flag_of(name): move for move in MOVES for name in _names_of(move)}
    own = [flag for flag in flags if flag not in of_recipe and flag != "--help"]
    core = [flag for flag in flags if flag in of_recipe and flag not in of_moves]
    lines = [*_line("the command", own), *_line("the recipe", core)]
    for move in MOVES:
        listed = [flag for flag in flags if of_moves.get(flag) is move]
        lines += _line(_name_of(move), listed, _about(move))
    return lines


def _names_of(move: type[Move]) -> list[str]:
    return [own.name for own in fields(move)]


def _name_of(move: type[Move]) -> str:
    return move.__module__.rpartition(".")[2].replace("_", "-")


def _about(move: type[Move]) -> str:
    """Returns the first sentence of what the move's file says, or of its class if it is one's own."""
    text = inspect.getdoc(move if is_own(move) else sys.modules[move.__module__]) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _line(title: str, flags: Iterable[str], about: str = "") -> list[str]:
    words = " ".join(flags)
    text = f"{words}: {about}" if about else words
    if not words:
        return []
    rest = " " * 19
    return textwrap.wrap(text, WIDTH, initial_indent=f"  {title:16} ", subsequent_indent=rest, break_on_hyphens=False)
