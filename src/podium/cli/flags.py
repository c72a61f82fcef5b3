"""What each command can be given, and a parser whose errors are one line that names the nearest right word."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from podium import DEFAULT_COMPETITION, PodiumError, __version__
from podium.terminal import did_you_mean

HOUSE = ["vit_small_patch32_224", "convnext_small"]

Command = tuple[Callable[[argparse.Namespace], None], Callable[[argparse.ArgumentParser], None]]


def parser(known: dict[str, Command]) -> "Parser":
    """Of the commands, each a function and what adds its flags."""
    top = Parser("podium", description="From a Kaggle image-classification competition's files to a submission.")
    top.add_argument("--version", action="version", version=f"podium {__version__}")
    root = "the folder that holds data/, runs/ and submissions/ (default: here)"
    top.add_argument("--root", type=Path, default=Path(), metavar="DIR", help=root)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, (run, add_flags) in known.items():
        command = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
        command.add_argument("--root", type=Path, default=argparse.SUPPRESS, metavar="DIR", help=root)
        if name not in WITHOUT_A_COMPETITION:
            text = "as in the address of its page on Kaggle (default: %(default)s)"
            command.add_argument(
                "-c", "--competition", type=_slug, default=DEFAULT_COMPETITION, metavar="SLUG", help=text
            )
        add_flags(command)
        command.set_defaults(run=run)
    return top


WITHOUT_A_COMPETITION = ("sample", "score", "lineage")


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line that name the nearest right word, and no abbreviations."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "allow_abbrev": False})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        for word in words:
            if not word.startswith("-"):
                if self.prog == "podium" and word in self.commands():
                    break  # what follows is that command's own
                continue
            flag = word.partition("=")[0]
            if flag not in self._option_string_actions and not re.match(r"-\.?\d|-$|--$", word):
                self.error(f"no flag {flag}{_hint(flag, self._option_string_actions)}")
        return super().parse_known_args(words, namespace)

    def commands(self) -> list[str]:
        groups = (each for each in self._actions if isinstance(each, argparse._SubParsersAction))
        return [name for group in groups for name in group.choices]

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '?([^' ]*)", message)
        if wrong and message.startswith("argument COMMAND"):
            message = f"no command {wrong[1]}{_hint(wrong[1], self.commands())}"
        raise PodiumError(f"{message} (see {self.prog} --help)")


def _hint(word: str, known: Iterable[str]) -> str:
    hint = did_you_mean(word, known)
    return f"; {hint}" if hint else ""


# --- of each command ---


def audit(command: argparse.ArgumentParser) -> None:
    text = "pixels that models will be trained at; decides how far images are shrunk (default: %(default)s)"
    command.add_argument("--image-size", type=_count, default=224, metavar="N", help=text)
    _store_flag(command)


def folds(command: argparse.ArgumentParser) -> None:
    command.add_argument("--k", type=int, default=5, help="how many folds (default: %(default)s)")
    command.add_argument("--seed", type=_count, default=0, help="of the shuffle (default: %(default)s)")
    text = "a column of the training table whose equal values must share a fold, such as a patient or a scene"
    command.add_argument("--group", type=_column, metavar="COLUMN", help=text)
    text = "make no folds: say what FILE (default: the competition's folds.csv) guarantees and what it does not"
    command.add_argument("--verify", nargs="?", type=Path, const=False, metavar="FILE", help=text)


def _run_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--folds", type=_numbers, metavar="0,1", help="which folds (default: all)")
    command.add_argument("--name", type=_name, metavar="RUN", help="of the run's folder (default: the model)")
    text = "the time it may take, such as 8h or 90m, a submission included: fewer epochs, or fewer folds"
    command.add_argument("--budget", type=_seconds, metavar="TIME", help=text)


def kaggle_train(command: argparse.ArgumentParser) -> None:
    _run_flags(command)
    text = "as Kaggle calls it (default: %(default)s, of which it gives two)"
    command.add_argument("--accelerator", default="NvidiaTeslaT4", metavar="NAME", help=text)
    _recipe_flags(command)


def kaggle_bundle(command: argparse.ArgumentParser) -> None:
    command.add_argument("--runs", nargs="+", metavar="RUN", help="which runs (default: all of the competition)")
    _blend_flag(command)
    text = "make a private data set of it at Kaggle and let its notebook run there"
    command.add_argument("--upload", action="store_true", help=text)


def train(command: argparse.ArgumentParser) -> None:
    _run_flags(command)
    text = "save when so much time has passed, besides at every epoch (default: 5m)"
    command.add_argument("--save-every", type=_seconds, default=300.0, metavar="TIME", help=text)
    _machine_flags(command)
    text = "train with N processes, one on each GPU; started by torchrun, which also serves several machines"
    command.add_argument("--processes", type=_count, metavar="N", help=text)
    text = "what processes share: each fold (data), or the folds (default: folds where they come out even)"
    command.add_argument("--parallel", choices=("auto", "data", "folds"), default="auto", help=text)
    text = "the same bits again on a GPU too, more slowly"
    command.add_argument("--deterministic", action="store_true", help=text)
    text = "let torch.compile write the model's kernels: a minute a fold, for long runs on a GPU"
    command.add_argument("--compile", action="store_true", help=text)
    _recipe_flags(command)


def _recipe_flags(command: argparse.ArgumentParser) -> None:
    from podium.recipe import knobs

    recipe = command.add_argument_group(
        "recipe", "Defaults suit the model's family and its weights; the run's recipe.json holds what was chosen."
    )
    for name, (kind, text) in knobs().items():
        flag, metavar = f"--{name.replace('_', '-')}", {int: "N", float: "X"}.get(kind, name.upper())
        if kind is bool:
            recipe.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            recipe.add_argument(flag, type=kind, metavar=metavar, help=text)


def submit(command: argparse.ArgumentParser) -> None:
    command.add_argument("--runs", nargs="+", metavar="RUN", help="which runs (default: all of the competition)")
    command.add_argument("--name", type=_name, help="of the CSV (default: the runs' names)")
    _blend_flag(command)
    command.add_argument("--upload", action="store_true", help="to Kaggle, and wait for its verdict")
    text = "what Kaggle's list of submissions says of it (default: the blend and what it is expected to score)"
    command.add_argument("--message", metavar="TEXT", help=text)
    text = "rebuild the CSV that a submission's lineage tells of, byte for byte"
    command.add_argument("--from", dest="lineage", type=Path, metavar="FILE.json", help=text)
    command.add_argument("--anyway", action="store_true", help="also when one class swallows everything")
    _machine_flags(command)


def _blend_flag(command: argparse.ArgumentParser) -> None:
    ways = [f"{name}{kind}" for name in ("equal", "convex", "greedy") for kind in ("", "-calibrated")]
    text = "how runs are weighed (default: the simplest way that is not worse than the best by more than chance)"
    command.add_argument("--blend", choices=ways, help=text)


def compare(command: argparse.ArgumentParser) -> None:
    command.add_argument("--runs", nargs="+", metavar="RUN", help="which runs (default: all of the competition)")


def lineage(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE.csv", help="the submission")


def bench(command: argparse.ArgumentParser) -> None:
    from podium.recipe import PRECISIONS

    text = "timm models, with random weights (default: both house models)"
    command.add_argument("--model", nargs="+", default=HOUSE, metavar="NAME", help=text)
    command.add_argument("--image-size", type=_count, metavar="N", help="pixels (default: the model's own)")
    command.add_argument("--batch-size", type=_count, metavar="N", help="images a step (default: the recipe's)")
    command.add_argument("--precision", choices=PRECISIONS, help="default: what the hardware gains by")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    _device_flags(command)


def doctor(command: argparse.ArgumentParser) -> None:
    text = "whose pretrained weights are wanted (default: both house models)"
    command.add_argument("--model", nargs="+", default=HOUSE, metavar="NAME", help=text)
    _device_flag(command)


def score(command: argparse.ArgumentParser) -> None:
    from podium.metrics import METRICS

    command.add_argument("file", type=Path, metavar="FILE.csv", help="the submission")
    command.add_argument("--solution", type=Path, required=True, metavar="FILE.csv", help="the true labels")
    command.add_argument("--metric", choices=METRICS, help="default: accuracy for labels, log_loss for probabilities")
    text = "of two classes the one whose probability a column holds (default: the one it is called by, or the second)"
    command.add_argument("--positive", metavar="LABEL", help=text)


def _device_flag(command: argparse.ArgumentParser) -> None:
    command.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps (default: %(default)s)")


def _device_flags(command: argparse.ArgumentParser) -> None:
    _device_flag(command)
    command.add_argument("--workers", type=_count, metavar="N", help="processes that augment; never changes the result")


def _machine_flags(command: argparse.ArgumentParser) -> None:
    _device_flags(command)
    _store_flag(command)


def _store_flag(command: argparse.ArgumentParser) -> None:
    text = "keep the decoded pixels on disk, or decode each file whenever it is read; never changes the result"
    command.add_argument("--store", choices=("on", "off"), default="on", help=f"{text} (default: %(default)s)")


def nothing(command: argparse.ArgumentParser) -> None:
    pass


# --- what a flag takes ---


def _numbers(text: str) -> list[int]:
    if not re.fullmatch(r"\d+([, ]+\d+)*", text.strip()):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of folds such as 0,1")
    return [int(number) for number in re.findall(r"\d+", text)]


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 0 up")
    return int(text)


def _seconds(text: str) -> float:
    unit = {"s": 1, "m": 60, "min": 60, "h": 3600}
    parts = re.findall(r"(\d+(?:\.\d+)?) *(s|min|m|h)", text)
    if not parts or not re.fullmatch(r"( *\d+(\.\d+)? *(s|min|m|h))+ *", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no time such as 8h, 90m or 1h30m")
    seconds = sum(float(number) * unit[letter] for number, letter in parts)
    if not seconds:
        raise argparse.ArgumentTypeError(f"'{text}' is no time")
    return seconds


def _name(text: str) -> str:
    from podium.disk import NAME_PATTERN

    if not re.fullmatch(NAME_PATTERN, text):
        raise argparse.ArgumentTypeError(f"'{text}' is no name for a file: use letters, digits and . _ - + =")
    return text


def _column(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it needs the name of a column")
    return text


def _slug(text: str) -> str:
    """The competition's name, also from the address of its page."""
    return _name(re.sub(r"^https?://(www\.)?kaggle\.com/(competitions|c)/([^/]+).*$", r"\3", text))
