"""Trains a model with one change at a time, with several seeds: what does each flag bring?

    python -m benchmarks.variants ROOT SLUG --model NAME --variants="--keep 0,--norm train" [--flags="--image-size 96"]

ROOT holds a competition with folds. Fold 0 is trained with the defaults of `podium train` and the flags, then with each
variant too, once for each seed; the runs stay in ROOT/runs, so the same command goes on. Prints the mean score of the
seeds, its difference from the defaults with the standard error of the paired differences, and the mean loss: the tables
"With three seeds, lite0 and lite1".
"""

import os
import statistics
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness import Project, call, gain, head, row
from podium.competition.load import load


def variants(
    root: Path,
    slug: str,
    model: str = "tf_efficientnet_lite0",
    variants: str = "--linear",
    flags: str = "",
    seeds: tuple[int, ...] = (0, 1, 2),
    at_once: int = 1,
) -> None:
    """Variants have commas between them. Runs side by side get their share of the cores each."""
    changes = ["", *variants.split(",")]
    competition, project = (
        load(slug, root),
        Project(root, slug, 0 if at_once == 1 else max(1, (os.cpu_count() or 1) // at_once)),
    )
    metrics = list(dict.fromkeys((competition.metric, competition.task.loss)))

    def scores(trial: tuple[str, int]) -> list[float]:
        variant, seed = trial
        name = f"{model}{variant}".replace("--", "-").replace(" ", "-").replace("/", "-")
        run = project.train(
            f"{name}-{seed}", "--model", model, *flags.split(), *variant.split(), "--seed", seed, folds="0"
        )
        return [run.score(0, metric) for metric in metrics]

    trials = [(variant, seed) for variant in changes for seed in seeds]
    with ThreadPoolExecutor(at_once) as pool:
        found = dict(zip(trials, pool.map(scores, trials), strict=True))
    head("flags", metrics[0], "difference", *metrics[1:])
    for variant in changes:
        columns = list(zip(*(found[variant, seed] for seed in seeds), strict=True))
        means = [f"{statistics.mean(column):.4f}" for column in columns]
        difference = gain(columns[0], [found["", seed][0] for seed in seeds]) if variant else ""
        row(variant or "defaults", means[0], difference, *means[1:])


if __name__ == "__main__":
    call(variants)
