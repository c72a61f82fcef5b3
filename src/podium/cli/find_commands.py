"""The commands of this package, and of those beside it.

A package whose name begins with `podium_` and that has a module `commands` brings those in its `COMMANDS`. Its entry
points would say the same, but to read them takes a third of the time of `podium --help`, and a copy that is not
installed, as in a kernel, has none.
"""

import pkgutil
from importlib import import_module
from importlib.util import find_spec

from podium.cli.commands import COMMANDS
from podium.cli.parser import Command

PREFIX = "podium_"


def all_commands() -> dict[str, Command]:
    found = dict(COMMANDS)
    for package in pkgutil.iter_modules():
        if package.ispkg and package.name.startswith(PREFIX) and find_spec(f"{package.name}.commands"):
            found |= import_module(f"{package.name}.commands").COMMANDS
    return found
