"""The command line: `podium COMMAND --help`, or `python -m podium`.

Results go to standard output, progress and advice to standard error. Exit status: 0 done; 1 a mistake of
the user's or of the data, said in one line; 75 stopped by a signal, the same command goes on.
"""

import argparse
import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from podium import DEFAULT_COMPETITION, STOPPED, PodiumError, __version__, console

HOUSE = ["vit_small_patch32_224", "convnext_small"]


def main(argv: Sequence[str] | None = None) -> int:
    console.quiet = os.environ.get("RANK", "0") != "0"  # of torchrun's processes the first speaks
    try:
        _streams()
        flags = _parser().parse_args(argv)
        flags.words = list(sys.argv[1:] if argv is None else argv)
        if not flags.root.is_dir():
            raise PodiumError(f"--root {flags.root}: no such folder")
        console.root = flags.root
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: nothing is left half written
        flags.run(flags)
        sys.stdout.flush()
    except PodiumError as error:
        if console.quiet and os.environ.get("LOCAL_RANK") != "0":
            _wait_for_the_first()
            return 1
        line = console.printable(str(error).replace("\n", " "))
        if console.types_make() and re.search(r" --[a-z]", line) and "make" not in line:
            line += ' (flags go to make as ARGS="--flag ...")'
        print(f"podium: error: {line}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        what = f"{error.filename or 'the system'}: {error.strerror or error}"
        print(f"podium: error: {what}; mend that and run the same command again", file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        if not console.quiet:
            print(f"podium: {str(stop) or 'stopped'}; run the same command again to go on", file=sys.stderr)
        return STOPPED
    return 0


def _wait_for_the_first() -> None:
    """It says what all have met, and torchrun would end it before it has, as soon as another process ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    time.sleep(60)


def _streams() -> None:
    """What is printed may not fit the terminal's encoding, and a stream may have been closed by whoever started us."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


# --- one function a command; its module is imported only when it runs ------------------------------------


def data(flags: argparse.Namespace) -> None:
    """Download and unpack a competition's files, and say what they are."""
    from podium.kaggle import get

    get(flags.competition, flags.root)


def sample(flags: argparse.Namespace) -> None:
    """Write the embedded competition (handwritten digits), which needs no network."""
    from podium.sample import write

    write(flags.root)


def audit(flags: argparse.Namespace) -> None:
    """Look at every image: bad files, duplicates, leaks into the test set, labels that disagree."""
    from podium.recipe import check

    check({"image_size": flags.image_size})
    from podium.audit import audit

    audit(_competition(flags), flags.root, flags.image_size, flags.store == "on")


def folds(flags: argparse.Namespace) -> None:
    """Split the training images into folds, or verify a split."""
    from podium.folds import certified_group, verify, write_folds

    group = flags.group
    if flags.verify is not None and group is None:
        group = certified_group(flags.competition, flags.root)
    competition = _competition(flags, **({} if group is None else {"group_column": group}))
    if flags.verify is None:
        write_folds(competition, flags.root, flags.k, flags.seed)
    else:
        verify(competition, flags.root, flags.verify or None)


def train(flags: argparse.Namespace) -> None:
    """Train a model on every fold, or go on with it."""
    given = _recipe_given(flags)
    if flags.processes and "WORLD_SIZE" not in os.environ:
        from podium.launch import launch

        launch(flags.processes, flags.device, flags.words)
        return
    from podium.device import Machine
    from podium.schedule import process_start
    from podium.train import train

    machine = Machine(
        device=flags.device,
        workers=flags.workers,
        keep=flags.store == "on",
        save_every=flags.save_every,
        parallel=flags.parallel,
        deterministic=flags.deterministic,
        compiled=flags.compile,
    )
    competition = _competition(flags)
    budget = flags.budget and max(1.0, flags.budget - (time.monotonic() - process_start()))
    train(competition, flags.root, given, flags.folds, flags.name, machine, budget)


def _recipe_given(flags: argparse.Namespace) -> dict[str, Any]:
    """The knobs on the command line. What follows takes seconds to import and minutes to run; what can be told now is
    told now."""
    from podium.card import read_card
    from podium.models import check_name, check_weights
    from podium.recipe import check, expand, knobs

    given = {name: getattr(flags, name) for name in knobs() if getattr(flags, name) is not None}
    check(given)
    if given.get("model") == "auto":
        from podium.device import kind_of, pick_device

        given = expand(given, kind_of(pick_device(flags.device)))
    check_name(given.get("model"))
    of_card = read_card(flags.competition, flags.root).get("recipe", {})
    check_weights(given["model"], {**of_card, **given}.get("weights", "pretrained"))
    return given


def kaggle_train(flags: argparse.Namespace) -> None:
    """Train on Kaggle's own GPUs: pack a kernel, follow it, bring the run back."""
    from podium.kernels import kaggle_train
    from podium.models import check_name
    from podium.recipe import check, knobs

    given = {name: getattr(flags, name) for name in knobs() if getattr(flags, name) is not None}
    check(given)
    if given.get("model") == "auto":
        given["model"] = "convnext_small"
    check_name(given.get("model"))
    for flag, there in (
        ("--weights", given.get("weights", "none") in ("none", "pretrained")),
        ("--teacher", "teacher" not in given),
    ):
        if not there:
            raise PodiumError(f"{flag}: what it names is not on Kaggle's machines; leave it out, or train here")
    words = []
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag if value else f"--no-{flag[2:]}"] if isinstance(value, bool) else [flag, str(value)]
    if flags.folds:
        words += ["--folds", ",".join(map(str, flags.folds))]
    if flags.budget:
        words += ["--budget", f"{flags.budget}s"]
    kaggle_train(flags.competition, flags.root, flags.name or given["model"], words, flags.accelerator)


def kaggle_bundle(flags: argparse.Namespace) -> None:
    """Pack models, code and a notebook for a competition that takes notebooks only; try them without a network."""
    from podium.bundle import bundle

    print(bundle(_competition(flags), flags.root, flags.runs, flags.blend))


def submit(flags: argparse.Namespace) -> None:
    """Predict the test images with every finished fold and write the submission."""
    from podium.submission import rebuild, submit, what_next

    where = flags.device, flags.workers, flags.store == "on"
    if flags.lineage:
        from podium.lineage import read

        lineage = read(flags.lineage)
        flags.competition = lineage.competition
        competition = _competition(flags)
        path = rebuild(competition, flags.root, lineage, *where)
    else:
        competition = _competition(flags)
        path = submit(competition, flags.root, flags.runs, flags.name, *where, flags.blend, flags.anyway)
    if flags.upload:
        from podium.lineage import message
        from podium.upload import upload

        upload(flags.competition, path, competition.metric, flags.message or message(path))
    else:
        console.say(f"next: {what_next(competition, path)}")
    print(path)


def compare(flags: argparse.Namespace) -> None:
    """List the runs: their scores, what they cost, and how far they disagree."""
    from podium.compare import compare

    print(compare(_competition(flags), flags.root, flags.runs))


def lineage(flags: argparse.Namespace) -> None:
    """Say where every number of a submission came from."""
    from podium.lineage import tell

    print(console.printable(tell(flags.file)))


def bench(flags: argparse.Namespace) -> None:
    """Measure training beside the bare step, on this machine."""
    from podium.models import check_name
    from podium.recipe import check

    names = ("image_size", "batch_size", "precision")
    given = {name: getattr(flags, name) for name in names if getattr(flags, name) is not None}
    check(given)
    for model in flags.model:
        check_name(model)
    from podium.bench import bench

    given["weights"] = "none"
    bench(_competition(flags), flags.root, flags.model, given, flags.device, flags.workers, flags.json)


def doctor(flags: argparse.Namespace) -> None:
    """Look for what would cost a day later: packages, disk, GPU, weights, Kaggle's terms, the data."""
    from podium.doctor import doctor

    doctor(flags.competition, flags.root, flags.model, flags.device)


def score(flags: argparse.Namespace) -> None:
    """Score a submission against a solution."""
    from podium.score import score

    print(score(flags.file, flags.solution, flags.metric))


def _competition(flags: argparse.Namespace, **settings: str) -> Any:
    from podium.competition import load

    competition = load(flags.competition, flags.root, **settings)
    for note in competition.notes:
        console.say(f"podium: note: {note}")
    return competition


# --- their flags -----------------------------------------------------------------------------------------


def _audit_flags(command: argparse.ArgumentParser) -> None:
    text = "pixels that models will be trained at; decides how far images are shrunk (default: %(default)s)"
    command.add_argument("--image-size", type=_count, default=224, metavar="N", help=text)
    _store_flag(command)


def _folds_flags(command: argparse.ArgumentParser) -> None:
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


def _kaggle_train_flags(command: argparse.ArgumentParser) -> None:
    _run_flags(command)
    text = "as Kaggle calls it (default: %(default)s, of which it gives two)"
    command.add_argument("--accelerator", default="NvidiaTeslaT4", metavar="NAME", help=text)
    _recipe_flags(command)


def _kaggle_bundle_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--runs", nargs="+", metavar="RUN", help="which runs (default: all of the competition)")
    _blend_flag(command)


def _train_flags(command: argparse.ArgumentParser) -> None:
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


def _submit_flags(command: argparse.ArgumentParser) -> None:
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


def _compare_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("--runs", nargs="+", metavar="RUN", help="which runs (default: all of the competition)")


def _lineage_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE.csv", help="the submission")


def _bench_flags(command: argparse.ArgumentParser) -> None:
    from podium.recipe import PRECISIONS

    text = "timm models, with random weights (default: both house models)"
    command.add_argument("--model", nargs="+", default=HOUSE, metavar="NAME", help=text)
    command.add_argument("--image-size", type=_count, metavar="N", help="pixels (default: the model's own)")
    command.add_argument("--batch-size", type=_count, metavar="N", help="images a step (default: the recipe's)")
    command.add_argument("--precision", choices=PRECISIONS, help="default: what the hardware gains by")
    command.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    _device_flags(command)


def _doctor_flags(command: argparse.ArgumentParser) -> None:
    text = "whose pretrained weights are wanted (default: both house models)"
    command.add_argument("--model", nargs="+", default=HOUSE, metavar="NAME", help=text)
    _device_flag(command)


def _score_flags(command: argparse.ArgumentParser) -> None:
    from podium.metrics import METRICS

    command.add_argument("file", type=Path, metavar="FILE.csv", help="the submission")
    command.add_argument("--solution", type=Path, required=True, metavar="FILE.csv", help="the true labels")
    command.add_argument("--metric", choices=METRICS, help="default: accuracy for labels, log_loss for probabilities")


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


def _no_flags(command: argparse.ArgumentParser) -> None:
    pass


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], None], Callable[[argparse.ArgumentParser], None]]] = {
    "data": (data, _no_flags),
    "audit": (audit, _audit_flags),
    "folds": (folds, _folds_flags),
    "train": (train, _train_flags),
    "submit": (submit, _submit_flags),
    "lineage": (lineage, _lineage_flags),
    "score": (score, _score_flags),
    "compare": (compare, _compare_flags),
    "bench": (bench, _bench_flags),
    "kaggle-train": (kaggle_train, _kaggle_train_flags),
    "kaggle-bundle": (kaggle_bundle, _kaggle_bundle_flags),
    "doctor": (doctor, _doctor_flags),
    "sample": (sample, _no_flags),
}


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
    if not re.fullmatch(r"[A-Za-z0-9][\w.+=-]*", text):
        raise argparse.ArgumentTypeError(f"'{text}' is no name for a file: use letters, digits and . _ - + =")
    return text


