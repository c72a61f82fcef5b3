"""A competition's own metric: a function of a file, as Kaggle's metric notebooks define it.

    metric = "metric.py:score"            in the card; the file is below the project's folder
    better = "lower"                      if lower scores are better

    def score(solution: DataFrame, submission: DataFrame, row_id_column_name: str) -> float

Both tables have the columns of the sample submission; `solution` holds the truth in the same form: the label, a 1 for
the true class, or the number. The rows are in the same order, and their ids are numbers.
"""

from __future__ import annotations  # numpy and pandas are imported only where a score is computed

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podium.basics.errors import PodiumError
from podium.options.extensions.extend import call_metric, register_metric_of_file
from podium.options.extensions.extension_files import loaded_extensions
from podium.tasks.metrics import Metric
from podium.tasks.task import TASKS, Targets

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from podium.competition.answer_form import AnswerForm

    Array = NDArray[Any]


def is_metric_of_file(name: Any) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[^:]+\.py:\w+", name) is not None


def announce_metric_of_file(name: str, card: Mapping[str, Any]) -> None:
    """Makes the name a metric of every task; its scores need the form of the submission, which is not known yet."""
    _function_of(name)

    def score(targets: Targets, probs: Any) -> float:
        raise PodiumError(f"{name} needs the files of its competition")

    _register(name, card, "", score)


def use_metric_of_file(name: str, card: Mapping[str, Any], form: AnswerForm, id_column: str, id_position: int) -> None:
    """Makes the function a metric, which gets tables in the form of the submission."""
    function = _function_of(name)

    def score(targets: Targets, probs: Array) -> float:
        is_scaled = targets.task.sums_to_one and form.wants == "probs"
        submission = _table_of(form, probs / probs.sum(1, keepdims=True) if is_scaled else probs)
        solution = _table_of(form.solution_form, _as_probs(targets, len(form.classes)))
        for table in (solution, submission):
            table.insert(id_position, id_column, range(len(table)))
        return call_metric(function, solution, submission, id_column)

    _register(name, card, form.wants, score)


def _register(name: str, card: Mapping[str, Any], wants: str, score: Callable[[Targets, Array], float]) -> None:
    better = -1 if card.get("better") == "lower" else 1
    register_metric_of_file(name, Metric(wants, better, score, -math.inf, math.inf, frozenset(TASKS)))


def _function_of(name: str) -> Callable[..., Any]:
    file, _, function_name = name.partition(":")
    extension = next(extension for extension in loaded_extensions() if extension.name == file.removeprefix("./"))
    function = getattr(sys.modules[extension.module], function_name, None)
    if not callable(function):
        raise PodiumError(f"{extension.path}: no function '{function_name}', which the card's metric names; add it")
    called: Callable[..., Any] = function
    return called


def _as_probs(targets: Targets, count: int) -> Array:
    """Returns the truth as sure predictions."""
    return targets.are_true(count).astype("float64") if targets.task.are_labels else targets.values


def _table_of(form: AnswerForm, predictions: Array) -> pd.DataFrame:
    """Returns what a submission would hold, without ids; labels that are numbers become numbers, as read from a CSV."""
    import pandas as pd

    return pd.DataFrame(dict(zip(form.columns, map(_as_read, form.values(predictions)), strict=True)))


def _as_read(cells: Sequence[Any]) -> pd.Series[Any]:
    import numpy as np
    import pandas as pd

    column = pd.Series(cells, dtype=None if isinstance(cells, np.ndarray) else object)
    numbers = pd.to_numeric(column, errors="coerce")
    return column if numbers.isna().any() else numbers
