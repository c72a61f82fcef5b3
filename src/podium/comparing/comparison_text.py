"""Formats a comparison of runs for people: scores, costs, recipes, and what the pairs differ in, 120 columns wide.

`podium compare` prints it. Reads and writes no files.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd

from podium.basics.terminal import amount, duration, plural, table
from podium.comparing.compare import find_disagreements
from podium.comparing.pair_tests import compare_pairs
from podium.competition.load import Competition
from podium.saved_runs.imported_runs import MODEL as IMPORTED
from podium.tasks.metrics import calibrates
from podium.tasks.task import ONE_LABEL, Task

WIDTH = 120  # columns
LONGEST_NAME = 19  # letters
AS_PREDICTED = "as predicted; blends and `compete` show it calibrated: as sure as held-out images say that it is right"
MOST_RUNS = 10  # that fit into the table of disagreements
MOST_RUNS_IN_PAIRS = 5  # if there are more, only the pairs with the best one are tested


def compare_as_text(competition: Competition, runs: pd.DataFrame) -> str:
    """Returns the tables of what compare_runs returns, and of the pairs."""
    shown = list(runs["run"].head(MOST_RUNS))
    disagreements = find_disagreements(competition.slug, competition.root, shown)
    only_best = len(runs) > MOST_RUNS_IN_PAIRS
    names, labels = list(runs["run"]), competition.label_of
    pairs = compare_pairs(competition.slug, competition.root, names, only_best, labels)
    return describe_comparison(runs, disagreements, pairs, competition.task)


def describe_comparison(
    runs: pd.DataFrame, disagreements: pd.DataFrame, pairs: pd.DataFrame, task: Task = ONE_LABEL
) -> str:
    """Returns the tables of what compare.py and pair_tests.py return; the runs are in the same order."""
    short = shortened(list(runs["run"]))
    rows = [row._asdict() | {"run": short[row.run]} for row in runs.itertuples(index=False)]
    tables = [_scores_table(rows, task), _costs_table(rows), _recipes_table(rows)]
    if len(rows) > 1:
        more = f"\n(the first {len(disagreements)} of {len(rows)} runs)" if len(rows) > len(disagreements) else ""
        tables.append(_disagreements_table(disagreements, short) + more)
    if len(pairs):
        tables.append(_pairs_table(pairs, short, task))
    return "\n\n".join(tables)


def _scores_table(rows: list[dict[str, Any]], task: Task) -> str:
    """Columns that say nothing are not shown."""
    metric = rows[0]["metric"]
    columns = {
        "run": [row["run"] for row in rows],
        "folds": [f"{row['folds']} of {row['folds_in_all']}" for row in rows],
        "images": [f"{row['images']:,}" for row in rows],
        metric: [_number(row["score"]) for row in rows],
        "±": ["" if pd.isna(row["fold_spread"]) else f"{row['fold_spread']:z.4f}" for row in rows],  # over the folds
        "log loss": [_number(row["log_loss"]) for row in rows],
        "worse than best": ["best", *(_distance_from_best(row) for row in rows[1:])],
        "Kaggle": [_number(row["public_score"]) for row in rows],
        "left out": [row["left_out"] for row in rows],
    }
    is_shown = {
        "±": any(columns["±"]),
        "images": len(set(columns["images"])) > 1,
        "log loss": metric != "log_loss" and any(columns["log loss"]),
        "worse than best": len(rows) > 1,
        "Kaggle": any(columns["Kaggle"]),
        "left out": any(columns["left out"]),
    }
    shown = {name: cells for name, cells in columns.items() if is_shown.get(name, True)}
    text = table(list(shown), zip(*shown.values(), strict=True))
    if is_shown["±"]:
        text += "\n±: standard deviation of the folds' scores"
    if calibrates(metric, task) or "log loss" in shown:
        text += f"\n{metric if calibrates(metric, task) else 'log loss'}: {AS_PREDICTED}"
    if len(rows) > 1:
        text += (
            "\nworse than best: 95 % interval of the difference on these images, for each run alone (not clearly: it"
            "\nmay be chance); another seed of the same recipe may differ as much"
        )
    return text


def _distance_from_best(row: dict[str, Any]) -> str:
    low, high = row["gain_low"], row["gain_high"]
    if np.isnan(low):
        return ""
    if high < 0:
        return f"{-high:z.4f} to {-low:z.4f}"
    return "no, better" if low > 0 else "not clearly"


def _costs_table(rows: list[dict[str, Any]]) -> str:
    header = ["run", "size", "params", "multiply-adds", "train img/s", "predict img/s", "memory", "time"]
    text = table(header, map(_costs_of, rows))
    notes = (
        "img/s: images per second; memory: the most of the process, on a GPU the most of its tensors;"
        "\ntime: training and validation of all folds; ?: the run's files do not tell"
    )
    return f"{text}\n{notes}"


def _costs_of(row: dict[str, Any]) -> list[object]:
    return [
        row["run"],
        row["image_size"],
        _unless_unknown(row["parameters"], amount),
        _unless_unknown(row["multiply_adds"], amount),
        _unless_unknown(row["images_per_s"], "{:,.1f}".format),
        _unless_unknown(row["predicted_per_s"], "{:,.0f}".format),
        _unless_unknown(row["memory_mb"], "{:,.0f} MB".format),
        _unless_unknown(row["seconds"], duration),
    ]


def _unless_unknown(value: float, describe: Callable[[float], str]) -> str:
    return "?" if pd.isna(value) else describe(value)


def _recipes_table(rows: list[dict[str, Any]]) -> str:
    names = ("optimizer", "level", "views", "is_corrected")
    trained = [row for row in rows if row["model"] != IMPORTED]
    differing = {name for name in names if len({row[name] for row in trained}) > 1}
    header = ["run", "model", "lr", "epochs", "also"]
    cells = [_recipe_of(row) for row in rows]
    rest = WIDTH - len(table(header[:-1], cells, text_columns=2).partition("\n")[0]) - 2
    lines: list[Sequence[object]] = []
    for own, row in zip(cells, rows, strict=True):
        first, *more = wrap(_notes_on(row, differing), max(rest, len("corrected labels"))) or [""]
        lines += [[*own, first], *([*[""] * len(own), line] for line in more)]
    return table(header, lines, text_columns=2)


def _recipe_of(row: dict[str, Any]) -> list[object]:
    has_no_steps = bool(row["linear"] or row["soup"])
    return [
        row["run"],
        row["model"],
        "" if pd.isna(row["lr"]) or has_no_steps else _trained_rate(row),
        "" if has_no_steps else row["epochs"],
    ]


def _is_lowered(row: dict[str, Any]) -> bool:
    """Returns whether a fold has trained at a lower learning rate than the recipe's."""
    return not (row["linear"] or row["soup"] or pd.isna(row["lr"])) and row["lr_least"] < row["lr"]


