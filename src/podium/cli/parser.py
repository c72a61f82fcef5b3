"""The parser of all commands: its errors are one line with the most similar correct word."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from podium.cli.flag_values import slug
from podium.errors import PodiumError
from podium.known_words import explain_flag
from podium.project_root import DEFAULT_COMPETITION, DIGITS_SLUG
from podium.terminal import did_you_mean

OF_ANNEX = (  # for who has not got it
    *("bench", "demo", "doctor", "explain", "export", "jobs", "kaggle-bundle", "kaggle-train", "models"),
    *("pretrain", "report", "score", "search", "soup", "verify"),
)


class Command(NamedTuple):
    run: Callable[[argparse.Namespace], None]
    add_flags: Callable[[argparse.ArgumentParser], None]
    has_competition: bool = True  # it is about one


def parser(commands: Mapping[str, Command], version: str) -> "Parser":
    main = Parser("podium", description="From a Kaggle image-classification competition's files to a submission.")
    main.add_argument("--version", action="version", version=f"podium {version}")
    root_help = "the folder that holds data/, runs/, submissions/ (default: PODIUM_ROOT, or the nearest from here up)"
    main.add_argument("--root", type=Path, metavar="DIR", help=root_help)
    subparsers = main.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, (run, add_flags, has_competition) in commands.items():
        command = subparsers.add_parser(name, help=run.__doc__, description=run.__doc__)
        command.add_argument("--root", type=Path, default=argparse.SUPPRESS, metavar="DIR", help=root_help)
        if has_competition:
            command.add_argument(
                "-c",
                "--competition",
                type=slug,
                metavar="SLUG",
                help="name in the address of its Kaggle page (default: the only one in data/raw, not counting"
                f" '{DIGITS_SLUG}', or {DEFAULT_COMPETITION})",
            )
        command.add_flags, command.whole = add_flags, main
        command.set_defaults(run=run, has_competition=has_competition)
    return main


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, with errors of one line that suggest the most similar correct word.

    A command's flags are added when its words are parsed: those of all commands take longer than many a command.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "allow_abbrev": False})
        self.add_flags: Callable[[argparse.ArgumentParser], None] = no_flags
        # What stands after --help, or "".
        self.explain: Callable[[argparse.ArgumentParser, str], str] | None = None
        self.whole = self  # the parser of the whole line; of a command, the one that it belongs to
        self.words: list[str] = []

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = self.words = list(sys.argv[1:] if args is None else args)
        self.add_flags(self)
        self.add_flags = no_flags
        asked = next((words[-count:] for count in (1, 2) if words[-count:][:1] in (["-h"], ["--help"])), None)
        if self.explain and asked:
            print(self.explain(self, " ".join(asked[1:])))
            self.exit()
        for word in words:
            if not word.startswith("-"):
                if self.prog == "podium" and word in self.commands():
                    break  # the words after it belong to that command
                if self.prog == "podium" and word in OF_ANNEX:
                    self.error(f"podium {word} comes with podium_annex, which is not installed: install all of podium")
                continue
            flag = word.partition("=")[0]
            if flag not in self._option_string_actions and not re.match(r"-\.?\d|-$|--$", word):
                hint = explain_flag(flag, set(self._option_string_actions))
                self.error(f"no flag {flag}{f'; {hint}' if hint else _hint(flag, self._option_string_actions)}")
        return super().parse_known_args(words, namespace)

    def commands(self) -> list[str]:
        subparsers = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return [name for action in subparsers for name in action.choices]

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '?([^' ]*)", message)
        if wrong and message.startswith("argument COMMAND"):
            message = f"no command {wrong[1]}{_hint(wrong[1], self.commands())}"
        number = re.fullmatch(r"argument (\S+): invalid (int|float) value: (.*)", message)
        if number:
            message = f"{number[1]} must be {'a whole number' if number[2] == 'int' else 'a number'}, not {number[3]}"
        raise PodiumError(f"{message} (see {self.prog} --help)")


def _hint(word: str, known: Iterable[str]) -> str:
    hint = did_you_mean(word, known)
    return f"; {hint}" if hint else ""


def no_flags(command: argparse.ArgumentParser) -> None:
    pass
