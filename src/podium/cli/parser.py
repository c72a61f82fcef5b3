"""The parser of all commands: its errors are one line with the most similar correct word."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from podium.basics.beside import modules_beside
from podium.basics.errors import PodiumError
from podium.basics.project_root import DIGITS_SLUG
from podium.basics.terminal import did_you_mean
from podium.cli.flag_values import slug
from podium.options.known_words import COMMANDS_GONE, explain_flag

GROUPS = {  # of all commands, by what a person wants; those that are not there come with the annex
    "start": ("demo", "sample", "data", "audit", "folds", "compete"),
    "train": ("models", "train", "next", "search", "pretrain"),
    "submit": ("submit", "match", "final", "import", "soup"),
    "understand": ("compare", "report", "explain", "lineage", "score", "verify"),
    "share": ("predict", "export", "kaggle-bundle"),
    "scale": ("doctor", "bench", "kaggle-train"),
}
WORDS = {  # that a newcomer may not know
    "fold": "one of the parts that the training images are split into; each model trains on the others",
    "held out": "not seen by a model in training, so that it can be scored on them: a fold, for its model",
    "out-of-fold": "predictions of all training images, each by the model that has not seen it",
    "frozen head": "a classifier on the features of a pretrained model that itself stays as it is; takes seconds",
    "blend": "the weighted mean of several runs' predictions; better than each where they err differently",
    "run": "the models of one recipe, one for each fold, in runs/<competition>/<run>/",
    "card": "data/competitions/<competition>.toml: what the files do not say, or what was guessed wrongly",
    "certificate": "folds.json: what was checked of the folds, such as no copy of an image on both sides",
    "lineage": "the .json beside a submission: all that it was made of, and enough to rebuild it",
}
ORDER = tuple(name for names in GROUPS.values() for name in names)  # in the help
OF_ANNEX = "comes with podium_annex, which is not installed: install all of podium"
FLAGS_OF_ANNEX = ("--on", "--at-once", "--job", "--cell", "--picture")  # of train, compete, submit and compare


class Command(NamedTuple):
    run: Callable[[argparse.Namespace], None]
    add_flags: Callable[[argparse.ArgumentParser], None]
    has_competition: bool = True  # it is about one
    then: str = ""  # the command that usually follows, where this one names none itself


def parser(commands: Mapping[str, Command], version: str) -> "Parser":
    main = Parser("podium", description="From a Kaggle image-classification competition's files to a submission.")
    main.add_argument("--version", action=ShowVersion, nargs=0, const=version, help="show the version and the commit")
    main.explain = explain_word
    root_help = "the folder that holds data/, runs/, submissions/ (default: PODIUM_ROOT, or the nearest from here up)"
    main.add_argument("--root", type=Path, metavar="DIR", help=root_help)
    subparsers = main.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name in sorted(commands, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        run, add_flags, has_competition, then = commands[name]
        command = subparsers.add_parser(name, help=run.__doc__, description=run.__doc__)
        command.add_argument("--root", type=Path, default=argparse.SUPPRESS, metavar="DIR", help=root_help)
        if has_competition:
            command.add_argument(
                "-c",
                "--competition",
                type=slug,
                metavar="SLUG",
                help="name in the address of its page (default: the only one in data/raw,"
                f" not counting '{DIGITS_SLUG}')",
            )
        command.add_flags, command.whole = add_flags, main
        command.set_defaults(run=run, has_competition=has_competition, then=then)
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

    def format_help(self) -> str:
        """Lists the commands of the whole line by what a person wants, a line each."""
        texts = {
            choice.dest: choice.help or "" for action in self._subparsers_of() for choice in action._choices_actions
        }
        if not texts:
            return super().format_help()
        others = [name for name in texts if name not in ORDER]
        lines = [
            "usage: podium [--root DIR] COMMAND ...",
            "       podium COMMAND --help     podium --help words     podium --version",
            "",
            self.description,
        ]
        for title, names in (*GROUPS.items(), ("your own", others)):
            found = [name for name in names if name in texts]
            lines += ["", title, *(f"  {name:14} {_first_clause(texts[name])}" for name in found)] if found else []
        return "\n".join([*map(str, lines), ""])

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = self.words = list(sys.argv[1:] if args is None else args)
        self.add_flags(self)
        self.add_flags = no_flags
        for place, word in enumerate(words):
            if self.explain and word in ("-h", "--help"):
                print(self.explain(self, _topic(words[place + 1 :])))
                self.exit()
            if not word.startswith("-"):
                if self.prog == "podium" and word in self.commands():
                    break  # the words after it belong to that command
                if self.prog == "podium" and word in ORDER and words[place - 1 : place] != ["--root"]:
                    self.error(f"podium {word} {OF_ANNEX}")
                if self.prog == "podium" and word in COMMANDS_GONE and words[place - 1 : place] != ["--root"]:
                    self.error(f"no command {word} any more; {COMMANDS_GONE[word]}")
                continue
            self._check_flag(word)
        return super().parse_known_args(words, namespace)

    def _check_flag(self, word: str) -> None:
        flag, known = word.partition("=")[0], self._option_string_actions
        if flag in known or re.match(r"-\.?\d|-$|--$", word):
            return
        if lacks(flag):
            self.error(f"{flag} {OF_ANNEX}")
        hint = explain_flag(flag, set(known))
        self.error(f"no flag {flag}{f'; {hint}' if hint else _hint(flag, known)}")

    def commands(self) -> list[str]:
        return [name for action in self._subparsers_of() for name in action.choices]

    def _subparsers_of(self) -> list["argparse._SubParsersAction[Any]"]:
        return [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '?([^' ]*)", message)
        if wrong and message.startswith("argument COMMAND"):
            message = f"no command {wrong[1]}{_hint(wrong[1], dict.fromkeys([*self.commands(), *ORDER]))}"
        number = re.fullmatch(r"argument (\S+): invalid (int|float) value: (.*)", message)
        if number:
            message = f"{number[1]} must be {'a whole number' if number[2] == 'int' else 'a number'}, not {number[3]}"
        raise PodiumError(f"{message} (see {self.prog} --help)")


class ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from podium.basics.checkout import current_commit

        commit = current_commit()
        print(f"podium {self.const}" + (f", commit {commit}" if commit else ""))
        parser.exit()


def explain_word(main: argparse.ArgumentParser, word: str) -> str:
    """Returns what `podium --help WORD` says: of a command, its help; of `words`, what they mean."""
    if word == "words":
        return "\n".join(f"{name:12}  {meaning}" for name, meaning in WORDS.items())
    if word in WORDS:
        return f"{word}: {WORDS[word]}"
    if word and word not in ORDER and not word.startswith("-"):
        raise PodiumError(f"--help {word}: no such word; podium train --help {word} explains an option or a topic")
    return main.format_help().rstrip()


def lacks(flag: str) -> bool:
    """Returns whether the annex would bring this flag, and is not there."""
    return flag in FLAGS_OF_ANNEX and not modules_beside("commands")


def _topic(words: list[str]) -> str:
    """Returns what help is asked for: a word, or a flag if nothing follows it; "" for the command's."""
    return words[0] if words and (not words[0].startswith("-") or len(words) == 1) else ""


def _first_clause(text: str) -> str:
    """Returns what a command does, without the details that its own help has."""
    return re.split(r"[:;] |, (?:and|or|which|as|compared) |\.$", text)[0]


def _hint(word: str, known: Iterable[str]) -> str:
    hint = did_you_mean(word, known)
    return f"; {hint}" if hint else ""


def no_flags(command: argparse.ArgumentParser) -> None:
    pass
