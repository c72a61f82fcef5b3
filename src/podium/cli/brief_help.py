"""The help of a command with many flags: those that most people use, and topics with all others.

    podium train --help       podium train --help images       podium train --help mixing       podium train --help all

The options say themselves whether they are usual (knob.py), the moves what they are for, and both belong to a topic.
"""

import argparse
import re
import textwrap
from collections.abc import Iterator

from podium.basics.errors import PodiumError
from podium.cli.option_page import about, names_of, option_page, title_of
from podium.cli.parser import OF_ANNEX, lacks
from podium.options.moves import MOVES
from podium.options.recipe import KNOBS, TOPIC_OF, flag_of

WIDTH = 100
TEXT_WIDTH = 56  # of the help text of a flag, in a terminal of 80 columns
OF_COMMAND = ("--folds", "--name", "--seeds", "--budget", "--dry-run")  # usual ones, of no option


def explain(command: argparse.ArgumentParser, word: str) -> str:
    """Returns what is to be said of a topic, a flag, an option or a move; without a word, of the command."""
    flag = f"--{word.lstrip('-').replace('_', '-')}"
    action = command._option_string_actions.get(flag)
    if word == "all":
        command.formatter_class = InTwoLines
        return f"{command.format_help()}\n{command.prog} --help NAME tells all of a flag, a topic or a move."
    if not word:
        return brief_help(command)
    if topic := next((group for group in _topics(command) if group.title in (word, word.replace("-", " "))), None):
        return _page_of(command, topic)
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
    lines = [
        f"usage: {command.prog} --model NAME [FLAG VALUE ...]",
        "",
        *textwrap.wrap(command.description or "", WIDTH),
        "",
    ]
    for action in usual:
        values = "" if action.nargs == 0 else f" {action.metavar}"
        flag = next(word for word in action.option_strings if word.startswith("--"))
        lines += _entry(f"{flag}{values}", _first_words(action.help or ""))
    lines += ["", f"{command.prog} --help TOPIC, or NAME (a flag, or a word of another program), or all:"]
    for group in _topics(command):
        words = [action.option_strings[0] for action in group._group_actions if action not in usual]
        lines += _entry(str(group.title), " ".join(words))
    return "\n".join(lines)


def _topics(command: argparse.ArgumentParser) -> Iterator[argparse._ArgumentGroup]:
    """Yields the groups of flags that have a topic: all but those of argparse itself, such as --help."""
    yield from (group for group in command._action_groups[2:] if group._group_actions)


def _page_of(command: argparse.ArgumentParser, topic: argparse._ArgumentGroup) -> str:
    """Returns all flags of a topic, and the moves that own some of them."""
    formatter = command._get_formatter()
    formatter.start_section(topic.title)
    formatter.add_text(topic.description)
    formatter.add_arguments(topic._group_actions)
    formatter.end_section()
    moves = [move for move in MOVES if names_of(move) and TOPIC_OF[names_of(move)[0]] == topic.title]
    lines = [formatter.format_help()]
    if moves:
        lines.append("what they do, and what they gained here (--help NAME):")
    for move in moves:
        lines += _entry(title_of(move), " ".join(about(move)[0].split()))
    return "\n".join(lines)


class InTwoLines(argparse.HelpFormatter):
    """Shows of each flag what two lines of a terminal hold; `--help FLAG` tells the rest."""

    def _expand_help(self, action: argparse.Action) -> str:
        text = super()._expand_help(action)
        meaning, default = _parts(text)
        plain = re.sub(r" \([^()]*\)", "", meaning)
        clauses = (meaning, plain, *(": ".join(plain.split(": ")[:count]) for count in (3, 2, 1)))
        shorter = (text, meaning + default, plain + default, *(part.split("; ")[0] + default for part in clauses))
        return next((words for words in shorter if len(textwrap.wrap(words, TEXT_WIDTH)) <= 2), shorter[-1])


def _first_words(text: str) -> str:
    """Returns what a flag is and its usual default, without its further values."""
    meaning, default = _parts(text)
    return re.split(r"; | \(", meaning)[0] + default


def _parts(text: str) -> tuple[str, str]:
    """Returns what a help text says, and ` (default: ...)`, without the values of further kinds of models."""
    default = re.search(r" \((default: [^();]*)([^()]*)\)$", text.replace("%%", "%"))
    if default is None:
        return text, ""
    return text[: default.start()], f" ({default[1]}{', by kind of model' if default[2] else ''})"


def _entry(name: str, text: str) -> list[str]:
    """Returns a line of two columns, or several."""
    first, rest = f"  {name:18} ", " " * 21
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