def _trained_rate(row: dict[str, Any]) -> str:
    """Returns the learning rate of the folds, which may be lower than the recipe's."""
    if pd.isna(row["lr_least"]):
        return f"{row['lr']:g}"
    return " to ".join(dict.fromkeys(f"{row[name]:g}" for name in ("lr_least", "lr_most")))


def _notes_on(row: dict[str, Any], differing: Collection[str]) -> str:
    """Returns what else distinguishes the run's recipe; of the options `differing`, what is not the default."""
    if row["model"] == IMPORTED:
        return str(row["moves"])
    notes = {
        "linear": bool(row["linear"]),
        f"lr lowered from {row['lr']:g}": _is_lowered(row),
        f"from {row['start']}": bool(row["start"]),
        f"{row['loss']} loss": row["loss"] != "cross_entropy",
        f"augment {row['augment']}": row["augment"] != "none",
        f"views {row['views']}": "views" in differing,
        str(row["optimizer"]): "optimizer" in differing and not row["linear"],
        f"level {row['level']}": "level" in differing and not row["linear"],
        f"soup of {row['soup']}": bool(row["soup"]),
        row["moves"]: bool(row["moves"]),
        "corrected labels": "is_corrected" in differing and row["is_corrected"],
        f"seed {row['seed']}": bool(row["seed"]),
    }
    return ", ".join(note for note, applies in notes.items() if applies)


def _disagreements_table(disagreements: pd.DataFrame, short: Mapping[str, str]) -> str:
    header = ["disagree", *(str(number) for number in range(1, len(disagreements) + 1))]
    rows = []
    for number, (name, *shares) in enumerate(disagreements.itertuples(name=None), 1):
        cells = ["?" if np.isnan(share) else f"{share:.2%}" for share in shares]
        cells[number - 1] = ""  # of the run and itself
        rows.append([f"{number} {short[name]}", *cells])
    return table(header, rows)


def _pairs_table(pairs: pd.DataFrame, short: Mapping[str, str], task: Task) -> str:
    rows = [
        [short[pair.run], short[pair.other], pair.only_run, pair.only_other, chance(pair.p_corrected)]
        for pair in pairs.itertuples()
    ]
    counted = ("only A right", "only B right")
    explained = "McNemar's test, corrected for {}; below 0.05, one of the two is more accurate"
    if not task.are_labels:
        counted = ("A closer", "B closer")
        explained = (
            "sign test, corrected for {}; below 0.05, one of the two is closer more often"
            "\ncloser: images whose numbers this run misses by less, however little"
        )
    text = table(["run A", "run B", *counted, "p"], rows, text_columns=2)
    return f"{text}\np: {explained.format(plural(len(pairs), 'pair'))}"


def chance(p: float) -> str:
    return "< 0.0001" if p < 1e-4 else f"{p:z.4f}"


def _number(value: float | None) -> str:
    return "" if pd.isna(value) else f"{value:z.5f}"


def shortened(names: Sequence[str]) -> dict[str, str]:
    """Keeps the start and the end of long names, as many letters as tell all of them apart."""
    for longest in range(LONGEST_NAME, max(map(len, names), default=0) + 1):
        half = (longest - 3) // 2
        short = {name: name if len(name) <= longest else f"{name[:half]}...{name[-half:]}" for name in names}
        if len(set(short.values())) == len(set(names)):
            return short
    return dict(zip(names, names, strict=True))
