"""Flags that several commands have, also commands outside this package."""

import argparse
from pathlib import Path

from podium.basics.errors import PodiumError
from podium.cli.flag_values import FoldNumbers, Names, count, positive, reader, run_name, seconds
from podium.cli.parser import Parser


def run_flags(command: argparse._ActionsContainer, about_budget: str = "") -> None:
    text = "folds to train, such as 0 or 0,2-4 (default: each of them); all: a model that learns from all images, once"
    text += " folds have told how good the recipe is; all:3: three of them, with seeds of their own"
    command.add_argument("--folds", nargs="+", action=FoldNumbers, metavar="0-2", help=text)
    command.add_argument("--name", type=run_name, metavar="RUN", help="name of the run (default: the model's name)")
    text = "time for training and submission, such as 8h or 90m: trains fewer epochs, or fewer folds, if needed"
    command.add_argument("--budget", type=seconds, metavar="TIME", help=text + about_budget)


def group_of(command: argparse.ArgumentParser, title: str, about: str = "") -> argparse._ArgumentGroup:
    """Returns the command's flags of this topic in its help."""
    found = [group for group in command._action_groups if group.title == title]
    return found[0] if found else command.add_argument_group(title, about)


def recipe_flags(command: argparse.ArgumentParser, several_models: bool = False) -> None:
    """Adds one flag per field of the recipe."""
    from podium.cli.brief_help import explain
    from podium.options.option_kinds import SWITCH
    from podium.options.recipe import TOPIC_OF, TOPICS, flag_of, recipe_options
    from podium.options.recipe_defaults import describe_default

    if isinstance(command, Parser):
        command.explain = explain
        _load_own_moves(command.whole.words)
    for name, (kind, help_text) in recipe_options().items():
        text = (help_text + describe_default(name)).replace("%", "%%")
        flag = flag_of(name)
        if flag in command._option_string_actions:
            raise PodiumError(f"{flag} is a flag of {command.prog} already; give the option of your move another name")
        group = group_of(command, TOPIC_OF[name], TOPICS.get(TOPIC_OF[name], ""))
        if name == "model" and several_models:
            group.add_argument(flag, nargs="+", action=Names, metavar="MODEL", help=f"{text}; several: each in turn")
        elif kind is SWITCH:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            group.add_argument(flag, dest=name, type=reader(kind.read), metavar=kind.metavar or name.upper(), help=text)


def _load_own_moves(words: list[str]) -> None:
    """Loads the project's own parts, whose moves have flags. The words may name the project."""
    from podium.basics.project_root import find_root
    from podium.options.extensions.extension_files import load_extensions

    named = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    named.add_argument("--root", type=Path)
    load_extensions(find_root(named.parse_known_args(words)[0].root))


def corrections_flag(command: argparse._ActionsContainer) -> None:
    text = "table of id, label (or drop) and why: corrects labels; every later command sees them"
    command.add_argument("--corrections", type=Path, metavar="FILE", help=text)


def runs_flags(command: argparse.ArgumentParser) -> None:
    group = command.add_mutually_exclusive_group()
    text = "names of runs, separated by blanks or commas (default: all runs of the competition)"
    group.add_argument("--runs", nargs="+", action=Names, metavar="RUN", help=text)
    text = "names of runs to leave out"
    group.add_argument("--except", nargs="+", action=Names, dest="except_names", metavar="RUN", help=text)


def blend_flag(command: argparse.ArgumentParser) -> None:
    text = "how runs are blended: shrunk, equal, best, convex, stacked ... (docs/guide/blending.md), or your own stack"
    command.add_argument("--blend", metavar="STRATEGY", help=text)


def device_flag(command: argparse._ActionsContainer) -> None:
    text = "auto, cpu, cuda, cuda:1, mps (default: %(default)s)"
    command.add_argument("--device", default="auto", help=text)


def device_flags(command: argparse._ActionsContainer) -> None:
    device_flag(command)
    text = "processes that load images (default: what suits the device and its cores); never changes the result"
    command.add_argument("--workers", type=count, metavar="N", help=text)
    text = "threads that compute on a CPU (default: as many as cores are free when a run begins; it keeps their number)"
    command.add_argument("--threads", type=positive, metavar="N", help=text)


def deterministic_flag(command: argparse._ActionsContainer) -> None:
    text = "give identical results on a GPU when training is repeated; slower"
    command.add_argument("--deterministic", action="store_true", help=text)


def machine_flags(command: argparse._ActionsContainer) -> None:
    device_flags(command)
    store_flag(command)


def store_flag(command: argparse._ActionsContainer) -> None:
    text = "keep the decoded pixels on disk, or decode a file each time it is read (default: %(default)s)"
    command.add_argument("--store", choices=("on", "off"), default="on", help=text)
