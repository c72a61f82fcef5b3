"""Measures what each default of fine-tuning brings: one change at a time, on several sets, with several seeds.

    python docs/measure_finetuning.py ROOT -c SLUG [SLUG ...] [--models convnext_small ...] [--seeds 0 1 2] [--cost]

ROOT holds competitions with folds. For each model and set, fold 0 is trained with the defaults of `podium train`, then
with one option changed, once for each seed, and the frozen head is fitted (`--linear`). Before anything is trained, it
says how long all of this takes; `--cost` only says that. The runs stay in ROOT/runs, so the same command goes on; it
ends with a table: the mean score of the seeds, its difference from the defaults with the standard error of the paired
differences, and the mean loss.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from podium.basics.terminal import duration, plural
from podium.competition.load import load
from podium.options.recipe import Recipe
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import METRICS
from podium.training.plan import make_plan
from podium.training.request import Request, check_before_plan
from podium.training.timing.fold_work import estimate_seconds
from podium.training.timing.measure_step import measure_training

MODELS = ("vit_small_patch32_224", "convnext_small", "tf_efficientnet_lite0", "tf_efficientnet_lite1")
Options = dict[str, Any]
# What is changed, given the defaults. The names are also those of the runs.
CHANGES: dict[str, Callable[[Recipe], Options]] = {
    "frozen head": lambda _: {"linear": True},
    "defaults": lambda _: {},
    "prior head": lambda _: {"head_first": False},
    "lr x 0.5": lambda recipe: {"lr": recipe.lr * 0.5},
    "lr x 2": lambda recipe: {"lr": recipe.lr * 2},
    "layer decay": lambda recipe: {"layer_decay": 0.9 if recipe.layer_decay == 1 else 1.0},
    "norm": lambda recipe: {"norm": "train" if recipe.norm == "frozen" else "frozen"},
    "norm adapt": lambda _: {"norm": "adapt"},
    "keep": lambda recipe: {"keep": 0.0 if recipe.keep else 0.3},
    "freeze 0.3": lambda _: {"freeze": 0.3},
    "mix": lambda recipe: {"mix": 0.0 if recipe.mix else 0.5},
    "smoothing": lambda recipe: {"smoothing": 0.0 if recipe.smoothing else 0.1},
    "light": lambda _: {"level": "light"},
    "epochs x 0.5": lambda recipe: {"epochs": math.ceil(recipe.epochs / 2)},
    "epochs x 2": lambda recipe: {"epochs": recipe.epochs * 2},
}


class Trial(NamedTuple):
    slug: str
    model: str
    change: str
    seed: int
    options: Options  # of podium train
    seconds: float  # forecast

    @property
    def run(self) -> str:
        return f"ablation-{self.model}-{self.change.replace(' ', '-')}-{self.seed}"


def main(
    root: Path,
    slugs: list[str],
    models: list[str],
    seeds: list[int],
    changes: list[str],
    size: int | None,
    epochs: int | None,
    at_once: int,
    cost: bool,
) -> None:
    given = {name: value for name, value in (("image_size", size), ("epochs", epochs)) if value}
    trials = [
        trial
        for slug in slugs
        for model in models
        for trial in trials_of(root, slug, {"model": model, **given}, seeds, changes)
    ]
    left = [trial for trial in trials if 0 not in run_of(root, trial).finished()]
    seconds = sum(trial.seconds for trial in left) / at_once
    print(f"{plural(len(trials), 'run')}, {len(left)} left to train: about {duration(seconds)}", flush=True)
    if cost:
        return
    with ThreadPoolExecutor(at_once) as pool:
        for trial in pool.map(lambda trial: train(root, trial, at_once), left):
            print(f"  {trial.slug} {trial.run}: {scores_of(root, trial)}", flush=True)
    for slug in slugs:
        for model in models:
            print(f"\n{slug}, {model}, fold 0, {plural(len(seeds), 'seed')}\n")
            for line in table_of(root, [trial for trial in trials if (trial.slug, trial.model) == (slug, model)]):
                print(line)


def trials_of(root: Path, slug: str, common: Options, seeds: list[int], changes: list[str]) -> Iterator[Trial]:
    plan = make_plan(check_before_plan(slug, root, Request(common, folds=(0,)), only_shown=True))
    held_out = int(plan.folds.validates(0).sum())
    rate = measure_training(plan.recipe, plan.competition.classes, "auto")
    for change in dict.fromkeys(("defaults", *changes)):
        options = CHANGES[change](plan.recipe)
        if options and all(plan.recipe.values()[name] == value for name, value in options.items()):
            continue  # the default itself
        request = Request({**common, **options}, folds=(0,))
        recipe = make_plan(check_before_plan(slug, root, request, only_shown=True)).recipe
        seconds = estimate_seconds(recipe, len(plan.folds) - held_out, held_out, rate)
        for seed in seeds[:1] if recipe.linear else seeds:  # a head needs no random numbers
            yield Trial(slug, common["model"], change, seed, {**common, **options, "seed": seed}, seconds)


def train(root: Path, trial: Trial, at_once: int) -> Trial:
    flags = [word for name, value in trial.options.items() for word in words_of(name, value)]
    words = ["train", "-c", trial.slug, "--folds", "0", "--name", trial.run, *flags]
    threads = {} if at_once == 1 else {"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // at_once))}
    command = [sys.executable, "-m", "podium", "--root", str(root), *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **threads}, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return trial


def words_of(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", f"{value}"]


def run_of(root: Path, trial: Trial) -> Run:
    return Run(root / "runs" / trial.slug / trial.run)


def scores_of(root: Path, trial: Trial) -> dict[str, float]:
    """Returns the scores of the last epoch: the competition's metric first."""
    last = (run_of(root, trial).fold_folder(0) / "metrics.jsonl").read_text().splitlines()[-1]
    record, competition = json.loads(last), load(trial.slug, root)
    names = dict.fromkeys((competition.metric, competition.task.loss))
    return {name: float(record[name]) for name in names}


def table_of(root: Path, trials: list[Trial]) -> Iterator[str]:
    competition = load(trials[0].slug, root)
    metric, loss = competition.metric, competition.task.loss
    scores = {change: [scores_of(root, trial) for trial in trials if trial.change == change] for change in CHANGES}
    better = "higher" if METRICS[metric]().better > 0 else "lower"
    yield f"| change | {metric} ({better} is better) | difference | {loss} |"
    yield "| --- | --- | --- | --- |"
    for change, found in scores.items():
        if not found:
            continue
        differences = [one[metric] - other[metric] for one, other in zip(found, scores["defaults"], strict=False)]
        error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
        difference = "" if change == "defaults" else f"{statistics.mean(differences):+.4f} ± {error:.4f}"
        means = {name: statistics.mean(one[name] for one in found) for name in (metric, loss)}
        yield f"| {change} | {means[metric]:.4f} | {difference.replace(' ± nan', '')} | {means[loss]:.4f} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("-c", "--competitions", dest="slugs", nargs="+", default=["boolart-image-classification"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="default: %(default)s")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="default: %(default)s")
    parser.add_argument("--changes", nargs="+", choices=CHANGES, default=list(CHANGES), help="of the defaults; all")
    parser.add_argument("--size", type=int, help="of the images (default: the model's)")
    parser.add_argument("--epochs", type=int, help="of the defaults (default: the model's)")
    parser.add_argument("--at-once", type=int, default=1, help="runs side by side, each with its share of the cores")
    parser.add_argument("--cost", action="store_true", help="say how long it takes, and train nothing")
    main(**vars(parser.parse_args()))
