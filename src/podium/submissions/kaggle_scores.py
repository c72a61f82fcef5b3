"""Reads Kaggle's scores of a competition's submissions from submissions/<slug>/history.csv.

kaggle/upload_history.py writes that file.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import say
from podium.competition.find.csv_files import read_table
from podium.saved_runs.run_folder import Run
from podium.submissions.lineage import read_lineage

HISTORY = "history.csv"  # beside the submissions
COLUMNS = (
    *("date", "file", "sha256", "message", "status", "public_score", "private_score"),
    *("rank_today", "submissions_today", "left_today", "ref"),
)


def read_history(history: Path) -> list[dict[str, str]]:
    """Returns a row for each submission that Kaggle has scored; none if there is no such file."""
    if not history.exists():
        return []
    table = read_table(history, "move it away")
    if tuple(table.columns) != COLUMNS:
        raise PodiumError(f"{history} has other columns than Podium's; move it away and run the same command again")
    return [dict(zip(COLUMNS, fields, strict=True)) for fields in table.itertuples(index=False, name=None)]


def find_public_scores(runs: Sequence[Run], submissions: Path) -> dict[Run, float]:
    """Returns the public scores of runs that were submitted alone, with the weights that they have today.

    Of several such submissions of a run, the last one counts.
    """
    scores: dict[Run, float] = {}
    try:
        rows = read_history(submissions / HISTORY)
    except PodiumError as error:
        say(f"podium: warning: {error}")
        return {}
    by_name = {run.name: run for run in runs}
    for row in rows:
        with suppress(PodiumError, ValueError):  # a lineage or a score that is missing
            lineage = read_lineage((submissions / row["file"]).with_suffix(".json")).content
            (recorded,) = lineage["runs"]  # ValueError: it is a blend
            run = by_name.get(recorded["run"])
            if run and lineage["sha256"] == row["sha256"] and _has_weights_of(run, recorded["folds"]):
                scores[run] = float(row["public_score"])
    return scores


def _has_weights_of(run: Run, recorded_folds: Sequence[dict[str, Any]]) -> bool:
    finished = run.finished()
    return all(
        fold["fold"] in finished and run.out_of_fold(fold["fold"]).key == fold["weights_sha256"]
        for fold in recorded_folds
    )
