"""The flags of the annex's commands."""

import argparse
import re
from pathlib import Path
from typing import Any

from podium.basics.image_size import parse_size
from podium.cli import flags as core_flags
from podium.cli.flag_values import FoldNumbers, Names, Sizes, count, positive, reader, run_name, seconds, slug
from podium.cli.shared_flags import (
    blend_flag,
    deterministic_flag,
    device_flag,
    device_flags,
    machine_flags,
    recipe_flags,
    run_flags,
    runs_flags,
)

DEFAULT_MODELS = ["vit_small_patch32_224", "convnext_small"]


def search(command: argparse.ArgumentParser) -> None:
    text = "folds of the search, such as 0-2; the last one is not searched on, and judges the winner (default: all)"
    command.add_argument("--folds", nargs="+", action=FoldNumbers, metavar="0-2", help=text)
    text = "name of the search; its trials are the runs NAME-t0, NAME-t1 and so on (default: %(default)s)"
    command.add_argument("--name", type=run_name, default="search", metavar="NAME", help=text)
    text = "trials in all, also those of earlier calls and of other processes (default: %(default)s)"
    command.add_argument("--trials", type=positive, default=40, metavar="N", help=text)
    text = "time for the search and its judgement, such as 4h; the same command goes on with as much again"
    command.add_argument("--budget", type=seconds, metavar="TIME", help=text)
    text = "sizes of images to choose from; the first is that of the defaults (default: the model's own, not searched)"
    command.add_argument("--image-sizes", nargs="+", action=Sizes, metavar="SIZE", help=text)
    command.add_argument("--report", action="store_true", help="only show what the search has found")
    text = "write the winner's options into [recipe] of data/competitions/SLUG.toml"
    command.add_argument("--write-card", action="store_true", help=text)
    machine_flags(command)
    on_flags(command, "Each worker is a cell: it tries trials until they, or the time, are over.")
    recipe_flags(command, several_models=True)


def pretrain(command: argparse.ArgumentParser) -> None:
    from podium.options.recipe_options import OPTIMIZERS
    from podium_annex.pretraining.pretraining_plan import (
        DEFAULTS,
        LEARNING_RATE,
        METHODS,
        REFERENCE_BATCH,
        PretrainRequest,
    )

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
    command.add_argument("--optimizer", choices=[name for name, own in OPTIMIZERS.items() if own is None], help=text)
    text = "pixels of a large crop; small ones have half (default: the card's, or the model's own)"
    command.add_argument("--image-size", type=int, metavar="N", help=text)
    command.add_argument("--seed", type=int, metavar="N", help="seed of everything random (default: 0)")
    text = "small crops of an image, beside two large ones (default: %(default)s)"
    command.add_argument("--local-crops", type=count, default=PretrainRequest.small_crops, metavar="N", help=text)
    text = "outputs of the head that student and teacher compare (default: %(default)s)"
    command.add_argument("--outputs", type=count, default=PretrainRequest.outputs, metavar="N", help=text)
    text = "name of the folder in runs/, for podium train --weights NAME (default: dino-MODEL)"
    command.add_argument("--name", type=run_name, metavar="NAME", help=text)
    machine_flags(command)


def report(command: argparse.ArgumentParser) -> None:
    runs_flags(command)


def explain(command: argparse.ArgumentParser) -> None:
    from podium_annex.explain.picture_names import PICTURES

    command.add_argument("runs", nargs="*", metavar="RUN", help="names or folders of finished runs")
    text = "pictures, such as grad_cam or attention_rollout (default: all that the model has)"
    command.add_argument("--what", nargs="+", choices=tuple(PICTURES), metavar="PICTURE", help=text)
    text = "ids of images, image files, or folders (default: six held-out images of the fold)"
    command.add_argument("--images", nargs="+", metavar="ID-or-FILE", help=text)
    command.add_argument("--fold", type=count, metavar="K", help="the fold (default: the first finished one)")
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
    text = "of ONNX: int8, a quarter of the size; prints its cost. 8 bits need VNNI on x86 processors (default: 7)"
    command.add_argument("--int8", type=int, nargs="?", const=7, default=0, choices=(7, 8), metavar="BITS", help=text)
    text = "folds whose models are averaged, such as 0, 0,2-4 or all (default: all models that are finished)"
    command.add_argument("--folds", nargs="+", action=FoldNumbers, metavar="0-2", help=text)
    text = "views that are averaged: none, or mirror, flip, turn, joined by + (default: those of the run)"
    command.add_argument("--views", default="", metavar="VIEWS", help=text)
    text = "the file (default: runs/SLUG/RUN/RUN.onnx, RUN-int8.onnx or RUN.pt2); its card is written beside it"
    command.add_argument("--output", type=Path, metavar="FILE", help=text)


