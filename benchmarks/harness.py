"""What the measurements share: a command line made of parameters, commands of podium, times in turn, and tables."""

import argparse
import inspect
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from podium.saved_runs.run_folder import Run

PODIUM = (sys.executable, "-m", "podium")


def call(*functions: Callable[..., None]) -> None:
    """Calls a function with the words of the command line; of several functions, the one that the first word names.

    A parameter without a default is a word, one with a default a flag. A list or a tuple takes several words,
    and *flags all that are left.
    """
    doc = functions[0].__globals__["__doc__"]
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="WHAT") if len(functions) > 1 else None
    for function in functions:
        name, text = function.__name__.replace("_", "-"), inspect.getdoc(function)
        own = commands.add_parser(name, help=text, description=text) if commands else parser
        for parameter in inspect.signature(function, eval_str=True).parameters.values():
            _add_argument(own, parameter)
        own.set_defaults(function=function)
    given = vars(parser.parse_args())
    print(machine(), file=sys.stderr)
    function = given.pop("function")
    rest: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is parameter.empty:
            is_rest = parameter.kind is parameter.VAR_POSITIONAL
            rest += given.pop(parameter.name) if is_rest else [given.pop(parameter.name)]
    function(*rest, **given)


def _add_argument(parser: argparse.ArgumentParser, parameter: inspect.Parameter) -> None:
    kind, flag = parameter.annotation, f"--{parameter.name.replace('_', '-')}"
    is_list = get_origin(kind) in (list, tuple)
    if get_args(kind):  # list[str], tuple[int, ...], int | None
        kind = get_args(kind)[0]
    if parameter.default is parameter.empty:
        rest = argparse.REMAINDER if parameter.kind is parameter.VAR_POSITIONAL else None
        count = rest or ("*" if is_list else None)
        parser.add_argument(parameter.name, type=kind, nargs=count, metavar=parameter.name.upper())
    elif kind is bool:
        parser.add_argument(flag, action="store_true")
    else:
        shown: dict[str, Any] = {"default": parameter.default, "help": "default: %(default)s"}
        parser.add_argument(flag, type=kind, nargs="+" if is_list else None, metavar=parameter.name.upper(), **shown)


def machine() -> str:
    """Returns the processor, its cores and the versions that decide about speed."""
    from importlib.metadata import version

    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor()
    return f"{name}, {os.cpu_count()} cores, torch {version('torch')}, timm {version('timm')}"


# --- commands of podium ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Project:
    """A competition in a folder of its own."""

    root: Path
    slug: str
    threads: int = 0  # of each command; 0: as many as it takes

    def words(self, command: str, *words: object) -> list[str]:
        return [*PODIUM, "--root", str(self.root), command, "-c", self.slug, *map(str, words)]

    def podium(self, command: str, *words: object) -> str:
        """Runs a command that must succeed; returns what it prints."""
        threads = {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
        done = subprocess.run(
            self.words(command, *words), env={**os.environ, **threads}, stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            sys.exit(f"status {done.returncode}: podium {command} {' '.join(map(str, words))}")
        return done.stdout.strip()

    def run(self, name: str) -> Run:
        return Run(self.root / "runs" / self.slug / name)

    def train(self, name: str, *words: object, folds: str = "0") -> Run:
        """Trains a run, unless its folds are there: so a measurement that was stopped goes on."""
        run = self.run(name)
        if len(run.finished()) < len(folds.split(",")):
            self.podium("train", "--name", name, "--folds", folds, *words)
        return run

    def submit(self, name: str, *words: object) -> Path:
        """Writes a submission, unless it is there."""
        csv = self.root / "submissions" / self.slug / f"{name}.csv"
        if not csv.exists():
            self.podium("submit", "--name", name, *words)
        return csv


def seconds_of(run: Run) -> float:
    """Returns how long a run trained, without validation."""
    return sum(record.seconds for fold in run.finished() for record in run.history(fold))


# --- times -------------------------------------------------------------------------------------------


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def in_turn(works: Sequence[Callable[[], object]], times: int = 9) -> list[list[float]]:
    """Returns the seconds of each work, measured in turn, so that a slow moment is slow for all; one warm-up each."""
    rounds = [[seconds(work) for work in works] for _ in range(times + 1)]
    return [list(column) for column in zip(*rounds[1:], strict=True)]


def with_range(values: Sequence[float], digits: int = 0) -> str:
    """Returns the median and the range."""
    middle, low, high = (f"{value:,.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({low} to {high})"


def gain(values: Sequence[float], without: Sequence[float], unit: float = 1.0, digits: int = 4) -> str:
    """Returns the mean of the paired differences, with its standard error."""
    differences = [unit * (own - other) for own, other in zip(values, without, strict=True)]
    around = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else None
    return f"{statistics.mean(differences):+.{digits}f}" + (f" ± {around:.{digits}f}" if around is not None else "")


# --- tables in Markdown ------------------------------------------------------------------------------


def head(*names: object) -> None:
    row(*names)
    row(*("---" for _ in names))


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
