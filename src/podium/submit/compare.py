"""The runs of a competition side by side: what they score and cost, and how far each pair of them disagrees.

    podium compare [-c SLUG] [--runs A B]

Reads runs/<slug>/*/. Runs that score alike and disagree much gain most from each other in a blend.
"""

import math
from pathlib import Path

import numpy as np

from podium import PodiumError
from podium.competition.load import Competition
from podium.metrics import METRICS
from podium.submit.blend import held_out
from podium.terminal import duration, say, table
from podium.training.run_folder import Run, find_runs

NOT_LEARNED = ("running_mean", "running_var", "num_batches_tracked")


def compare(competition: Competition, root: Path, names: list[str] | None = None) -> str:
    runs, metric = find_runs(competition.slug, root, names), competition.metric
    scores = {run: [run.score(fold, metric) for fold in run.finished()] for run in runs}
    runs.sort(key=lambda run: -METRICS[metric]().better * float(np.mean(scores[run])))
    header = ["run", "model", "folds", metric, "±", "parameters", "images/s", "training"]
    rows = [[*_row(run, scores[run]), *_cost(run)] for run in runs]
    tables = [table(header, rows)]
    if len(runs) > 1:
        columns = ["disagree", *(str(n) for n in range(1, len(runs) + 1))]
        pairs = [[f"{n} {run.name}", *(_disagreement(run, other) for other in runs)] for n, run in enumerate(runs, 1)]
        tables.append(table(columns, pairs))
    return "\n\n".join(tables)


def _row(run: Run, scores: list[float]) -> list[str]:
    spread = f"{np.std(scores, ddof=1):.5f}" if len(scores) > 1 else ""
    of = f"{len(scores)} of {run.recipe['folds']}"
    return [run.name, str(run.recipe.get("model")), of, f"{np.mean(scores):.5f}", spread]


def _cost(run: Run) -> list[str]:
    """Parameters, images/s of the last epoch, and the time that all folds took, validation included."""
    first = run.finished()[0]
    try:
        histories = [run.history(fold) for fold in run.finished()]
        rate = np.median([entries[-1]["images_per_s"] for entries in histories])
        seconds = sum(each["seconds"] + each["validation_seconds"] for entries in histories for each in entries)
        spent = [f"{rate:,.1f}", duration(seconds)]
    except (PodiumError, LookupError, TypeError) as damage:
        say(f"podium: warning: {run.path}: {damage}")
        spent = ["?", "?"]
    return [f"{_parameters(run.fold(first) / 'model.safetensors') / 1e6:,.1f} M", *spent]


def _parameters(path: Path) -> int:
    """Counted in the file's header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            learned = [name for name in file.keys() if not name.endswith(NOT_LEARNED)]  # noqa: SIM118
            return sum(math.prod(file.get_slice(name).get_shape()) for name in learned)
    except (SafetensorError, OSError) as error:
        raise PodiumError(
            f"{path}: cannot be read ({error}); restore it, or delete that fold and train it again"
        ) from None


def _disagreement(run: Run, other: Run) -> str:
    if run == other:
        return ""
    try:
        both = held_out([run, other], run.out_of_fold(run.finished()[0]).classes)
    except PodiumError:  # their classes differ
        return "?"
    if not len(both):
        return "?"
    first, second = both.probs.argmax(2)
    return f"{np.mean(first != second):.2%}"
