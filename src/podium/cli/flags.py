"""The flags of each command."""

import argparse
from pathlib import Path

from podium.basics.machine import COMPILE, STORE, TRACKERS
from podium.cli.flag_values import AnyNames, Names, Numbers, column, count, positive, run_name, seconds
from podium.cli.shared_flags import (
    blend_flag,
    corrections_flag,
    deterministic_flag,
    device_flag,
    device_flags,
    group_of,
    machine_flags,
    recipe_flags,
    run_flags,
    runs_flags,
    store_flag,
)


def data(command: argparse.ArgumentParser) -> None:
    text = "instead, print the complete card: every setting that is used, with the reason of each guess"
    command.add_argument("--card", action="store_true", help=text)


def audit(command: argparse.ArgumentParser) -> None:
    text = "size in pixels of the images in training; stored images are shrunk to fit it (default: %(default)s)"
    command.add_argument("--image-size", type=count, default=224, metavar="N", help=text)
    text = "instead, list the images whose label is probably wrong, by these runs (default: all that would be blended)"
    command.add_argument("--suspects", nargs="*", action=AnyNames, metavar="RUN", help=text)
    command.add_argument("--csv", action="store_true", help="with --suspects: print a file for --corrections")
    text = "leave out the training images that cannot be read, by lines in the competition's corrections"
    command.add_argument("--drop-bad", action="store_true", help=text)
    text = "instead, say whether the test images look like the training images, and which do not, by frozen features"
    command.add_argument("--shift", action="store_true", help=text)
    _features_flag(command, "--shift")
    store_flag(command)


def _features_flag(command: argparse.ArgumentParser, flag: str) -> None:
    text = f"with {flag}: the pretrained model whose features are taken (default: tf_efficientnet_lite0, at 160 px)"
    command.add_argument("--model", metavar="MODEL", help=text)


def folds(command: argparse.ArgumentParser) -> None:
    command.add_argument("--k", type=int, default=5, help="number of folds (default: %(default)s)")
    command.add_argument("--seed", type=count, default=0, help="seed of the shuffle (default: %(default)s)")
    text = "column of the training table, such as patient or scene: images with the same value share a fold"
    command.add_argument("--group", type=column, metavar="COLUMN", help=text)
    text = "column of dates or numbers: each fold validates a block of time and trains on earlier images only"
    command.add_argument("--by-time", type=column, metavar="COLUMN", help=text)
    text = "with --by-time: leave out the last N days before a block (of numbers: N of their unit)"
    command.add_argument("--gap", type=float, default=0.0, metavar="N", help=text)
    text = "leave out sites, each whole in one fold: those of COLUMN, or without it clusters of the images"
    command.add_argument("--by-site", nargs="?", type=column, const=False, metavar="COLUMN", help=text)
    _features_flag(command, "--by-site")
    text = "split with a splitter of the project's own, see docs/extend.md"
    command.add_argument("--strategy", metavar="NAME", help=text)
    command.add_argument("--force", action="store_true", help="replace folds that runs were trained on")
    corrections_flag(command)
    text = "also show what is as it should be: counts that are 0, and of which nothing is missing"
    command.add_argument("--verbose", action="store_true", help=text)
    text = "make no folds; check what FILE guarantees (default: the competition's folds.csv)"
    command.add_argument("--verify", nargs="?", type=Path, const=False, metavar="FILE", help=text)


