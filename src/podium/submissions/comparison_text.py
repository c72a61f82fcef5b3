"""Formats a comparison of runs for people: tables of scores, of costs and of disagreements, 120 columns wide.

`podium compare` prints it. Reads and writes no files.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from podium.competition.load import Competition
from podium.submissions.compare import compare_runs, find_disagreements
from podium.terminal import duration, table

LONGEST_NAME = 21  # letters
MOST_RUNS = 10  # that fit into the table of disagreements


def compare_as_text(
    competition: Competition, root: Path, names: list[str] | None = None, except_names: list[str] | None = None
) -> str:
    """Compares the runs and returns the tables."""
    runs = compare_runs(competition, root, names, except_names)
    disagreements = find_disagreements(competition.slug, root, list(runs["run"].head(MOST_RUNS)))
    return describe_comparison(runs, disagreements)


def describe_comparison(runs: pd.DataFrame, disagreements: pd.DataFrame) -> str:
    """Returns the tables of what compare.py returns; both have the same runs in the same order."""
    rows = [row._asdict() for row in runs.itertuples(index=False)]
    tables = [_scores_table(rows), _costs_table(rows)]
    if len(rows) > 1:
        more = f"\n(the first {len(disagreements)} of {len(rows)} runs)" if len(rows) > len(disagreements) else ""
        tables.append(_disagreements_table(disagreements) + more)
    return "\n\n".join(tables)


def _scores_table(rows: list[dict[str, Any]]) -> str:
    """Columns that say nothing are not shown."""
    metric = rows[0]["metric"]
    columns = {
        "run": [_shortened(row["run"]) for row in rows],
        "folds": [f"{row['folds']} of {row['folds_in_all']}" for row in rows],
        "images": [f"{row['images']:,}" for row in rows],
        metric: [_number(row["score"]) for row in rows],
        "log loss": [_number(row["log_loss"]) for row in rows],
        "worse than best": ["best", *(_distance_from_best(row) for row in rows[1:])],
        "Kaggle": [_number(row["public_score"]) for row in rows],
        "left out": [row["left_out"] for row in rows],
    }
    is_shown = {
        "images": len(set(columns["images"])) > 1,
        "log loss": metric != "log_loss",
        "worse than best": len(rows) > 1,
        "Kaggle": any(columns["Kaggle"]),
        "left out": any(columns["left out"]),
    }
    shown = {name: cells for name, cells in columns.items() if is_shown.get(name, True)}
    text = table(list(shown), zip(*shown.values(), strict=True))
    if len(rows) > 1:
        text += (
            "\nworse than best: 95 % interval of the difference on these images (not clearly: it may be chance);"
            "\nanother seed of the same recipe may differ as much"
        )
    return text


def _distance_from_best(row: dict[str, Any]) -> str:
    low, high = row["gain_low"], row["gain_high"]
    if np.isnan(low):
        return ""
    if high < 0:
        return f"{-high:.4f} to {-low:.4f}"
    return "no, better" if low > 0 else "not clearly"


def _costs_table(rows: list[dict[str, Any]]) -> str:
    header = ["run", "model", "lr", "size", "epochs", "params", "images/s", "training", "also"]
    return table(header, map(_costs_of, rows))


def _costs_of(row: dict[str, Any]) -> list[object]:
    is_linear = bool(row["linear"])  # then there are no steps
    return [
        _shortened(row["run"]),
        _shortened(str(row["model"])),
        "" if pd.isna(row["lr"]) or is_linear else f"{row['lr']:g}",
        row["image_size"],
        "" if is_linear else row["epochs"],
        f"{row['parameters'] / 1e6:,.1f} M",
        "?" if np.isnan(row["images_per_s"]) else f"{row['images_per_s']:,.1f}",
        "?" if np.isnan(row["seconds"]) else duration(row["seconds"]),
        _notes_on(row),
    ]


def _notes_on(row: dict[str, Any]) -> str:
    """Returns what else distinguishes the run's recipe."""
    notes = {
        "linear": bool(row["linear"]),
        f"from {row['start']}": bool(row["start"]),
        f"{row['loss']} loss": row["loss"] != "cross_entropy",
        f"seed {row['seed']}": bool(row["seed"]),
    }
    return ", ".join(note for note, applies in notes.items() if applies)


def _disagreements_table(disagreements: pd.DataFrame) -> str:
    header = ["disagree", *(str(number) for number in range(1, len(disagreements) + 1))]
    rows = []
    for number, (name, *shares) in enumerate(disagreements.itertuples(name=None), 1):
        cells = ["?" if np.isnan(share) else f"{share:.2%}" for share in shares]
        cells[number - 1] = ""  # of the run and itself
        rows.append([f"{number} {_shortened(name)}", *cells])
    return table(header, rows)


def _number(value: float | None) -> str:
    return "" if pd.isna(value) else f"{value:.5f}"


def _shortened(name: str) -> str:
    """Keeps the start and the end of a long name: names of one model often differ at the end."""
    half = (LONGEST_NAME - 3) // 2
    return name if len(name) <= LONGEST_NAME else f"{name[:half]}...{name[-half:]}"
