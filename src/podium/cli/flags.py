"""The flags of every command, and a parser whose errors are one line with the most similar correct word."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from podium.blending.strategy_names import ALL_STRATEGIES, DECISIONS
from podium.errors import PodiumError
from podium.image_size import ImageSize, parse_size
from podium.known_words import explain_flag
from podium.machine import COMPILE, STORE, TRACKERS
from podium.project_root import DEFAULT_COMPETITION, DIGITS_SLUG
from podium.saved_runs.fold_names import WHOLE
from podium.terminal import did_you_mean, seconds_of

DEFAULT_MODELS = ["vit_small_patch32_224", "convnext_small"]
EIGHT = "(default: 8)"
WITHOUT_COMPETITION = ("sample", "demo", "score", "lineage")

# The function that runs a command, and the one that adds its flags.
Command = tuple[Callable[[argparse.Namespace], None], Callable[[argparse.ArgumentParser], None]]


def parser(commands: dict[str, Command], version: str) -> "Parser":
    main = Parser("podium", description="From a Kaggle image-classification competition's files to a submission.")
    main.add_argument("--version", action="version", version=f"podium {version}")
    root_help = "the folder that holds data/, runs/, submissions/ (default: PODIUM_ROOT, or the nearest from here up)"
    main.add_argument("--root", type=Path, metavar="DIR", help=root_help)
    subparsers = main.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name, (run, add_flags) in commands.items():
        command = subparsers.add_parser(name, help=run.__doc__, description=run.__doc__)
        command.add_argument("--root", type=Path, default=argparse.SUPPRESS, metavar="DIR", help=root_help)
        if name not in WITHOUT_COMPETITION:
            command.add_argument(
                "-c",
                "--competition",
                type=_slug,
                metavar="SLUG",
                help="name in the address of its Kaggle page (default: the only one in data/raw, not counting"
                f" '{DIGITS_SLUG}', or {DEFAULT_COMPETITION})",
            )
        command.add_flags, command.whole = add_flags, main
        command.set_defaults(run=run)
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


# --- flags of one command ----------------------------------------------------------------------------


def no_flags(command: argparse.ArgumentParser) -> None:
    pass


def data(command: argparse.ArgumentParser) -> None:
    text = "instead, print the complete card: every setting that is used, with the reason of each guess"
    command.add_argument("--card", action="store_true", help=text)


def audit(command: argparse.ArgumentParser) -> None:
    text = "size in pixels of the images in training; stored images are shrunk to fit it (default: %(default)s)"
    command.add_argument("--image-size", type=_count, default=224, metavar="N", help=text)
    text = "instead, list the images whose label is probably wrong, by the held-out predictions of these runs"
    text += " (default: of all that a submission would blend)"
    command.add_argument("--suspects", nargs="*", action=AnyNames, metavar="RUN", help=text)
    command.add_argument("--csv", action="store_true", help="with --suspects: print a file for --corrections")
    text = "leave out the training images that cannot be read, by lines in the competition's corrections"
    command.add_argument("--drop-bad", action="store_true", help=text)
    _store_flag(command)


def folds(command: argparse.ArgumentParser) -> None:
    command.add_argument("--k", type=int, default=5, help="number of folds (default: %(default)s)")
    command.add_argument("--seed", type=_count, default=0, help="seed of the shuffle (default: %(default)s)")
    text = "column of the training table, such as patient or scene: images with the same value share a fold"
    command.add_argument("--group", type=_column, metavar="COLUMN", help=text)
    text = "column of dates or numbers in the training table: each fold validates a block of time and trains on earlier"
    command.add_argument("--by-time", type=_column, metavar="COLUMN", help=f"{text} images only")
    text = "with --by-time: leave out the last N days before a block (of numbers: N of their unit)"
    command.add_argument("--gap", type=float, default=0.0, metavar="N", help=text)
    text = "split with a splitter of the project's own, see docs/extend.md"
    command.add_argument("--strategy", metavar="NAME", help=text)
    command.add_argument("--force", action="store_true", help="replace folds that runs were trained on")
    _corrections_flag(command)
    text = "make no folds; check what FILE guarantees (default: the competition's folds.csv)"
    command.add_argument("--verify", nargs="?", type=Path, const=False, metavar="FILE", help=text)


def models(command: argparse.ArgumentParser) -> None:
    text = "parts of a name, such as vit small, or a pattern such as '*convnext*tiny*'; a dot finds weights:"
    text += " convnext_small.in12k (default: a first choice)"
    command.add_argument("pattern", nargs="*", metavar="PATTERN", help=text)
    command.add_argument("--all", action="store_true", help="list all models, if there is no PATTERN")
    command.add_argument("--json", action="store_true", help="print a JSON object for each model, in a list")


def train(command: argparse.ArgumentParser) -> None:
    _run_flags(command)
    text = "a run for each of these seeds, such as 0-4, named RUN-seed0 and so on"
    command.add_argument("--seeds", nargs="+", action=Numbers, metavar="0-4", help=text)
    text = "with --pseudo: so many runs in turn, each labelled by the one before; the first is RUN-round1, the last RUN"
    command.add_argument("--rounds", type=_positive, default=1, metavar="N", help=text)
    text = "train all models with the options (learning rate, epochs, ...) that suit the first one, to compare them"
    command.add_argument("--one-recipe", action="store_true", help=text)
    text = "only show every option, where it comes from, and how long training would take"
    command.add_argument("--dry-run", action="store_true", help=text)
    _corrections_flag(command)
    text = "time between checkpoints; one is also saved after every epoch (default: 5m)"
    command.add_argument("--save-every", type=_seconds, default=300.0, metavar="TIME", help=text)
    _device_flags(command)
    text = (
        "on: keep the decoded pixels on disk; off: decode a file each time it is read; gpu: training also holds them in"
    )
    text += " the GPU's memory, and crops and colours them there, the same images up to rounding; auto: gpu where trial"
    text += " steps show that it is faster (default: on)"
    command.add_argument("--store", choices=STORE, default="on", help=text)
    text = "train with N processes, one per GPU, on this machine; torchrun starts them"
    command.add_argument("--processes", type=_count, metavar="N", help=text)
    text = "data: all processes share each fold; folds: each trains its own folds; auto: folds if they divide evenly"
    command.add_argument("--parallel", choices=("auto", "data", "folds"), default="auto", help=text)
    _deterministic_flag(command)
    text = "compute activations again in the backward pass, for large images: it keeps an eighth of them, and takes one"
    text += " more forward pass"
    command.add_argument("--checkpointing", action="store_true", help=text)
    text = "use torch.compile: a GPU trains 1.5 to 2 times as fast, but compiling takes up to a minute per fold; auto:"
    text += " where trial steps show that it saves more time than it takes (default: off)"
    command.add_argument("--compile", nargs="?", choices=COMPILE, const="on", default="off", help=text)
    text = f"show the epochs in other programs as well, some of {', '.join(TRACKERS)} joined by +; nothing leaves this"
    text += " machine unless their own settings say so"
    command.add_argument("--track", default="", metavar="TRACKERS", help=text)
    _on_flags(command, "Each fold of each run is a cell that one of them trains.", f"jobs that run at a time {EIGHT}")
    _recipe_flags(command, several_models=True)


def compete(command: argparse.ArgumentParser) -> None:
    text = "time for all that is done, such as 2h or 30m (default: 30m on a CPU, 2h with a GPU); more continues"
    command.add_argument("--budget", type=_seconds, metavar="TIME", help=text)
    text = "names of runs that are not blended"
    command.add_argument("--except", nargs="+", action=Names, dest="except_names", metavar="RUN", help=text)
    _machine_flags(command)
    text = "This command decides; each fold of a fine-tuned member, or of one from scratch, is a cell that one of them"
    text += " trains. With --on here, the same command on further machines helps the first one."
    _on_flags(command, text, f"jobs that run at a time {EIGHT}", has_cells=False)


def next_moves(command: argparse.ArgumentParser) -> None:
    _machine_flags(command)


def search(command: argparse.ArgumentParser) -> None:
    text = "folds of the search, such as 0-2; the last one is not searched on, and judges the winner (default: all)"
    command.add_argument("--folds", nargs="+", action=FoldNumbers, metavar="0-2", help=text)
    text = "name of the search; its trials are the runs NAME-t0, NAME-t1 and so on (default: %(default)s)"
    command.add_argument("--name", type=_name, default="search", metavar="NAME", help=text)
    text = "trials in all, also those of earlier calls and of other processes (default: %(default)s)"
    command.add_argument("--trials", type=_positive, default=40, metavar="N", help=text)
    text = "time for the search and its judgement, such as 4h; the same command goes on with as much again"
    command.add_argument("--budget", type=_seconds, metavar="TIME", help=text)
    text = "sizes of images to choose from; the first is that of the defaults (default: the model's own, not searched)"
    command.add_argument("--image-sizes", nargs="+", action=Sizes, metavar="SIZE", help=text)
    command.add_argument("--report", action="store_true", help="only show what the search has found")
    text = "write the winner's options into [recipe] of data/competitions/SLUG.toml"
    command.add_argument("--write-card", action="store_true", help=text)
    _machine_flags(command)
    text = "workers that search together (default: 8 jobs; with --on here: 1 process, each takes the next GPU)"
    _on_flags(command, "Each worker is a cell: it tries trials until they, or the time, are over.", text)
    _recipe_flags(command, several_models=True)


def pretrain(command: argparse.ArgumentParser) -> None:
    from podium.pretraining.pretraining_plan import DEFAULTS, LEARNING_RATE, METHODS, REFERENCE_BATCH, PretrainRequest
    from podium.recipe_options import OPTIMIZERS

    text = "dino: small crops of an image learn what a moving average of the model says of large ones"
    command.add_argument("--method", choices=METHODS, default=METHODS[0], help=f"{text} (default: %(default)s)")
    text = "a timm model that takes any size of image: a ConvNet, a ViT of timm, cpvt_nano"
    command.add_argument("--model", metavar="MODEL", help=text)
    text = "where it starts: none (random), pretrained (from the hub), or a file"
    command.add_argument("--weights", metavar="WEIGHTS", help=f"{text} (default: {DEFAULTS['weights']})")
    text = "passes over the images; features take longer to learn than labels"
    command.add_argument("--epochs", type=int, metavar="N", help=f"{text} (default: {DEFAULTS['epochs']})")
    text = f"images per step, each with all its crops (default: {DEFAULTS['batch_size']})"
    command.add_argument("--batch-size", type=int, metavar="N", help=text)
    text = f"peak learning rate (default: {LEARNING_RATE:g} for {REFERENCE_BATCH} images; grows with the square root)"
    command.add_argument("--lr", type=float, metavar="X", help=text)
    text = f"optimiser; muon learns more in few epochs (default: {DEFAULTS['optimizer']})"
    command.add_argument("--optimizer", choices=OPTIMIZERS, help=text)
    text = "pixels of a large crop; small ones have half (default: the card's, or the model's own)"
    command.add_argument("--image-size", type=int, metavar="N", help=text)
    command.add_argument("--seed", type=int, metavar="N", help="seed of everything random (default: 0)")
    text = "small crops of an image, beside two large ones (default: %(default)s)"
    command.add_argument("--local-crops", type=_count, default=PretrainRequest.small_crops, metavar="N", help=text)
    text = "outputs of the head that student and teacher compare (default: %(default)s)"
    command.add_argument("--outputs", type=_count, default=PretrainRequest.outputs, metavar="N", help=text)
    text = "name of the folder in runs/, for podium train --weights NAME (default: dino-MODEL)"
    command.add_argument("--name", type=_name, metavar="NAME", help=text)
    _machine_flags(command)


def kaggle_train(command: argparse.ArgumentParser) -> None:
    _run_flags(command, "; without a model, podium compete works there for that time")
    text = "Kaggle's name for the accelerator (default: %(default)s; Kaggle gives two of them)"
    command.add_argument("--accelerator", default="NvidiaTeslaT4", metavar="NAME", help=text)
    _recipe_flags(command)


def submit(command: argparse.ArgumentParser) -> None:
    _runs_flags(command)
    command.add_argument("--name", type=_name, help="name of the CSV (default: the runs' names)")
    _blend_flag(command)
    text = "what follows the blend, such as thresholds: auto takes what the metric rewards, if it gains (default: auto)"
    command.add_argument("--decision", choices=DECISIONS, default="auto", help=text)
    text = "a CSV of what each mistake costs, a row for each true class and a column for each answer: answers then cost"
    text += " least (default: [cost] of the card, if it has one)"
    command.add_argument("--cost", type=Path, metavar="FILE.csv", help=text)
    command.add_argument("--upload", action="store_true", help="upload to Kaggle and wait for the score")
    text = "description in Kaggle's list of submissions (default: the blend and its expected score)"
    command.add_argument("--message", metavar="TEXT", help=text)
    text = "rebuild the CSV of a submission from its lineage, byte for byte"
    command.add_argument("--from", dest="lineage", type=Path, metavar="FILE.json", help=text)
    command.add_argument("--anyway", action="store_true", help="write the CSV even if all images get the same class")
    _machine_flags(command)
    text = "Each fold model whose test predictions are missing is a cell that one of them predicts with."
    _on_flags(command, text, f"jobs that run at a time {EIGHT}")


def kaggle_bundle(command: argparse.ArgumentParser) -> None:
    _runs_flags(command)
    _blend_flag(command)
    text = "upload the bundle to Kaggle as a private data set and run its notebook there"
    command.add_argument("--upload", action="store_true", help=text)


def import_predictions(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", type=_name, metavar="NAME", help="name of the run that the predictions become")
    text = (
        "out-of-fold predictions: a CSV with `id`, a column of probabilities for each class (or of numbers), and `fold`"
    )
    command.add_argument("--oof", type=Path, required=True, metavar="FILE.csv", help=text)
    text = "predictions of the test images: a CSV with `id` and the same columns"
    command.add_argument("--test", type=Path, metavar="FILE.csv", help=text)
    text = "where they come from, kept in recipe.json and in the lineage of submissions"
    command.add_argument("--note", default="", metavar="TEXT", help=text)
    text = "the predictions were made on the folds of folds.csv, though no column says so"
    command.add_argument("--same-folds", action="store_true", help=text)


def predict(command: argparse.ArgumentParser) -> None:
    text = "name or folder of a run (the mean of its fold models), or the CSV of a submission (its blend)"
    command.add_argument("models", metavar="RUN-or-FILE.csv", help=text)
    command.add_argument("images", nargs="+", metavar="IMAGE", help="image files, or folders of images")
    text = "how many classes to show of each image, the most probable first (default: %(default)s)"
    command.add_argument("--top", type=_positive, default=3, metavar="N", help=text)
    command.add_argument("--csv", action="store_true", help="print a CSV with the probability of every class")
    text = "the images are cropped to their boxes already: a run with --region needs that"
    command.add_argument("--cropped", action="store_true", help=text)
    text = "a table of boxes of these images, as --region takes it: a run with --region sees them"
    command.add_argument("--boxes", type=Path, metavar="FILE.csv", help=text)
    _device_flag(command)


def verify(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_name", metavar="RUN", help="name of a run")
    text = "number of the fold (default: the first that is finished, else the first with two checkpoints)"
    command.add_argument("--fold", type=_count, metavar="K", help=text)
    _device_flags(command)
    _deterministic_flag(command)


def compare(command: argparse.ArgumentParser) -> None:
    _runs_flags(command)
    group = command.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="print a JSON object for each run, in a list")
    group.add_argument("--csv", action="store_true", help="print a CSV with a line for each run")
    text = "instead, write what the runs predict: id, fold, target and probabilities of training and test images"
    group.add_argument("--predictions", type=Path, metavar="FILE.csv|FILE.parquet", help=text)
    text = "also draw the scores against the costs, as an SVG"
    command.add_argument("--picture", type=Path, metavar="FILE.svg", help=text)


def report(command: argparse.ArgumentParser) -> None:
    _runs_flags(command)


def explain(command: argparse.ArgumentParser) -> None:
    from podium.explain.picture_names import PICTURES

    command.add_argument("runs", nargs="*", metavar="RUN", help="names or folders of finished runs")
    text = "what to draw, some of: %(choices)s (default: all that the model has)"
    command.add_argument("--what", nargs="+", choices=tuple(PICTURES), metavar="PICTURE", help=text)
    text = "ids of images, image files, or folders (default: six held-out images of the fold)"
    command.add_argument("--images", nargs="+", metavar="ID-or-FILE", help=text)
    command.add_argument("--fold", type=_count, metavar="K", help="the fold (default: the first finished one)")
    text = "find the box of every image that the runs' models look at, for podium train --region attention:RUN"
    command.add_argument("--regions", action="store_true", help=text)
    text = "explain models of timm or of the zoo instead of runs; needs --images"
    command.add_argument("--model", nargs="+", action=Names, metavar="NAME", help=text)
    text = "of these models: pretrained, none or a file (default: %(default)s)"
    command.add_argument("--weights", default="pretrained", metavar="WEIGHTS", help=text)
    text = "folder of the pictures (default: runs/SLUG/RUN/explain)"
    command.add_argument("--output", type=Path, metavar="FOLDER", help=text)


def export(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_name", metavar="RUN", help="name of a finished run")
    group = command.add_mutually_exclusive_group(required=True)
    group.add_argument("--onnx", action="store_const", const="onnx", dest="form", help="write an ONNX file")
    group.add_argument(
        "--torch", action="store_const", const="torch", dest="form", help="write what torch.export saves"
    )
    text = (
        "of ONNX: weights and products in int8, a quarter of the size; prints what that costs on held-out images. With"
        " 8, weights have all bits: more accurate, but far off where an x86 processor lacks VNNI (default: 7)"
    )
    command.add_argument("--int8", type=int, nargs="?", const=7, default=0, choices=(7, 8), metavar="BITS", help=text)
    text = "folds whose models are averaged, such as 0, 0,2-4 or all (default: all models that are finished)"
    command.add_argument("--folds", nargs="+", action=FoldNumbers, metavar="0-2", help=text)
    text = "views that are averaged: none, or mirror, flip, turn, joined by + (default: those of the run)"
    command.add_argument("--views", default="", metavar="VIEWS", help=text)
    text = "the file (default: runs/SLUG/RUN/RUN.onnx, RUN-int8.onnx or RUN.pt2); its card is written beside it"
    command.add_argument("--output", type=Path, metavar="FILE", help=text)


def soup(command: argparse.ArgumentParser) -> None:
    text = "finished runs of one architecture, such as several seeds, or a run and its frozen head (RUN-linear)"
    command.add_argument("run_names", nargs="+", metavar="RUN", help=text)
    text = "sizes in pixels to try in prediction, beside that of the runs; then one run is enough"
    command.add_argument("--test-sizes", nargs="+", type=_reader(parse_size), metavar="N", help=text)
    command.add_argument("--name", type=_name, metavar="RUN", help="name of the new run (default: soup and all names)")
    _device_flags(command)


def lineage(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE.csv", help="the submission")


def score(command: argparse.ArgumentParser) -> None:
    from podium.tasks.metrics import METRICS

    command.add_argument("file", type=Path, metavar="FILE.csv", help="the submission")
    text = "the competition that it is for (default: that of the lineage beside it; else the cells show what they hold)"
    command.add_argument("-c", "--competition", type=_slug, metavar="SLUG", help=text)
    text = "the truth: labels, a 0 or 1 for each class, or numbers; with a column Usage, both of its parts are scored"
    command.add_argument("--solution", type=Path, required=True, metavar="FILE.csv", help=text)
    default = "default: that of the lineage or the competition; else accuracy for labels, log_loss for probabilities"
    command.add_argument("--metric", metavar="NAME", help=f"{', '.join(METRICS)}, or your own ({default})")
    text = "the class (of two) whose probability the column holds (default: the one in its name, or the second)"
    command.add_argument("--positive", metavar="LABEL", help=text)


def bench(command: argparse.ArgumentParser) -> None:
    from podium.recipe_options import PRECISIONS

    text = "timm models, with random weights (default: the two default models)"
    command.add_argument("--model", nargs="+", action=Names, default=DEFAULT_MODELS, metavar="NAME", help=text)
    text = "pixels, or HEIGHTxWIDTH (default: the model's own)"
    command.add_argument("--image-size", type=_reader(parse_size), metavar="SIZE", help=text)
    command.add_argument("--batch-size", type=_count, metavar="N", help="images per step (default: the recipe's)")
    command.add_argument("--precision", choices=PRECISIONS, help="default: what is fast on this hardware")
    command.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    _device_flags(command)


def doctor(command: argparse.ArgumentParser) -> None:
    text = "models whose pretrained weights are needed (default: the two default models)"
    command.add_argument("--model", nargs="+", action=Names, default=DEFAULT_MODELS, metavar="NAME", help=text)
    _device_flag(command)


# --- flags of several commands -----------------------------------------------------------------------


def _run_flags(command: argparse.ArgumentParser, about_budget: str = "") -> None:
    text = "folds to train, such as 0 or 0,2-4 (default: each of them); all: a model that learns from all images, once"
    text += " folds have told how good the recipe is; all:3: three of them, with seeds of their own"
    command.add_argument("--folds", nargs="+", action=FoldNumbers, metavar="0-2", help=text)
    command.add_argument("--name", type=_name, metavar="RUN", help="name of the run (default: the model's name)")
    text = "time for training and submission, such as 8h or 90m: trains fewer epochs, or fewer folds, if needed"
    command.add_argument("--budget", type=_seconds, metavar="TIME", help=text + about_budget)


def _recipe_flags(command: argparse.ArgumentParser, several_models: bool = False) -> None:
    """Adds one flag per field of the recipe."""
    from podium.cli.brief_help import explain
    from podium.option_kinds import SWITCH
    from podium.recipe import flag_of, recipe_options
    from podium.recipe_defaults import describe_default

    if isinstance(command, Parser):
        command.explain = explain
        _load_own_moves(command.whole.words)
    group = command.add_argument_group(
        "recipe",
        "Defaults suit the model's family and its weights; the run's recipe.json records them."
        f" `{command.prog} --help smoothing` explains one option, and the reason of its default.",
    )
    for name, (kind, help_text) in recipe_options().items():
        text = (help_text + describe_default(name)).replace("%", "%%")
        flag = flag_of(name)
        if flag in command._option_string_actions:
            raise PodiumError(f"{flag} is a flag of {command.prog} already; give the option of your move another name")
        if name == "model" and several_models:
            group.add_argument(flag, nargs="+", action=Names, metavar="MODEL", help=f"{text}; several: each in turn")
        elif kind is SWITCH:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            group.add_argument(
                flag, dest=name, type=_reader(kind.read), metavar=kind.metavar or name.upper(), help=text
            )


def _load_own_moves(words: list[str]) -> None:
    """Loads the project's own parts, whose moves have flags. The words may name the project."""
    from podium.extensions.extension_files import load_extensions
    from podium.project_root import find_root

    named = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    named.add_argument("--root", type=Path)
    load_extensions(find_root(named.parse_known_args(words)[0].root))


