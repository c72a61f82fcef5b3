"""Measures how well runs are blended where the truth is known: simulated runs, or held-out images that are hidden.

    python -m benchmarks.blends simulate [--task one_label] [--images 200 1000] [--classes 2 10 40] [--metrics ...]
    python -m benchmarks.blends hide ROOT SLUG RUN... [--metrics accuracy log_loss] [--times 10]

`simulate` draws runs of several kinds (WORLDS), blends them by some of the images and scores the blends on 4,000
others. `hide` blends the runs of a competition by a random half of the images that all of them held out, and scores the
blends on the other half. Both print the score of the best of all fixed strategies, chosen with the hidden labels, and
how much better than that (in hundredths of the metric's unit) the blend is that `podium submit` takes, and fixed
strategies, on average and ± two standard errors: the tables of "Weights of a blend".
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Project, call, head, row
from podium.blending import choose_blend as choosing
from podium.blending.blend import Probs
from podium.blending.blend_strategies import fit_blend
from podium.blending.held_out import HeldOut, collect_held_out
from podium.competition.load import load
from podium.tasks.metrics import METRICS, evaluate
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, Targets

NEW_IMAGES = 4000
SHOWN = ("podium submit", "equal", "equal-calibrated", "convex-calibrated", "greedy-calibrated", "best")
FIXED = tuple(f"{name}{suffix}" for name in ("equal", "convex", "greedy", "best") for suffix in ("", "-calibrated"))
BOTH = ("accuracy", "log_loss")


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


def simulated(world: World, task: str, classes: int, images: int, seed: int) -> HeldOut:
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
    labels = rng.choice(np.arange(classes), images, p=shares / shares.sum())
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
    strengths, sureness = (np.array(values)[:, None, None] for values in (world.strengths, world.sureness))
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


def fixed_strategies(held_out: HeldOut) -> list[str]:
    is_one_label = held_out.targets.task.sums_to_one
    names = [name for name in FIXED if is_one_label or not name.endswith("-calibrated")]
    return names if held_out.targets.task.has_columns else [*names, "geometric", "rank"]


def measure(fitted: HeldOut, hidden: HeldOut, metric: str) -> dict[str, float]:
    """Returns the score of each blend on the hidden images; higher is better."""
    blends = {name: fit_blend(name, fitted.probs, fitted.targets, metric) for name in fixed_strategies(fitted)}
    blends = {"podium submit": choosing.choose_blend(fitted, metric, len(hidden)).blend, **blends}
    better = METRICS[metric]().better
    return {
        name: better * evaluate(metric, hidden.targets, blend.apply(hidden.probs)) for name, blend in blends.items()
    }


def report(name: str, metric: str, results: list[dict[str, float]]) -> None:
    columns = {key: np.array([result[key] for result in results]) for key in results[0]}
    best = max([key for key in columns if key != "podium submit"], key=lambda key: columns[key].mean())
    cells = [f"{best} {METRICS[metric]().better * columns[best].mean():.4f}"]
    for key in SHOWN:
        gains = 100 * (columns.get(key, columns["equal"] * np.nan) - columns[best])
        error = 2 * gains.std() / max(1, len(gains) - 1) ** 0.5
        cells.append(f"{gains.mean():+.2f} ± {error:.2f}" if np.isfinite(error) else "")
    row(name, metric, *cells)


def begin() -> None:
    warnings.simplefilter("ignore")
    choosing.MOST_STACKED = 0  # only means are compared
    head("runs", "metric", "best fixed", *SHOWN)


def simulate(
    task: str = "one_label",
    images: tuple[int, ...] = (200, 1000),
    classes: tuple[int, ...] = (2, 10, 40),
    metrics: tuple[str, ...] = BOTH,
    times: int = 10,
) -> None:
    """Draws runs; the task is one_label, several_labels or numbers."""
    begin()
    for width in classes:
        for count in images:
            for name, world in WORLDS.items():
                draw = partial(simulated, world, task, width)
                pairs = [(draw(count, seed), draw(NEW_IMAGES, 9999 + seed)) for seed in range(times)]
                for metric in metrics:
                    report(f"{name}, {width}, {count:,}", metric, [measure(*pair, metric) for pair in pairs])


def hide(root: Path, slug: str, runs: list[str], metrics: tuple[str, ...] = BOTH, times: int = 10) -> None:
    """Blends runs that are there."""
    begin()
    competition, project = load(slug, root), Project(root, slug)
    of_runs = [project.run(name) for name in runs]
    held_out = collect_held_out(of_runs, competition.classes, labels=competition.label_of)
    for metric in metrics:
        results = [measure(fitted, hidden, metric) for fitted, hidden in halves(held_out, times)]
        report(f"{slug}, {len(runs)} runs, {len(held_out) // 2:,} images", metric, results)


def halves(held_out: HeldOut, times: int) -> Iterator[tuple[HeldOut, HeldOut]]:
    for seed in range(times):
        order = np.random.default_rng(seed).permutation(int(held_out.groups.max()) + 1)[held_out.groups]
        fitted, hidden = held_out.of(order <= np.median(order)), held_out.of(order > np.median(order))
        groups = np.unique(fitted.groups, return_inverse=True)[1]
        yield replace(fitted, parts=groups % 5, groups=groups), hidden


if __name__ == "__main__":
    call(simulate, hide)
