"""Measures how well runs are blended where the truth is known: simulated runs, or held-out images that are hidden.

    python docs/measure_weights.py simulate [--task one_label] [--images 200 1000] [--classes 2 10 40] [--metrics ...]
    python docs/measure_weights.py hide ROOT SLUG --runs A B [--metrics accuracy log_loss] [--times 10]

`simulate` draws runs of several kinds (WORLDS), blends them by some of the images and scores the blends on 4,000
others. `hide` blends the runs of a competition by a random half of the images that all of them held out, and scores the
blends on the other half.

Prints a table: the score of the best of all fixed strategies, chosen with the hidden labels, and how much better than
that (in hundredths of the metric's unit) the blend is that `podium submit` takes, the former rule (the simplest
strategy that is not clearly worse than another), and fixed strategies, on average and ± two standard errors.
"""

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from podium.blending import choose_blend as choosing
from podium.blending.blend import Probs
from podium.blending.blend_strategies import fit_blend
from podium.blending.expected_score import bootstrap_scores, percentile_interval
from podium.blending.held_out import HeldOut, collect_held_out
from podium.blending.nested import Mask, predict_nested
from podium.competition.load import load
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import METRICS, evaluate
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, Targets

NEW_IMAGES = 4000
FORMER_IMAGES = 1000  # the former rule takes minutes for more
WORDS = ("equal", "convex", "greedy", "best")
SHOWN = ("podium submit", "former rule", "equal", "equal-calibrated", "convex-calibrated", "greedy-calibrated", "best")
FIXED = tuple(f"{name}{suffix}" for name in WORDS for suffix in ("", "-calibrated"))


class World(NamedTuple):
    strengths: tuple[float, ...]  # of the runs
    sureness: tuple[float, ...]  # 1: calibrated
    families: tuple[int, ...]  # runs of a family make similar errors
    shared: float = 0.3  # share of the errors that all runs have in common
    of_family: float = 0.0  # and of those that a family has in common
    failing: float = 0.0  # share of the images that a run takes for something else, and is sure


WORLDS = {
    "five equal seeds": World((2.0,) * 5, (1.5,) * 5, (0,) * 5, 0.6),
    "one strong, four weak": World((2.5, *(1.2,) * 4), (1.0,) * 5, (0,) * 5),
    "unlike calibrations": World((2.0,) * 4, (0.4, 1.0, 2.0, 4.0), (0, 1, 2, 3), 0.4),
    "families": World((2.2, 2.1, 2.0, 2.0, 1.9, 1.8), (1.3,) * 6, (0, 0, 0, 0, 1, 2), 0.3, 0.5),
    "nine, mixed": World(
        (2.5, 2.3, 2.2, 2.2, 2.0, 1.8, 1.5, 1.0, 0.5), (1, 2, 0.7, 1.5, 1, 3, 1, 0.5, 1), (0, 0, 1, 1, 1, 2, 2, 2, 0)
    ),
    "sure failures": World((2.3, 2.1, 2.0, 1.8), (1.0,) * 4, (0, 0, 1, 2), 0.3, 0.3, 0.08),
}


def simulate(world: World, task: str, images: int, classes: int, seed: int) -> HeldOut:
    rng, runs = np.random.default_rng(seed), len(world.strengths)
    of_task = {"one_label": _one_label, "several_labels": _several_labels, "numbers": _numbers}[task]
    width = 1 if task == "numbers" else classes
    own = rng.normal(size=(runs, images, width))
    family = rng.normal(size=(runs, images, width))[list(world.families)]
    shares = np.sqrt([world.shared, world.of_family, 1 - world.shared - world.of_family])
    noise = shares[0] * rng.normal(size=(images, width)) + shares[1] * family + shares[2] * own
    probs, targets = of_task(world, noise, rng)
    return HeldOut(probs, targets, np.arange(images) % 5, np.arange(images))