def _on_flags(command: argparse.ArgumentParser, cells: str, at_once: str, has_cells: bool = True) -> None:
    group = command.add_argument_group("several machines", cells)
    text = "here: take free cells of this folder, which other machines share, until all are done; slurm:PARTITION: one"
    text += " array of jobs; local: the same jobs on this machine; sky: write sky.yaml for a cloud (see podium jobs)"
    group.add_argument("--on", type=_reader(_where), metavar="WHERE", help=text)
    group.add_argument("--at-once", type=_positive, metavar="N", help=at_once)
    text = "what a job gets, by submitit's names: timeout_min=480 gpus_per_node=1 mem_gb=32 slurm_account=NAME"
    group.add_argument("--job", nargs="+", metavar="NAME=VALUE", help=text)
    command.set_defaults(cell=None)  # the jobs of some commands are those of another one
    if has_cells:
        group.add_argument("--cell", metavar="NAME", help="with --on here: only this cell; jobs use it")


def _where(text: str) -> Any:
    from podium.fleet.where import parse_where

    return parse_where(text)


def _corrections_flag(command: argparse.ArgumentParser) -> None:
    text = "table of id, label (or drop) and why: corrects labels; every later command sees them"
    command.add_argument("--corrections", type=Path, metavar="FILE", help=text)


