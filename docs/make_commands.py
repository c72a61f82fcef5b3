"""Writes docs/commands.md, a page of all commands with their flags: `python docs/make_commands.py`.

The texts are those of `podium COMMAND --help`, in full, and of the Makefile. A test compares the page with them.
"""

import argparse
import re
from pathlib import Path

from podium.__main__ import COMMANDS
from podium.cli.parser import GROUPS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "commands.md"
HEAD = """# Commands

For whoever looks up a command or a flag. `python docs/make_commands.py` writes this page from the commands' own help.

`podium COMMAND --help` says the same in the terminal, and `make` lists its targets. All commands take `--root DIR`, the
folder that holds data/, runs/ and submissions/ (default: `PODIUM_ROOT`, or the nearest from here up); most take
`-c SLUG`, the competition (default: the only one in data/raw). The exit status is 0 when done, 1 after a mistake that
is explained in one line, and 75 when a signal stopped the command and the same command resumes.
"""
OF_ALL = {"help", "root", "competition"}


def targets() -> dict[str, str]:
    """Returns the variables of each make target, as `make` lists them."""
    lines = re.findall(r"^([a-z-]+):.*?## (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return {name: " ".join(re.findall(r"[A-Z]+=(?:\"[^\"]*\"|[^\s\]]*)", text)) for name, text in lines}


def flags_of(name: str) -> list[str]:
    """Returns a line for each flag, below its topic."""
    command = argparse.ArgumentParser(f"podium {name}", add_help=False, allow_abbrev=False)
    COMMANDS[name].add_flags(command)
    lines = list[str]()
    for group in command._action_groups:
        actions = [action for action in group._group_actions if action.dest not in OF_ALL]
        if actions and group.title not in ("options", "positional arguments"):
            lines += ["", f"*{group.title}*" + (f": {group.description}" if group.description else "")]
        lines += ["", *(_line(action) for action in actions)] if actions else []
    return lines


def _line(action: argparse.Action) -> str:
    value = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    flag = next((word for word in action.option_strings if word.startswith("--")), "")
    shown = flag if action.nargs == 0 else f"{flag} {value if isinstance(value, str) else value[0]}".strip()
    return f"- `{shown}`: {argparse.HelpFormatter('podium')._expand_help(action)}"


def page() -> str:
    lines, variables = [HEAD], targets()
    for title, names in GROUPS.items():
        lines.append(f"## {title.capitalize()}\n")
        for name in names:
            about = " ".join(str(COMMANDS[name].run.__doc__).split())
            make = f"`make {name} {variables[name]}".rstrip() + "`" if name in variables else ""
            lines += [f"### podium {name}\n", about + (f" With make: {make}" if make else ""), *flags_of(name), ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
