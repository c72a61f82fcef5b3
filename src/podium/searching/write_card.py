"""Writes the winner's options into [recipe] of the competition's card, and leaves the rest of the file as it is.

    podium search --write-card [--name SEARCH]

The file is a text of its owner, with comments. So lines are replaced or added, and the result is read again: if it says
anything else than before plus these options, nothing is written.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from podium.disk import write_text
from podium.errors import PodiumError
from podium.searching.search import describe_options
from podium.searching.search_report import Found, options_of
from podium.terminal import podium_command, say

HEADER = re.compile(r"^\s*\[\s*recipe\s*\]\s*(#.*)?$")
ANY_HEADER = re.compile(r"^\s*\[")


def write_winner(found: Found) -> None:
    """Writes the options of a search's winner; says which of its facts a card does not hold."""
    if found.winner is None or found.defaults is None:
        raise PodiumError(f"search {found.name} has no winner yet; the same command goes on")
    options = found.changed_options()
    path = found.competition.card.path
    if not options:
        say(f"podium: the defaults won, so {path} stays as it is")
        return
    write_card(path, options)
    model = options_of(found.winner)["model"]
    say(f"podium: wrote {describe_options(options)} into {path}; they are the defaults of all models here now")
    say(f"next: {podium_command()} train -c {found.competition.slug} --model {model} --name NAME")


def write_card(path: Path, options: Mapping[str, Any]) -> None:
    """Writes these options into the card, or refuses and leaves it as it is."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    after = with_options_in_card(before, options)
    if after is None:
        lines = ", ".join(f"{name} = {json.dumps(value)}" for name, value in options.items())
        raise PodiumError(
            f"{path}: its [recipe] is written in a way that cannot be kept; write there yourself: {lines}"
        )
    write_text(path, after)


def with_options_in_card(text: str, options: Mapping[str, Any]) -> str | None:
    """Returns the text of the card with these options; None if the rest could not stay as it is."""
    lines = text.splitlines()
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
            comment = re.search(r"\s+#[^\"']*$", lines[place])
            lines[place] = line + (comment[0] if comment else "")
    after = "\n".join(lines) + "\n"
    return after if _says(after, text, options) else None


def _says(after: str, before: str, options: Mapping[str, Any]) -> bool:
    """Whether a card says what it said before, and these options."""
    try:
        old, new = tomllib.loads(before), tomllib.loads(after)
        return bool(new == {**old, "recipe": {**old.get("recipe", {}), **options}})
    except (tomllib.TOMLDecodeError, TypeError):
        return False