def _runs_flags(command: argparse.ArgumentParser) -> None:
    group = command.add_mutually_exclusive_group()
    text = "names of runs, separated by blanks or commas (default: all runs of the competition)"
    group.add_argument("--runs", nargs="+", action=Names, metavar="RUN", help=text)
    text = "names of runs to leave out"
    group.add_argument("--except", nargs="+", action=Names, dest="except_names", metavar="RUN", help=text)


def _blend_flag(command: argparse.ArgumentParser) -> None:
    text = "how runs are blended (default: shrunk, weights as far from equal ones as the held-out images show);"
    text += " stacked: by a model of their predictions and of the card's features, which is also tried by default"
    command.add_argument("--blend", choices=ALL_STRATEGIES, help=text)


def _device_flag(command: argparse.ArgumentParser) -> None:
    text = "auto, cpu, cuda, cuda:1, mps (default: %(default)s)"
    command.add_argument("--device", default="auto", help=text)


def _device_flags(command: argparse.ArgumentParser) -> None:
    _device_flag(command)
    text = "processes that load images; never changes the result"
    command.add_argument("--workers", type=_count, metavar="N", help=text)
    text = "threads that compute on a CPU (default: as many as cores are free when a run begins; it keeps their number)"
    command.add_argument("--threads", type=_positive, metavar="N", help=text)