def train(command: argparse.ArgumentParser) -> None:
    run, machine = group_of(command, "runs"), group_of(command, "this machine")
    run_flags(run)
    text = "a run for each of these seeds, such as 0-4, named RUN-seed0 and so on"
    run.add_argument("--seeds", nargs="+", action=Numbers, metavar="0-4", help=text)
    text = "with --pseudo: so many runs in turn, each labelled by the one before; the first is RUN-round1, the last RUN"
    run.add_argument("--rounds", type=positive, default=1, metavar="N", help=text)
    text = "train all models with the options (learning rate, epochs, ...) that suit the first one, to compare them"
    run.add_argument("--one-recipe", action="store_true", help=text)
    text = "only show every option, where it comes from, and how long training would take"
    run.add_argument("--dry-run", action="store_true", help=text)
    corrections_flag(run)
    text = "time between checkpoints; one is also saved after every epoch (default: 5m)"
    run.add_argument("--save-every", type=seconds, default=300.0, metavar="TIME", help=text)
    device_flags(machine)
    text = (
        "on: keep the decoded pixels on disk; off: decode a file each time it is read; gpu: training also holds them in"
    )
    text += " the GPU's memory, and crops and colours them there, the same images up to rounding; auto: gpu where trial"
    text += " steps show that it is faster (default: on)"
    machine.add_argument("--store", choices=STORE, default="on", help=text)
    text = "train with N processes, one per GPU, on this machine; torchrun starts them"
    machine.add_argument("--processes", type=count, metavar="N", help=text)
    text = "data: all processes share each fold; folds: each trains its own folds; auto: folds if they divide evenly"
    machine.add_argument("--parallel", choices=("auto", "data", "folds"), default="auto", help=text)
    deterministic_flag(machine)
    text = "compute activations again in the backward pass, for large images: it keeps an eighth of them, and takes one"
    text += " more forward pass"
    machine.add_argument("--checkpointing", action="store_true", help=text)
    text = "use torch.compile: a GPU trains 1.5 to 2 times as fast, but compiling takes up to a minute per fold; auto:"
    text += " where trial steps show that it saves more time than it takes (default: off)"
    machine.add_argument("--compile", nargs="?", choices=COMPILE, const="on", default="off", help=text)
    text = f"show the epochs in other programs as well, some of {', '.join(TRACKERS)} joined by +; nothing leaves this"
    text += " machine unless their own settings say so"
    run.add_argument("--track", default="", metavar="TRACKERS", help=text)
    recipe_flags(command, several_models=True)


def compete(command: argparse.ArgumentParser) -> None:
    text = "time for all that is done, such as 2h or 30m (default: 30m on a CPU, 2h with a GPU); more continues"
    command.add_argument("--budget", type=seconds, metavar="TIME", help=text)
    text = "names of runs that are not blended"
    command.add_argument("--except", nargs="+", action=Names, dest="except_names", metavar="RUN", help=text)
    machine_flags(command)


def next_steps(command: argparse.ArgumentParser) -> None:
    machine_flags(command)


def submit(command: argparse.ArgumentParser) -> None:
    runs_flags(command)
    command.add_argument("--name", type=run_name, help="name of the CSV (default: the runs' names)")
    blend_flag(command)
    text = "after the blend: auto, none, test-shares (estimated), or your own (default: the card's, else auto)"
    command.add_argument("--decision", metavar="auto|none|test-shares|NAME", help=text)
    text = "CSV of what mistakes cost: a row for each true class, a column for each answer (default: the card's)"
    command.add_argument("--cost", type=Path, metavar="FILE.csv", help=text)
    command.add_argument("--upload", action="store_true", help="upload to Kaggle and wait for the score")
    text = "description in Kaggle's list of submissions (default: the blend and its expected score)"
    command.add_argument("--message", metavar="TEXT", help=text)
    text = "rebuild the CSV of a submission from its lineage, byte for byte"
    command.add_argument("--from", dest="lineage", type=Path, metavar="FILE.json", help=text)
    command.add_argument("--anyway", action="store_true", help="write the CSV even if all images get the same class")
    machine_flags(command)


def import_predictions(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", type=run_name, metavar="NAME", help="name of the run that the predictions become")
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
    command.add_argument("--top", type=positive, default=3, metavar="N", help=text)
    command.add_argument("--csv", action="store_true", help="print a CSV with the probability of every class")
    text = "the images are cropped to their boxes already: a run with --region needs that"
    command.add_argument("--cropped", action="store_true", help=text)
    text = "a table of boxes of these images, as --region takes it: a run with --region sees them"
    command.add_argument("--boxes", type=Path, metavar="FILE.csv", help=text)
    device_flag(command)


def compare(command: argparse.ArgumentParser) -> None:
    runs_flags(command)
    group = command.add_mutually_exclusive_group()
    group.add_argument("--json", action="store_true", help="print a JSON object for each run, in a list")
    group.add_argument("--csv", action="store_true", help="print a CSV with a line for each run")
    text = "instead, write what the runs predict: id, fold, target and probabilities of training and test images"
    group.add_argument("--predictions", type=Path, metavar="FILE.csv|FILE.parquet", help=text)


def lineage(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE.csv", help="the submission")
