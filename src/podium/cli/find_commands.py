"""The commands of this package, and of those beside it."""

from podium.basics.beside import brought
from podium.cli.commands import COMMANDS
from podium.cli.parser import Command


def all_commands() -> dict[str, Command]:
    found = dict(COMMANDS)
    for commands in brought("commands", "COMMANDS"):
        found |= commands
    return found