def _deterministic_flag(command: argparse.ArgumentParser) -> None:
    text = "give identical results on a GPU when training is repeated; slower"
    command.add_argument("--deterministic", action="store_true", help=text)


def _machine_flags(command: argparse.ArgumentParser) -> None:
    _device_flags(command)
    _store_flag(command)


def _store_flag(command: argparse.ArgumentParser) -> None:
    text = "on: keep the decoded pixels on disk; off: decode a file each time it is read; never changes the result"
    command.add_argument("--store", choices=("on", "off"), default="on", help=f"{text} (default: %(default)s)")


# --- values of flags ---------------------------------------------------------------------------------


class Names(argparse.Action):
    """A list of names, separated by blanks, commas or both."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, words: Any, *_: object) -> None:
        names = re.findall(r"[^\s,]+", " ".join(words))
        if not names:
            raise argparse.ArgumentError(self, "give at least one name")
        setattr(namespace, self.dest, self.read(names))

    def read(self, names: list[str]) -> list[Any]:
        return names


class AnyNames(Names):
    """A list of names that may be empty."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, words: Any, *_: object) -> None:
        if words:
            super().__call__(parser, namespace, words)
        else:
            setattr(namespace, self.dest, [])


class Sizes(Names):
    """A list of sizes of images."""

    def read(self, names: list[str]) -> list[ImageSize]:
        try:
            return [_reader(parse_size)(name) for name in dict.fromkeys(names)]
        except argparse.ArgumentTypeError as problem:
            raise argparse.ArgumentError(self, str(problem)) from None