def _column(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("it needs the name of a column")
    return text


def _slug(text: str) -> str:
    """The competition's name, also from the address of its page."""
    return _name(re.sub(r"^https?://(www\.)?kaggle\.com/(competitions|c)/([^/]+).*$", r"\3", text))


# --- the parser ------------------------------------------------------------------------------------------


def _parser() -> "Parser":
    top = Parser("podium", description="From a Kaggle image-classification competition's files to a submission.")
    top.add_argument("--version", action="version", version=f"podium {__version__}")
    root = "the folder that holds data/, runs/ and submissions/ (default: here)"
    top.add_argument("--root", type=Path, default=Path(), metavar="DIR", help=root)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, (run, add_flags) in COMMANDS.items():
        command = commands.add_parser(name, help=run.__doc__, description=run.__doc__)
        command.add_argument("--root", type=Path, default=argparse.SUPPRESS, metavar="DIR", help=root)
        if run not in (sample, score, lineage):
            text = "as in the address of its page on Kaggle (default: %(default)s)"
            command.add_argument(
                "-c", "--competition", type=_slug, default=DEFAULT_COMPETITION, metavar="SLUG", help=text
            )
        add_flags(command)
        command.set_defaults(run=run)
    return top


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line that name the nearest right word, and no abbreviations."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "allow_abbrev": False})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        for word in words:
            if not word.startswith("-"):
                if self.prog == "podium" and word in COMMANDS:
                    break  # what follows is that command's own
                continue
            flag = word.partition("=")[0]
            if flag not in self._option_string_actions and not re.match(r"-\.?\d|-$|--$", word):
                self.error(f"no flag {flag}{_near(flag, self._option_string_actions)}")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '?([^' ]*)", message)
        if wrong and message.startswith("argument COMMAND"):
            message = f"no command {wrong[1]}{_near(wrong[1], COMMANDS)}"
        raise PodiumError(f"{message} (see {self.prog} --help)")


def _near(word: str, known: Any) -> str:
    near = get_close_matches(word, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


if __name__ == "__main__":
    sys.exit(main())
