"""Scores a submission against the true labels.

    podium score FILE.csv --solution FILE.csv

Reads both files, pairs their rows by id and prints the score as JSON: that of the metric in the lineage beside the
submission, if there is one. Writes nothing.
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.class_columns import classes_of_columns, put_positive_last
from podium.competition.csv_files import read_table
from podium.competition.find_tables import Table
from podium.competition.labels import find_separator, sort_labels
from podium.metrics import METRICS, evaluate
from podium.terminal import did_you_mean


def score(path: Path, solution: Path, metric: str | None = None, positive: str | None = None) -> str:
    """Returns {"metric": ..., "score": ...} as JSON; `positive` is the class whose probability one column holds."""
    if metric and metric not in METRICS:
        hint = did_you_mean(metric, METRICS, otherwise=f"there are {', '.join(METRICS)}")
        raise PodiumError(f"--metric: no metric '{metric}'; {hint}")
    if metric and METRICS[metric]().wants == "numbers":
        return _score_numbers(path, solution, metric)
    answers, truth = _read_pairs(path, solution)
    labels = truth.iloc[:, 0]
    separator = find_separator(labels)
    if separator:
        several = labels[labels.str.contains(separator, regex=False)].iloc[0]
        raise PodiumError(f"{solution}: '{several}' holds several labels, and podium score compares one for each image")
    has_column_per_class = answers.shape[1] > 1
    metric = metric or ("log_loss" if has_column_per_class else "accuracy")
    if has_column_per_class or METRICS[metric]().wants == "probs":
        classes, probs = _read_probs(answers, labels, path, positive)
    else:
        classes, probs = _read_labels(answers.iloc[:, 0], labels)
    class_indices = {name: i for i, name in enumerate(classes)}
    targets = np.array([class_indices.get(label, -1) for label in labels])
    if (targets < 0).any():
        raise PodiumError(f"{path}: no column for the class '{labels[targets < 0].iloc[0]}' of {solution}; add it")
    value = evaluate(metric, targets, probs)
    if not np.isfinite(value):
        raise PodiumError(f"{path}: {metric} is not defined for these {len(targets):,} answers; use another --metric")
    return json.dumps({"metric": metric, "score": value})


def _score_numbers(path: Path, solution: Path, metric: str) -> str:
    answers, truth = _read_pairs(path, solution)
    missing = [column for column in answers if column not in truth]
    if missing:
        raise PodiumError(f"{solution}: no column '{missing[0]}', which {path} has; add it")
    numbers = []
    for file, table in ((solution, truth[list(answers)]), (path, answers)):
        values = table.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
        is_wrong = ~np.isfinite(values) & ((table != "").to_numpy() | (file == path))  # the truth may be unknown
        if is_wrong.any():
            row, column = np.argwhere(is_wrong)[0]
            cell, name = table.iloc[row, column], table.index[row] if file == path else answers.index[row]
            raise PodiumError(f"{file}: id '{name}' has '{cell}', which is not a number; correct that row")
        numbers.append(values)
    return json.dumps({"metric": metric, "score": evaluate(metric, *numbers)})


def _read_pairs(path: Path, solution: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the submission's answers, indexed by id, and the columns of the truth in the same order."""
    submission, truth = (read_table(file, "check the path") for file in (path, solution))
    for table, file in ((truth, solution), (submission, path)):
        if table.shape[1] < 2:
            raise PodiumError(f"{file}: only one column; give it an id column and an answer column")
    true_ids = truth.iloc[:, 0]
    wanted = set(true_ids)
    id_column = next((column for column in submission if set(submission[column]) == wanted), submission.columns[0])
    for ids, file in ((submission[id_column], path), (true_ids, solution)):
        repeated = ids[ids.duplicated()]
        if len(repeated):
            raise PodiumError(
                f"{file}, line {repeated.index[0]}: id '{repeated.iloc[0]}' appears twice; delete one line"
            )
    answers = submission.set_index(id_column)
    missing = true_ids[~true_ids.isin(answers.index)]
    if len(missing) or len(answers) != len(truth):
        problem = (
            f"'{missing.iloc[0]}' is missing" if len(missing) else f"{len(answers) - len(truth):,} ids are too many"
        )
        raise PodiumError(
            f"{path}: {len(answers):,} ids do not match the {len(truth):,} of {solution}: {problem};"
            " score a submission for the same images"
        )
    return answers.loc[list(true_ids)], truth.iloc[:, 1:]


def _read_labels(answers: pd.Series, labels: pd.Series) -> tuple[list[str], NDArray[np.float64]]:
    """Returns the classes, and each answered label as a probability of one."""
    classes = _classes_of_scale(set(labels) | set(answers))
    class_indices = {name: i for i, name in enumerate(classes)}
    return classes, np.eye(len(classes))[[class_indices[answer] for answer in answers]]


def _read_probs(
    answers: pd.DataFrame, labels: pd.Series, path: Path, positive: str | None
) -> tuple[list[str], NDArray[np.float64]]:
    """Returns the classes and their probabilities, one column each."""
    values = answers.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
    is_number = np.isfinite(values).all(axis=1)
    if not is_number.all():
        raise PodiumError(
            f"{path}: id '{answers.index[is_number.argmin()]}' has a probability that is not a number; correct that row"
        )
    is_wrong = ((values < 0) | (values > 1)).any(axis=1)
    if values.shape[1] > 1:
        is_wrong |= values.sum(axis=1) == 0
    if is_wrong.any():
        row = is_wrong.argmax()
        raise PodiumError(f"{path}: id '{answers.index[row]}' has no probabilities: {values[row]}; correct that row")
    classes = sort_labels(set(labels))
    columns = [str(column) for column in answers.columns]
    if len(columns) > 1:
        return classes_of_columns(columns, classes, Table(path, answers)), values
    if len(classes) != 2:
        raise PodiumError(
            f"{path}: only one column of probabilities for {len(classes)} classes; give it a column for each class"
        )
    card = {"positive": positive} if positive else {}
    return put_positive_last(card, classes, columns[0]), np.hstack([1 - values, values])


def _classes_of_scale(labels: set[str]) -> list[str]:
    """Returns the classes in order, with all numbers between the least and the greatest.

    Metrics that measure distances between classes need the whole scale.
    """
    classes = sort_labels(labels)
    if not all(name.isdecimal() and len(name) < 4 for name in classes):
        return classes
    return sort_labels(labels | {str(number) for number in range(int(classes[0]), int(classes[-1]))})
