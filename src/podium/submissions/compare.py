"""Compares the runs of a competition: their scores, their costs, and how often each pair of them disagrees.

    podium compare [-c SLUG] [--runs A B]

Reads runs/<slug>/*/. Runs with similar scores that often disagree gain most from a blend.
"""

import math
from pathlib import Path

import numpy as np

from podium import PodiumError
from podium.competition.load import Competition
from podium.metrics import METRICS
from podium.submissions.held_out import collect_held_out
from podium.terminal import duration, say, table
from podium.training.run_folder import Run, find_runs

NOT_LEARNED = ("running_mean", "running_var", "num_batches_tracked")  # tensors of batch norm


def compare(competition: Competition, root: Path, names: list[str] | None = None) -> str:
    """Returns a table of the runs, the best first, and a table of how often their predicted classes differ."""
    runs, metric = find_runs(competition.slug, root, names), competition.metric
    scores = {run: [run.score(fold, metric) for fold in run.finished()] for run in runs}
    runs.sort(key=lambda run: -METRICS[metric]().better * float(np.mean(scores[run])))
    header = ["run", "model", "folds", metric, "±", "parameters", "images/s", "training"]
    tables = [table(header, [[*_scores_of(run, scores[run]), *_costs_of(run)] for run in runs])]
    if len(runs) > 1:
        header = ["disagree", *(str(number) for number in range(1, len(runs) + 1))]
        rows = [
            [f"{number} {run.name}", *(_disagreement(run, partner) for partner in runs)]
            for number, run in enumerate(runs, 1)
        ]
        tables.append(table(header, rows))
    return "\n\n".join(tables)


def _scores_of(run: Run, scores: list[float]) -> list[str]:
    folds = f"{len(scores)} of {run.recipe['folds']}"
    spread = f"{np.std(scores, ddof=1):.5f}" if len(scores) > 1 else ""
    return [run.name, str(run.recipe.get("model")), folds, f"{np.mean(scores):.5f}", spread]


def _costs_of(run: Run) -> list[str]:
    """Returns the parameters, the images/s of the last epoch, and the time of all folds with their validation."""
    first_fold = run.finished()[0]
    try:
        histories = [run.history(fold) for fold in run.finished()]
        rate = np.median([epochs[-1].images_per_s for epochs in histories])
        seconds = sum(epoch.seconds + epoch.validation_seconds for epochs in histories for epoch in epochs)
        costs = [f"{rate:,.1f}", duration(seconds)]
    except (PodiumError, LookupError, TypeError) as error:
        say(f"podium: warning: {run.path}: {error}")
        costs = ["?", "?"]
    return [f"{_count_parameters(run.fold_folder(first_fold) / 'model.safetensors') / 1e6:,.1f} M", *costs]


def _count_parameters(path: Path) -> int:
    """Reads only the file's header."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            learned = [name for name in file.keys() if not name.endswith(NOT_LEARNED)]  # noqa: SIM118
            return sum(math.prod(file.get_slice(name).get_shape()) for name in learned)
    except (SafetensorError, OSError) as error:
        raise PodiumError(
            f"{path}: cannot be read ({error}); restore it, or delete that fold and train it again"
        ) from None


def _disagreement(run: Run, partner: Run) -> str:
    if run == partner:
        return ""
    try:
        held_out = collect_held_out([run, partner], run.out_of_fold(run.finished()[0]).classes)
    except PodiumError:  # their classes differ
        return "?"
    if not len(held_out):
        return "?"
    run_classes, partner_classes = held_out.probs.argmax(2)
    return f"{np.mean(run_classes != partner_classes):.2%}"
