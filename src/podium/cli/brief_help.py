"""The help of a command with many flags: those that most people use, then the groups of the others, in a line each.

    podium train --help            podium train --help all            podium train --help mixing

The options say themselves whether they are usual (knob.py), and the moves what they are for.
"""

import argparse
import re
import textwrap
from collections.abc import Iterable
from copy import copy

from podium.basics.errors import PodiumError
from podium.cli.option_page import about, names_of, option_page, title_of
from podium.cli.parser import OF_ANNEX, lacks
from podium.options.moves import MOVES
from podium.options.recipe import KNOBS, flag_of

WIDTH = 100
OF_COMMAND = ("--folds", "--name", "--seeds", "--budget", "--dry-run", "--device", "-c")  # usual ones, of no option


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
    flags = [*(flag_of(name) for name, own in KNOBS.items() if own.is_usual), *OF_COMMAND]
    usual = [command._option_string_actions[flag] for flag in flags if flag in command._option_string_actions]
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
    of_moves = {flag_of(name): move for move in MOVES for name in names_of(move)}
    own = [flag for flag in flags if flag not in of_recipe and flag != "--help"]
    core = [flag for flag in flags if flag in of_recipe and flag not in of_moves]
    lines = [*_line("the command", own), *_line("the recipe", core)]
    for move in MOVES:
        listed = [flag for flag in flags if of_moves.get(flag) is move]
        lines += _line(title_of(move), listed, " ".join(about(move)[0].split()))
    return lines


def _line(title: str, flags: Iterable[str], about: str = "") -> list[str]:
    words = " ".join(flags)
    text = f"{words}: {about}" if about else words
    if not words:
        return []
    rest = " " * 19
    return textwrap.wrap(text, WIDTH, initial_indent=f"  {title:16} ", subsequent_indent=rest, break_on_hyphens=False)