def score(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", type=Path, metavar="FILE.csv", help="the submission")
    text = "the competition that it is for (default: that of the lineage beside it; else the cells show what they hold)"
    command.add_argument("-c", "--competition", type=slug, metavar="SLUG", help=text)
    text = "the truth: labels, a 0 or 1 for each class, or numbers; with a column Usage, both of its parts are scored"
    command.add_argument("--solution", type=Path, required=True, metavar="FILE.csv", help=text)
    text = "such as macro_f1, or your own (default: the competition's; without one, accuracy or log_loss)"
    command.add_argument("--metric", metavar="NAME", help=text)
    text = "the class (of two) whose probability the column holds (default: the one in its name, or the second)"
    command.add_argument("--positive", metavar="LABEL", help=text)


def final(command: argparse.ArgumentParser) -> None:
    text = "share of the test images that public scores are of, as the competition's page says (default: 0.3, a guess)"
    command.add_argument("--public-share", type=reader(_share), metavar="X", help=text)
    command.add_argument("--json", action="store_true", help="print all of it as a JSON object")


def _share(text: str) -> float:
    share = float(text) if re.fullmatch(r"0?\.\d+", text) else 0.0
    if not share:
        raise ValueError(f"a share between 0 and 1, such as 0.3, not {text}")
    return share


def kaggle_train(command: argparse.ArgumentParser) -> None:
    run_flags(command, "; without a model, podium compete works there for that time")
    text = "Kaggle's name for the accelerator (default: %(default)s; Kaggle gives two of them)"
    command.add_argument("--accelerator", default="NvidiaTeslaT4", metavar="NAME", help=text)
    recipe_flags(command)


def kaggle_bundle(command: argparse.ArgumentParser) -> None:
    runs_flags(command)
    blend_flag(command)
    text = "upload the bundle to Kaggle as a private data set and run its notebook there"
    command.add_argument("--upload", action="store_true", help=text)


def bench(command: argparse.ArgumentParser) -> None:
    from podium.options.recipe_options import PRECISIONS

    text = "timm models, with random weights (default: the two default models)"
    command.add_argument("--model", nargs="+", action=Names, default=DEFAULT_MODELS, metavar="NAME", help=text)
    text = "pixels, or HEIGHTxWIDTH (default: the model's own)"
    command.add_argument("--image-size", type=reader(parse_size), metavar="SIZE", help=text)
    command.add_argument("--batch-size", type=count, metavar="N", help="images per step (default: the recipe's)")
    command.add_argument("--precision", choices=PRECISIONS, help="default: what is fast on this hardware")
    command.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    device_flags(command)


def verify(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_name", metavar="RUN", help="name of a run")
    text = "number of the fold (default: the first that is finished, else the first with two checkpoints)"
    command.add_argument("--fold", type=count, metavar="K", help=text)
    device_flags(command)
    deterministic_flag(command)


def soup(command: argparse.ArgumentParser) -> None:
    text = "finished runs of one architecture, such as several seeds, or a run and its frozen head (RUN-linear)"
    command.add_argument("run_names", nargs="+", metavar="RUN", help=text)
    text = "sizes in pixels to try in prediction, beside that of the runs; then one run is enough"
    command.add_argument("--test-sizes", nargs="+", type=reader(parse_size), metavar="N", help=text)
    command.add_argument(
        "--name", type=run_name, metavar="RUN", help="name of the new run (default: soup and all names)"
    )
    device_flags(command)


def match(command: argparse.ArgumentParser) -> None:
    runs_flags(command)
    text = "name of the CSV (default: match and the runs' names)"
    command.add_argument("--name", type=run_name, metavar="NAME", help=text)
    text = "answer each test image with the name of a cluster, or of the known individual that it shows"
    command.add_argument("--clusters", action="store_true", help=text)
    text = "rebuild the CSV from its lineage, byte for byte"
    command.add_argument("--from", dest="lineage", type=Path, metavar="FILE.json", help=text)
    machine_flags(command)


def doctor(command: argparse.ArgumentParser) -> None:
    text = "models whose pretrained weights are needed (default: the two default models)"
    command.add_argument("--model", nargs="+", action=Names, default=DEFAULT_MODELS, metavar="NAME", help=text)
    device_flag(command)


def models(command: argparse.ArgumentParser) -> None:
    text = "parts of a name (vit small), a pattern ('*convnext*tiny*'), or weights (convnext_small.in12k)"
    command.add_argument("pattern", nargs="*", metavar="PATTERN", help=text)
    command.add_argument("--all", action="store_true", help="list all models, if there is no PATTERN")
    command.add_argument("--json", action="store_true", help="print a JSON object for each model, in a list")


def compare(command: argparse.ArgumentParser) -> None:
    core_flags.compare(command)
    text = "also draw the scores against the costs, as an SVG"
    command.add_argument("--picture", type=Path, metavar="FILE.svg", help=text)


# --- on several machines -----------------------------------------------------------------------------


def train(command: argparse.ArgumentParser) -> None:
    core_flags.train(command)
    on_flags(command, "Each fold of each run is a cell that one of them trains.")


def compete(command: argparse.ArgumentParser) -> None:
    core_flags.compete(command)
    text = "This command decides; each fold of a fine-tuned member, or of one from scratch, is a cell that one of them"
    on_flags(command, f"{text} trains.")


def submit(command: argparse.ArgumentParser) -> None:
    core_flags.submit(command)
    on_flags(command, "Each fold model whose test predictions are missing is a cell that one of them predicts with.")


def on_flags(command: argparse.ArgumentParser, cells: str) -> None:
    group = command.add_argument_group("several machines", cells)
    text = "ray (this machine), ray:ADDRESS (a cluster that shares this folder), slurm:PARTITION, or sky (for a cloud)"
    group.add_argument("--on", type=reader(_where), metavar="WHERE", help=text)
    text = "cells that run at a time (default: as many as there are GPUs, else machines; jobs of Slurm: 8)"
    group.add_argument("--at-once", type=positive, metavar="N", help=text)
    text = "what a cell gets, by Ray's names: num_cpus=4 num_gpus=1; a job, by submitit's: timeout_min=480 mem_gb=32"
    group.add_argument("--job", nargs="+", metavar="NAME=VALUE", help=text)
    group.add_argument("--cell", metavar="NAME", help="do one cell only, here: tasks and jobs use it")


def _where(text: str) -> Any:
    from podium_annex.fleet.cells import parse_where

    return parse_where(text)
