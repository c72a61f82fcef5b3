"""The commands of this package, and of those beside it."""

from importlib import import_module

from podium.beside import modules_beside
from podium.cli.commands import COMMANDS
from podium.cli.parser import Command


def all_commands() -> dict[str, Command]:
    found = dict(COMMANDS)
    for module in modules_beside("commands"):
        found |= import_module(module).COMMANDS
    return found
