"""Scores a submission against the true labels.

podium score FILE.csv --solution FILE.csv
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.csv_files import read_table
from podium.competition.ids_and_labels import Table
from podium.competition.load import sort_labels
from podium.competition.submission_format import classes_of_columns, positive_last
from podium.metrics import METRICS, evaluate


def score(path: Path, solution: Path, metric: str | None = None, positive: str | None = None) -> str:
    """{"metric": ..., "score": ...}: a submission against the true labels, row for row by id."""
    given, truth = (read_table(file, "check the path") for file in (path, solution))
    if truth.shape[1] < 2 or given.shape[1] < 2:
        raise PodiumError(
            f"{solution if truth.shape[1] < 2 else path}: one column only; an id and an answer are needed"
        )
    wanted = set(truth.iloc[:, 0])
    ids = next((column for column in given if set(given[column]) == wanted), given.columns[0])
    given = given[[ids, *given.columns.drop(ids)]]
    for table, file in ((given, path), (truth, solution)):
        twice = table.iloc[:, 0][table.iloc[:, 0].duplicated()]
        if len(twice):
            raise PodiumError(f"{file}, line {twice.index[0]}: id '{twice.iloc[0]}' stands there twice")
    answers = given.set_index(given.columns[0])
    missing = [name for name in truth.iloc[:, 0] if name not in answers.index]
    if missing or len(answers) != len(truth):
        what = f"'{missing[0]}' is missing first" if missing else f"{len(answers) - len(truth):,} are in no row of it"
        raise PodiumError(f"{path}: {len(answers):,} ids do not match the {len(truth):,} of {solution}: {what}")
    answers = answers.loc[list(truth.iloc[:, 0])]
    labels = truth.iloc[:, 1]
    wide = answers.shape[1] > 1
    metric = metric or ("log_loss" if wide else "accuracy")
    if wide or METRICS[metric]().wants == "probs":
        classes, probs = _read_probs(answers, labels, path, positive)
    else:
        classes = _whole_scale(set(labels) | set(answers.iloc[:, 0]))
        index = {name: i for i, name in enumerate(classes)}
        probs = np.eye(len(classes))[[index[name] for name in answers.iloc[:, 0]]]
    index = {name: i for i, name in enumerate(classes)}
    targets = np.array([index.get(name, -1) for name in labels])
    if (targets < 0).any():
        raise PodiumError(f"{path}: no column for the class '{labels[targets < 0].iloc[0]}' of {solution}")
    found = evaluate(metric, targets, probs)
    if not np.isfinite(found):
        raise PodiumError(f"{path}: {metric} says nothing of these {len(targets):,} answers; take another --metric")
    return json.dumps({"metric": metric, "score": found})


def _read_probs(
    answers: pd.DataFrame, labels: pd.Series, path: Path, positive: str | None
) -> tuple[list[str], NDArray[np.float64]]:
    values = answers.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        raise PodiumError(f"{path}: id '{answers.index[row]}' has a probability that is not a number")
    if ((values < 0) | (values > 1)).any() or (values.shape[1] > 1 and (values.sum(axis=1) == 0).any()):
        wrong = (values < 0).any(1) | (values > 1).any(1) | (values.sum(axis=1) == 0)
        raise PodiumError(f"{path}: id '{answers.index[wrong.argmax()]}' has no probabilities: {values[wrong][0]}")
    classes = sort_labels(set(labels))
    if answers.shape[1] > 1:
        return classes_of_columns([str(column) for column in answers.columns], classes, Table(path, answers)), values
    if len(classes) != 2:
        raise PodiumError(f"{path}: one column of probabilities serves two classes, not {len(classes)}")
    return positive_last({"positive": positive} if positive else {}, classes, str(answers.columns[0])), np.hstack(
        [1 - values, values]
    )


def _whole_scale(labels: set[str]) -> list[str]:
    """The classes in order; of numbers all between the least and the greatest, so that distances are right."""
    classes = sort_labels(labels)
    if not all(name.isdecimal() and len(name) < 4 for name in classes):
        return classes
    return sort_labels(labels | {str(number) for number in range(int(classes[0]), int(classes[-1]))})
