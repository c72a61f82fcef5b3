"""Scores a submission against the true labels.

    podium score FILE.csv --solution FILE.csv

Reads both files, pairs their rows by id and prints the score as JSON: that of the metric in the lineage beside the
submission, if there is one. Writes nothing.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean, say
from podium.competition.load import Competition
from podium.tasks.metrics import METRICS, evaluate
from podium_annex.scoring.read_with_form import read_with_form
from podium_annex.scoring.read_without_form import Comparable, read_without_form
from podium_annex.scoring.solution import PRIVATE, PUBLIC, read_pairs


def score(
    path: Path,
    solution: Path,
    metric: str | None = None,
    positive: str | None = None,
    competition: Competition | None = None,
    recorded: str | None = None,
) -> str:
    """Returns {"metric": ..., "score": ...} as JSON; `positive` is the class whose probability one column holds.

    Without a `metric`, the `recorded` one of the lineage is taken, unless its file is not loaded.
    The form of the answers is that of the competition; without one, the cells show it.
    If the solution has a column Usage, "public" and "private" are the scores of its parts; without a value, null.
    """
    if metric and metric not in METRICS:
        hint = did_you_mean(metric, METRICS, otherwise=f"there are {', '.join(METRICS)}")
        raise PodiumError(f"--metric: no metric '{metric}'; {hint}")
    metric = metric or (recorded if recorded in METRICS else None)
    pairs = read_pairs(path, solution)
    answers = read_with_form(pairs, competition, metric) if competition else read_without_form(pairs, metric, positive)
    if recorded and not metric:
        say(
            f"podium: warning: {path.with_suffix('.json')} names the metric {recorded}, which no loaded file defines,"
            f" so {answers.metric} is used: name with -c the competition whose card loads that file and whose data are"
            " here, or choose another --metric"
        )
    value = evaluate(*answers)
    if not np.isfinite(value):
        count, name = len(answers.targets), answers.metric
        raise PodiumError(f"{path}: {name} is not defined for these {count:,} answers; use another --metric")
    scores: dict[str, str | float | None] = {"metric": answers.metric, "score": value}
    if pairs.usage is not None:
        usage = _of_images(pairs.usage.set_axis(pairs.answers.index), competition)
        scores |= {part: _score_part(answers, part, (usage == part).to_numpy()) for part in (PUBLIC, PRIVATE)}
    return json.dumps(scores)


def _of_images(usage: "pd.Series[str]", competition: Competition | None) -> "pd.Series[str]":
    """Returns the Usage of each image, which several rows of a long submission may be of."""
    long = competition.submission_format.long if competition else None
    return long.widen(usage).bfill(axis=1).iloc[:, 0] if long else usage


def _score_part(answers: Comparable, part: str, is_in_part: "np.typing.NDArray[np.bool_]") -> float | None:
    count = int(is_in_part.sum())
    value = evaluate(answers.metric, answers.targets[is_in_part], answers.probs[is_in_part]) if count else np.nan
    if np.isfinite(value):
        return value
    say(f"podium: warning: {answers.metric} is not defined for the {count:,} answers of the {part} part")
    return None
