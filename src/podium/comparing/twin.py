"""Says whether what is new about a run has helped: the run beside its twin, which differs in little else.

`podium train` says it at the end. Both are scored on the images that both held out, each by models that have not seen
them, and the interval is that of the paired difference.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from podium.blending.held_out import collect_held_out
from podium.blending.pool_images import pool_held_out
from podium.comparing.compare import gain_interval
from podium.competition.load import Competition
from podium.errors import PodiumError
from podium.folds.folds_csv import read_groups
from podium.project_root import runs_folder
from podium.recipe import flag_of, recipe_options, recorded_values
from podium.saved_runs.doubts import doubt_about
from podium.saved_runs.run_folder import Run
from podium.tasks.metrics import METRICS, evaluate

MOST_CHANGES = 3  # options
SAME = ("competition", "folds_sha256", "data_sha256", "range", "unknown", "unknown_share")  # of twins
# What else may be new, and the option that says the same.
ADDED = {
    "extra_sha256": ("images from elsewhere", "extra_weight"),
    "also_sha256": ("the further columns of the card", "also_weight"),
    "region_sha256": ("the boxes", "region"),
    "corrections_sha256": ("the corrections", ""),
    "own_parts_sha256": ("the code of own parts", ""),
}
FOLLOWS = {"test_size": ("finish", "image_size"), "keep": ("head_first",)}  # options, and what decides them


def describe_twin(competition: Competition, root: Path, run: Run) -> str:
    """Returns the gain over the run's twin, for people; nothing if it has none, or if that cannot be read."""
    with suppress(PodiumError):
        found = find_twin(run, _others(run, runs_folder(competition.slug, root)))
        return "" if found is None else _describe(competition, root, run, *found)
    return ""


def _describe(competition: Competition, root: Path, run: Run, twin: Run, changes: Sequence[str]) -> str:
    other_seed = ", and in the seed" if run.recipe.get("seed") != twin.recipe.get("seed") else ""
    groups, labels = read_groups(competition, root), competition.label_of
    pair = pool_held_out(collect_held_out([twin, run], competition.classes, groups, labels), competition)
    if not len(pair):
        return ""
    metric, better = competition.metric, METRICS[competition.metric]().better
    before, after = (evaluate(metric, pair.targets, probs) for probs in pair.probs)
    gain, (low, high) = better * (after - before) + 0.0, gain_interval(pair, metric)
    if math.isnan(gain) or math.isnan(low):
        return ""
    verdict = "it helps here" if low > 0 else "it harms here" if high < 0 else "that may be chance"
    sign = "" if better > 0 else ", positive is better"
    return (
        f"beside {twin.name}, which differs in {', '.join(changes)}{other_seed}: {metric} {gain:+.4f} on {len(pair):,}"
        f" held-out images (95 % over images: {low:+.4f} to {high:+.4f}{sign}): {verdict}"
    )


def find_twin(run: Run, others: Sequence[Run]) -> tuple[Run, list[str]] | None:
    """Returns the run that a run goes on from or learns from, or that differs in the fewest options, and those.

    The seed is no option here, but runs of the same seed come first; of several, it is the first that was trained.
    None: there is no such run, or only the seed is new.
    """
    found, sources = [], {run.recipe.get("start"), *str(run.recipe.get("pseudo", "")).split("+")}
    for other in others:
        is_fit = other.finished() and all(other.recipe.get(key) == run.recipe.get(key) for key in SAME)
        if is_fit and "soup" not in other.recipe and not doubt_about(other):
            changes, is_source = _changes(run, other), other.name in sources
            has_other_seed = run.recipe.get("seed") != other.recipe.get("seed")
            is_same_model = run.recipe["model"] == other.recipe["model"]
            if is_source or (len(changes) <= MOST_CHANGES and is_same_model):
                began = (other.path / "recipe.json").stat().st_mtime_ns
                found.append((not is_source, has_other_seed, len(changes), began, other, changes))
    if "soup" in run.recipe or doubt_about(run):
        return None
    is_only_a_seed = any(not changes for *_, changes in found)
    found = [entry for entry in found if entry[-1] and not (is_only_a_seed and entry[0] and entry[1])]
    return min(found, key=lambda entry: entry[:4])[-2:] if found else None


def _changes(run: Run, other: Run) -> list[str]:
    names = [name for name in recipe_options() if name != "seed"]
    own, others = recorded_values(run.recipe, names), recorded_values(other.recipe, names)
    changed = [name for name in names if own.get(name) != others.get(name)]
    changed = [name for name in changed if not {*FOLLOWS.get(name, ())} & {*changed}]
    added = [
        text
        for key, (text, switch) in ADDED.items()
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
