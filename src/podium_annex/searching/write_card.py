"""Writes the winner's options into [recipe] of the competition's card, and leaves the rest of the file as it is.

    podium search --write-card [--name SEARCH]

The file is a text of its owner, with comments. So lines are replaced or added, and the result is read again: if it says
anything else than before plus these options, nothing is written.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import join
from typing import Any

from podium.basics.disk import write_text
from podium.basics.errors import PodiumError
from podium.basics.terminal import podium_command, say
from podium.options.recipe import describe_options, flag_of
from podium_annex.searching.search_report import Found, options_of

HEADER = re.compile(r"^\s*\[\s*recipe\s*\]\s*(#.*)?$")
ANY_HEADER = re.compile(r"^\s*\[")


def write_winner(found: Found) -> None:
    """Writes the options of a search's winner; says which of its facts a card does not hold."""
    if found.winner is None or found.defaults is None:
        raise PodiumError(f"search {found.name} has no winner yet; the same command goes on")
    options = found.searched_options()
    path = found.competition.card.path
    if options:
        write_card(path, options)
        say(f"podium: wrote {describe_options(options)} into {path}; they are the defaults of all models here now")
    else:
        say(f"podium: the defaults won, so {path} stays as it is")
    model, given = options_of(found.winner)["model"], words_of(found.settings["options"])
    words = ["train", "-c", found.competition.slug, "--model", model, *given, "--name", "NAME"]
    say(f"next: {podium_command()} {join(words)}")


def words_of(options: Mapping[str, Any]) -> list[str]:
    """Returns the flags of these options, as a user writes them."""
    words = []
    for name, value in options.items():
        flag = flag_of(name)
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag.removeprefix('--')}")
        else:
            words += [flag, str(value)]
    return words


def write_card(path: Path, options: Mapping[str, Any]) -> None:
    """Writes these options into the card, or refuses and leaves it as it is."""
    before = path.read_bytes().decode() if path.exists() else ""  # with its own line ends
    after = with_options_in_card(before, options)
    if after is None:
        lines = ", ".join(f"{name} = {json.dumps(value)}" for name, value in options.items())
        raise PodiumError(
            f"{path}: its [recipe] is written in a way that cannot be kept; write there yourself: {lines}"
        )
    write_text(path, after)


def with_options_in_card(text: str, options: Mapping[str, Any]) -> str | None:
    """Returns the text of the card with these options; None if the rest could not stay as it is."""
    lines, end_of_line = text.splitlines(), "\r\n" if "\r\n" in text else "\n"
    header = next((number for number, line in enumerate(lines) if HEADER.match(line)), None)
    if header is None:
        lines += [*([""] if lines else []), "[recipe]"]
        header = len(lines) - 1
    end = next((n for n in range(header + 1, len(lines)) if ANY_HEADER.match(lines[n])), len(lines))
    while end > header + 1 and not lines[end - 1].strip():  # blank lines belong to the next table
        end -= 1
    for name, value in options.items():
        line = f"{name} = {json.dumps(value)}"
        place = next((n for n in range(header + 1, end) if re.match(rf"^\s*{name}\s*=", lines[n])), None)
        if place is None:
            lines.insert(end, line)
            end += 1
        else:
            lines[place] = line + _comment_of(lines[place])
    after = end_of_line.join(lines) + end_of_line
    return after if _says(after, text, options) else None


def _comment_of(line: str) -> str:
    """Returns the comment of a line, with the space before it: a # may also be in a text."""
    for place in (match.start() for match in re.finditer("#", line)):
        with suppress(tomllib.TOMLDecodeError):
            value = line[:place]
            tomllib.loads(value)
            return line[len(value.rstrip()) :]
    return ""


def _says(after: str, before: str, options: Mapping[str, Any]) -> bool:
    """Whether a card says what it said before, and these options."""
    try:
        old, new = tomllib.loads(before), tomllib.loads(after)
        return bool(new == {**old, "recipe": {**old.get("recipe", {}), **options}})
    except (tomllib.TOMLDecodeError, TypeError):
        return False