def _one_label(world: World, noise: Probs, rng: np.random.Generator) -> tuple[Probs, Targets]:
    _, images, classes = noise.shape
    # Three labels of four are of the first half of the classes, and more classes are as hard as ten.
    shares = np.where(np.arange(classes) < (classes + 1) // 2, 3.0, 1.0)
    labels = rng.choice(classes, images, p=shares / shares.sum())
    hardness = (np.log(classes) / np.log(10)) ** 0.5
    for number, strength in enumerate(np.array(world.strengths) * hardness):
        seen = np.where(rng.random(images) < world.failing, rng.integers(classes, size=images), labels)
        noise[number, np.arange(images), seen] += strength
        noise[number] *= strength * world.sureness[number]
    powers = np.exp(noise - noise.max(2, keepdims=True))
    return powers / powers.sum(2, keepdims=True), Targets(ONE_LABEL, labels)


def _several_labels(world: World, noise: Probs, rng: np.random.Generator) -> tuple[Probs, Targets]:
    runs, images, classes = noise.shape
    labels = (rng.random((images, classes)) < 0.2).astype(np.float32)
    strengths, sureness = (np.array(row)[:, None, None] for row in (world.strengths, world.sureness))
    is_failure = rng.random((runs, images, 1)) < world.failing
    seen = np.where(is_failure, rng.permutation(labels), labels)
    logits = sureness * (strengths * (noise + strengths * (seen - 0.5)) + np.log(0.2 / 0.8))
    return 1 / (1 + np.exp(-logits)), Targets(SEVERAL_LABELS, labels)


def _numbers(world: World, noise: Probs, rng: np.random.Generator) -> tuple[Probs, Targets]:
    runs, images, _ = noise.shape
    truth = rng.normal(size=(images, 1))
    numbers = truth + noise / np.array(world.strengths)[:, None, None]
    is_failure = rng.random((runs, images, 1)) < world.failing
    return np.where(is_failure, rng.normal(size=noise.shape), numbers), Targets(NUMBERS, truth)


def former_blend(held_out: HeldOut, metric: str) -> str:
    """Returns the strategy of the former rule: the simplest that is not clearly worse, nor worse than a single run."""
    better, scores, resampled = METRICS[metric]().better, {}, {}
    for name in fixed_strategies(held_out):

        def predict(is_fitted: Mask, is_scored: Mask, name: str = name) -> Probs:
            fitted = held_out.of(is_fitted)
            return fit_blend(name, fitted.probs, fitted.targets, metric).apply(held_out.probs[:, is_scored])

        nested = predict_nested(held_out, predict)
        scores[name] = better * evaluate(metric, held_out.targets, nested)
        resampled[name] = better * bootstrap_scores(held_out, nested, metric)
    eligible = [name for name in scores if scores[name] >= scores["best"]]
    top = max(eligible, key=lambda name: scores[name])
    return next(name for name in eligible if percentile_interval(resampled[top] - resampled[name])[0] <= 0)


def fixed_strategies(held_out: HeldOut) -> list[str]:
    is_one_label = held_out.targets.task.sums_to_one
    names = [name for name in FIXED if is_one_label or not name.endswith("-calibrated")]
    return names if held_out.targets.task.has_columns else [*names, "geometric", "rank"]


def measure(fitted: HeldOut, hidden: HeldOut, metric: str) -> dict[str, float]:
    """Returns the score of each blend on the hidden images; higher is better."""

    def score(name: str) -> float:
        blend = fit_blend(name, fitted.probs, fitted.targets, metric)
        return METRICS[metric]().better * evaluate(metric, hidden.targets, blend.apply(hidden.probs))

    blend = choosing.choose_blend(fitted, metric, len(hidden)).blend
    scores = {"podium submit": METRICS[metric]().better * evaluate(metric, hidden.targets, blend.apply(hidden.probs))}
    fixed = fixed_strategies(fitted)
    scores |= {name: score(name) for name in fixed}
    is_tried = len(fitted) <= FORMER_IMAGES and fitted.probs.shape[2] <= 10
    return {**scores, "former rule": scores[former_blend(fitted, metric)] if is_tried else float("nan")}


def report(name: str, metric: str, results: list[dict[str, float]]) -> None:
    columns = {key: np.array([result[key] for result in results]) for key in results[0]}
    fixed = {key: values for key, values in columns.items() if key not in ("podium submit", "former rule")}
    best = max(fixed, key=lambda key: fixed[key].mean())
    cells = [f"{best} {METRICS[metric]().better * fixed[best].mean():.4f}"]
    for key in SHOWN:
        gains = 100 * (columns.get(key, columns["equal"] * np.nan) - fixed[best])
        error = 2 * gains.std() / max(1, len(gains) - 1) ** 0.5
        cells.append(f"{gains.mean():+.2f} ± {error:.2f}" if np.isfinite(error) else "")
    print(f"| {name} | {metric} | {' | '.join(cells)} |", flush=True)


def halves(held_out: HeldOut, times: int) -> Iterator[tuple[HeldOut, HeldOut]]:
    for seed in range(times):
        order = np.random.default_rng(seed).permutation(int(held_out.groups.max()) + 1)[held_out.groups]
        fitted, hidden = held_out.of(order <= np.median(order)), held_out.of(order > np.median(order))
        groups = np.unique(fitted.groups, return_inverse=True)[1]
        yield replace(fitted, parts=groups % 5, groups=groups), hidden


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    simulated, hidden = commands.add_parser("simulate"), commands.add_parser("hide")
    hidden.add_argument("root", type=Path)
    hidden.add_argument("slug")
    hidden.add_argument("--runs", nargs="+", required=True)
    simulated.add_argument("--task", choices=("one_label", "several_labels", "numbers"), default="one_label")
    simulated.add_argument("--images", type=int, nargs="+", default=[200, 1000])
    simulated.add_argument("--classes", type=int, nargs="+", default=[2, 10, 40])
    for command in (simulated, hidden):
        command.add_argument("--metrics", nargs="+", default=["accuracy", "log_loss"])
        command.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    choosing.MOST_STACKED = 0  # only means are compared
    print(f"| runs | metric | best fixed | {' | '.join(SHOWN)} |\n{'| --- ' * 10}|")
    if options.command == "hide":
        competition = load(options.slug, options.root)
        runs = [Run(options.root / "runs" / options.slug / name) for name in options.runs]
        held_out = collect_held_out(runs, competition.classes, labels=competition.label_of)
        for metric in options.metrics:
            results = [measure(fitted, hidden, metric) for fitted, hidden in halves(held_out, options.times)]
            report(f"{options.slug}, {len(runs)} runs, {len(held_out) // 2:,} images", metric, results)
        return
    for classes in options.classes:
        for images in options.images:
            for name, world in WORLDS.items():
                draw = partial(simulate, world, options.task)
                pairs = [(draw(images, classes, n), draw(NEW_IMAGES, classes, 9999 + n)) for n in range(options.times)]
                for metric in options.metrics:
                    report(f"{name}, {classes}, {images:,}", metric, [measure(*pair, metric) for pair in pairs])


if __name__ == "__main__":
    main()
