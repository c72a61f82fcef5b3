"""Compares the runs of a competition: their scores, their costs, and how often each pair of them disagrees.

    podium compare [-c SLUG] [--runs A B | --except A B] [--json | --csv]

Reads runs/<slug>/*/ and submissions/<slug>/history.csv. Runs with similar scores that often disagree gain most from a
blend. comparison_text.py makes tables for people from what this module returns.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import progress_bar
from podium.blending.gain import gain_of
from podium.blending.held_out import HeldOut, collect_held_out
from podium.blending.pool_images import fold_scores, pool_held_out
from podium.blending.select_runs import OTHER_CLASSES, find_reasons, warn_of_changed_data
from podium.comparing.pair_tests import correct, mcnemar
from podium.comparing.run_costs import costs_of
from podium.competition.load import Competition
from podium.folds.folds_csv import read_groups
from podium.options.recipe import KNOBS, NEUTRAL, describe_options, recorded_values, what_is_recorded
from podium.saved_runs.doubts import warn_of_doubts
from podium.saved_runs.run_folder import Run, find_runs
from podium.submissions.kaggle_scores import find_public_scores
from podium.tasks.metrics import METRICS, evaluate


def compare_runs(
    competition: Competition, names: list[str] | None = None, except_names: list[str] | None = None
) -> pd.DataFrame:
    """Returns a row for each run: first those that a plain submission would blend, then the others; the best first.

    Scores are those of the images that all runs of the first kind held out; another run is scored on the images that it
    and the best run held out. `gain` is the score minus that of the best run, positive if the run is better; with 95 %
    probability it lies between `gain_low` and `gain_high`. `p` is McNemar's p-value of the run and the best one,
    corrected for all runs. The labels are those of today (held_out.py).
    """
    runs, metric = find_runs(competition.slug, competition.root, names, except_names), competition.metric
    reasons, groups = find_reasons(runs, competition), read_groups(competition)
    public_scores = find_public_scores(runs, competition.root / "submissions" / competition.slug)
    complete = [run for run in runs if run not in reasons]
    classes = complete[0].out_of_fold(complete[0].finished()[0], competition.classes).classes
    labels = competition.label_of
    shared = pool_held_out(collect_held_out(complete, classes, groups, labels), competition)
    best = _position_of_best(shared, metric)
    warn_of_changed_data(competition, runs)
    for run in runs:
        warn_of_doubts(run)
    rows = []
    for run in progress_bar(runs, desc="comparing", unit="run"):
        facts = {"run": run.name, "left_out": reasons.get(run, ""), "public_score": public_scores.get(run)}
        pair = None
        if run in complete:
            pair = _pair_of(shared, best, complete.index(run))
        elif reasons[run] != OTHER_CLASSES:
            pair = pool_held_out(collect_held_out([complete[best], run], classes, groups, labels), competition)
        rows.append(facts | _recipe_of(run) | _scores_of(run, pair, competition, labels) | costs_of(run))
    table = pd.DataFrame(rows)
    keys = {"is_left_out": table["left_out"] != "", "distance": -METRICS[metric]().better * table["score"]}
    order = ["is_left_out", "distance", "log_loss"]
    is_tested = table["p"].notna() & (table["run"] != complete[best].name)
    table["p"] = pd.Series(correct(table["p"][is_tested].to_list()), table.index[is_tested], float)
    return table.assign(**keys).sort_values(order, ignore_index=True)[list(COLUMNS)]


COLUMNS = (
    *("run", "left_out", "model", "folds", "folds_in_all", "metric", "score", "fold_spread", "log_loss", "images"),
    *("gain", "gain_low", "gain_high", "p", "public_score", "lr", "image_size", "epochs", "seed", "linear"),
    *(
        "start",
        "loss",
        "optimizer",
        "level",
        "augment",
        "views",
        "is_corrected",
        "soup",
        "moves",
        "parameters",
        "multiply_adds",
        "images_per_s",
        "predicted_per_s",
        "memory_mb",
        "seconds",
        "lr_least",
        "lr_most",
    ),
)


def _position_of_best(held_out: HeldOut, metric: str) -> int:
    """Returns the position of the run with the best score; the lowest loss decides between equal ones."""
    if not len(held_out):
        return 0

    loss = held_out.targets.task.loss

    def merit(number: int) -> tuple[float, float]:
        score, loss_score = (evaluate(name, held_out.targets, held_out.probs[number]) for name in (metric, loss))
        return float(np.nan_to_num(METRICS[metric]().better * score, nan=-np.inf)), -loss_score

    return max(range(len(held_out.probs)), key=merit)


def _pair_of(held_out: HeldOut, first: int, second: int) -> HeldOut:
    """Returns two of the runs, or one of them alone, without a copy of their probabilities."""
    probs, step = held_out.probs, second - first
    return replace(held_out, probs=probs[first::step][:2] if step else probs[first : first + 1])


def _recipe_of(run: Run) -> dict[str, Any]:
    if run.imported:  # nobody knows its recipe
        known = {
            "model": run.recipe["model"],
            "moves": str(run.imported.get("note", "")),
            "folds_in_all": run.recipe["folds"],
        }
        blank = dict.fromkeys(("image_size", "epochs", "seed", "linear", "start", "loss", "optimizer", "level"), "")
        return blank | {"augment": "", "views": "", "soup": "", "lr": math.nan, "is_corrected": False} | known
    names = (
        *("model", "lr", "image_size", "epochs", "seed", "linear", "start", "loss", "optimizer", "level"),
        *("augment", "views"),
    )
    facts = {
        "folds_in_all": run.recipe["folds"],
        "is_corrected": bool(run.recipe.get("corrections_sha256")),
        "soup": "+".join(run.ingredients),
        "moves": "" if run.ingredients else _moves_of(run),
    }
    return recorded_values(run.recipe, names) | facts


def _moves_of(run: Run) -> str:
    """Returns what a run has learned from, and how, beside the usual."""
    names = [name for name, knob in KNOBS.items() if knob.is_move]
    moves = {name: value for name, value in recorded_values(run.recipe, names).items() if value != NEUTRAL[name]}
    joined = [
        what_is_recorded(key) for key in ("extra_sha256", "unlabelled_sha256", "also_sha256") if run.recipe.get(key)
    ]
    return ", ".join(filter(None, [describe_options(moves), *joined]))


def _scores_of(run: Run, pair: HeldOut | None, competition: Competition, labels: Mapping[str, str]) -> dict[str, Any]:
    """Returns the scores of the last run of the pair, and its gain over the first, which may be itself; else NaN."""
    metric = competition.metric
    scores_of_folds = fold_scores(run, competition, labels)
    values = {
        "metric": metric,
        "folds": len(scores_of_folds),
        "fold_spread": float(np.std(scores_of_folds, ddof=1)) if len(scores_of_folds) > 1 else math.nan,
        "images": len(pair or ()),
    }
    if not pair:
        return values | dict.fromkeys(("score", "log_loss", "gain", "gain_low", "gain_high", "p"), math.nan)
    gain = gain_of(pair, pair.probs[0], pair.probs[-1], metric)
    return values | {
        "score": gain.score,
        "log_loss": evaluate("log_loss", pair.targets, pair.probs[-1]) if pair.targets.task.are_labels else math.nan,
        "gain": gain.gain,
        "gain_low": gain.interval[0],
        "gain_high": gain.interval[1],
        "p": mcnemar(pair)[2] if len(pair.probs) > 1 else 1.0,
    }


def find_disagreements(slug: str, root: Path, names: list[str]) -> pd.DataFrame:
    """Returns the share of the images of which two runs predict different classes; NaN if they share no image."""
    runs = find_runs(slug, root, names)
    shares = [[_disagreement(run, partner) for partner in runs] for run in runs]
    return pd.DataFrame(shares, index=names, columns=names)


def _disagreement(run: Run, partner: Run) -> float:
    if run == partner:
        return 0.0
    try:
        held_out = collect_held_out([run, partner], run.out_of_fold(run.finished()[0]).classes)
    except PodiumError:  # their classes differ
        return math.nan
    if not len(held_out):
        return math.nan
    targets = held_out.targets
    if not targets.task.are_labels:
        return math.nan
    answers, partner_answers = targets.answers(held_out.probs)
    differs = answers != partner_answers
    return float(differs.mean() if differs.ndim == 1 else differs.any(1).mean())