class Numbers(Names):
    """A list of numbers and ranges: 0,2-4 means 0, 2, 3 and 4."""

    def read(self, names: list[str]) -> list[int]:
        numbers: list[int] = []
        for name in names:
            bounds = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", name)
            if bounds and bounds[2] and int(bounds[2]) < int(bounds[1]):
                raise argparse.ArgumentError(self, f"'{name}' runs backwards; write {bounds[2]}-{bounds[1]}")
            folds = range(int(bounds[1]), int(bounds[2] or bounds[1]) + 1) if bounds else ()
            if not folds:
                raise argparse.ArgumentError(self, f"'{name}' is not a list of numbers such as 0,1 or 0-2")
            numbers += folds
        return numbers


class FoldNumbers(Numbers):
    """As numbers; `all` and `all:3` mean models that hold nothing out."""

    def read(self, names: list[str]) -> list[int]:
        numbers: list[int] = []
        for name in names:
            whole = re.fullmatch(r"all(?::([1-9]\d?))?", name)
            numbers += range(WHOLE, WHOLE + int(whole[1] or 1)) if whole else super().read([name])
        return numbers


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 0")
    return int(text)


def _reader(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Returns what argparse reads a value with: a type, or a function whose ValueError says what is not right."""
    if isinstance(kind, type):
        return kind

    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(f"'{text}' is not {str(problem).rpartition(', not')[0]}") from None

    return read


def _positive(text: str) -> int:
    if not _count(text):
        raise argparse.ArgumentTypeError("0 is too few; give at least 1")
    return _count(text)


def _seconds(text: str) -> float:
    seconds = seconds_of(text)
    if not seconds:
        raise argparse.ArgumentTypeError(f"'{text}' is not a time such as 8h, 90m or 1h30m")
    return seconds


def _name(text: str) -> str:
    from podium.disk import NAME_PATTERN

    if not re.fullmatch(NAME_PATTERN, text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a valid name; use letters, digits and . _ - + =")
    return text


def _column(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("give the name of a column")
    return text


def _slug(text: str) -> str:
    """Returns the competition's name, also from the address of its page."""
    return _name(re.sub(r"^https?://(www\.)?kaggle\.com/(competitions|c)/([^/]+).*$", r"\3", text))
