"""Says whether what is new about a run has helped: the run beside its baseline, which differs in little else.

`podium train` says it at the end, and `podium soup` of the best of the runs that it has averaged. Both are scored on
the images that both held out, each by models that have not seen them, and the interval is that of the paired
difference.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from podium.basics.errors import PodiumError
from podium.basics.project_root import runs_folder
from podium.blending.gain import gain_of
from podium.blending.held_out import collect_held_out
from podium.blending.pool_images import pool_held_out
from podium.competition.load import Competition
from podium.folds.folds_csv import read_groups
from podium.options.recipe import (
    continued_by,
    file_hashes,
    flag_of,
    is_same,
    recipe_options,
    recorded_values,
    what_is_recorded,
)
from podium.saved_runs.doubts import doubt_about
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import METRICS

MOST_CHANGES = 3  # options
SAME = ("competition", "folds_sha256", "data_sha256", "range", "channels", "unknown", "unknown_share")  # of baselines
# What else may be new, and the option that says the same.
ADDED = {
    "extra_sha256": "extra_weight",
    "unlabelled_sha256": "pseudo",
    "columns_sha256": "columns",
    "also_sha256": "",
    "region_sha256": "region",
    "series_sha256": "adjacent",
    "corrections_sha256": "",
    "own_parts_sha256": "",
}
FOLLOWS = {"test_size": ("finish", "image_size"), "keep": ("head_first",)}  # options, and what decides them


class Baseline(NamedTuple):
    """A run that another one may be compared with; the least one is the nearest."""

    is_no_source: bool  # the other one neither goes on from it nor takes its pseudo-labels
    has_other_seed: bool
    change_count: int
    began: int  # nanoseconds
    run: Run
    changes: list[str]  # what the other one has in another way


def compare_with_baseline(competition: Competition, run: Run) -> str:
    """Returns the gain over the run's baseline, for people; nothing if it has none, or if that cannot be read."""
    with suppress(PodiumError):
        baseline = find_baseline(run, _others(run, runs_folder(competition.slug, competition.root)))
        if baseline is None:
            return ""
        other_seed = ", and in the seed" if baseline.has_other_seed else ""
        return _describe(competition, run, baseline.run, f"which differs in {', '.join(baseline.changes)}{other_seed}")
    return ""


def describe_gain_of_soup(competition: Competition, soup: Run) -> str:
    """Returns the gain of averaged weights over the best of their runs; nothing if that cannot be read."""
    with suppress(PodiumError):
        runs = [Run(soup.path.parent / name) for name in soup.ingredients]
        better = METRICS[competition.metric]().better
        best = max(runs, key=lambda run: sum(better * run.score(fold, competition.metric) for fold in soup.finished()))
        return _describe(competition, soup, best, "the best of its runs")
    return ""


def _describe(competition: Competition, run: Run, other: Run, what: str) -> str:
    groups, labels = read_groups(competition), competition.label_of
    pair = pool_held_out(collect_held_out([other, run], competition.classes, groups, labels), competition)
    if not len(pair):
        return ""
    metric = competition.metric
    gain = gain_of(pair, pair.probs[0], pair.probs[1], metric)
    low, high = gain.interval
    if math.isnan(gain.gain) or math.isnan(low):
        return ""
    sign = "" if METRICS[metric]().better > 0 else ", positive is better"
    return (
        f"beside {other.name}, {what}: {metric} {gain.gain:+z.4f} on {len(pair):,} held-out images (95 % over images:"
        f" {low:+z.4f} to {high:+z.4f}{sign}): {gain.verdict}"
    )


def find_baseline(run: Run, others: Sequence[Run]) -> Baseline | None:
    """Returns the run that a run goes on from or learns from, or else the one that differs in the fewest options.

    The seed is no option here, but runs of the same seed come first; of several, it is the first that was trained.
    None: there is no such run, or only the seed is new.
    """
    if run.ingredients or doubt_about(run):
        return None
    sources, baselines = continued_by(run.recipe), []
    for other in others:
        is_fit = other.finished() and all(other.recipe.get(key) == run.recipe.get(key) for key in SAME)
        if not is_fit or other.ingredients or doubt_about(other):
            continue
        changes, is_source = _changes(run, other), other.name in sources
        if is_source or (len(changes) <= MOST_CHANGES and run.recipe["model"] == other.recipe["model"]):
            has_other_seed = run.recipe.get("seed") != other.recipe.get("seed")
            began = (other.path / "recipe.json").stat().st_mtime_ns
            baselines.append(Baseline(not is_source, has_other_seed, len(changes), began, other, changes))
    is_only_a_seed = any(not baseline.changes for baseline in baselines)
    baselines = [
        baseline
        for baseline in baselines
        if baseline.changes and not (is_only_a_seed and baseline.is_no_source and baseline.has_other_seed)
    ]
    return min(baselines, key=lambda baseline: baseline[:4], default=None)


def _changes(run: Run, other: Run) -> list[str]:
    names = [name for name in recipe_options() if name != "seed"]
    own, others = recorded_values(run.recipe, names), recorded_values(other.recipe, names)
    changed = [name for name in names if not is_same(name, own.get(name), others.get(name))]
    changed = [name for name in changed if not {*FOLLOWS.get(name, ())} & {*changed}]
    added = [
        f"the {what_is_recorded(key)}"
        for key, switch in (ADDED | file_hashes()).items()
        if switch not in changed and run.recipe.get(key) != other.recipe.get(key)
    ]
    return [*map(flag_of, changed), *added]


def _others(run: Run, folder: Path) -> list[Run]:
    """Returns the other runs whose recipes can be read."""
    others = []
    for path in sorted(folder.glob("*/recipe.json")):
        other = Run(path.parent)
        if other.name != run.name and not other.name.startswith("."):
            with suppress(PodiumError):
                _ = other.recipe
                others.append(other)
    return others
