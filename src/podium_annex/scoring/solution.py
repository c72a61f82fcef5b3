"""Pairs a submission's rows with those of a solution, and finds by name which column is the id, the truth, the Usage.

A solution holds the truth of each row: a label, a 0 or 1 in a column for each class, or numbers. The column Usage says
which rows count for Kaggle's public score, which for the private one, and which (Ignored) for none.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.decide.labels import MARKS, NO_MARKS, TARGET_NAMES
from podium.competition.find.csv_files import read_table
from podium.competition.find.table import take_index
from podium.tasks.task import ONE_LABEL, Targets

USAGE, PUBLIC, PRIVATE, IGNORED = "usage", "public", "private", "ignored"  # in any capital letters


class Pairs(NamedTuple):
    """The rows of both files, in the order of the solution."""

    path: Path  # of the submission
    solution: Path
    answers: pd.DataFrame  # of the submission, by id
    truth: pd.DataFrame  # the columns of the solution that may hold it, by line
    usage: "pd.Series[str] | None"  # of each row, in small letters; None if the solution has no such column


def read_pairs(path: Path, solution: Path) -> Pairs:
    submission, truth = (take_index(read_table(file, "check the path"))[0] for file in (path, solution))
    for table, file in ((truth, solution), (submission, path)):
        if table.shape[1] < 2:
            raise PodiumError(f"{file}: only one column; give it an id column and an answer column")
    true_name, name = _id_columns(submission, truth)
    true_ids = truth[true_name]
    are_in_step = true_ids.tolist() == submission[name].tolist()  # then an id may stand on several rows
    for ids, file in ((submission[name], path), (true_ids, solution)):
        repeated = ids[ids.duplicated()]
        if len(repeated) and not are_in_step:
            raise PodiumError(
                f"{file}, line {repeated.index[0]}: id '{repeated.iloc[0]}' appears twice; delete one line"
            )
    answers = submission.set_index(name)
    missing = true_ids[~true_ids.isin(answers.index)]
    if len(missing) or len(answers) != len(truth):
        problem = (
            f"'{missing.iloc[0]}' is missing" if len(missing) else f"{len(answers) - len(truth):,} ids are too many"
        )
        raise PodiumError(
            f"{path}: {len(answers):,} ids do not match the {len(truth):,} of {solution}: {problem};"
            " score a submission for the same images"
        )
    truth = truth.drop(columns=true_name)
    usage_name = next((column for column in truth if _is_usage(truth[column])), None)
    usage = None if usage_name is None else truth.pop(usage_name).str.lower()
    counts = slice(None) if usage is None else (usage != IGNORED).to_numpy()
    if not truth.shape[1]:
        raise PodiumError(f"{solution}: no column beside the ids and '{usage_name}'; add one with the truth")
    answers = answers if are_in_step else answers.loc[list(true_ids)]
    return Pairs(path, solution, answers[counts], truth[counts], None if usage is None else usage[counts])


def _id_columns(submission: pd.DataFrame, truth: pd.DataFrame) -> tuple[str, str]:
    """Returns the id column of the solution and that of the submission, which hold the same ids.

    One of them comes first, or both have one name and the first column of the solution repeats its cells. Without such
    columns the first ones are taken, so that the error says what differs.
    """
    firsts = str(truth.columns[0]), str(submission.columns[0])
    pairs = [(firsts[0], str(name)) for name in submission] + [(str(name), firsts[1]) for name in truth]
    if not truth[firsts[0]].is_unique:
        pairs += [(str(name), str(name)) for name in truth if name in submission]
    pairs.sort(key=lambda pair: pair[0] != pair[1])
    return next((pair for pair in pairs if _hold_same_ids(truth[pair[0]], submission[pair[1]])), firsts)


def _hold_same_ids(true_ids: "pd.Series[str]", ids: "pd.Series[str]") -> bool:
    return len(true_ids) == len(ids) and true_ids.is_unique and set(true_ids) == set(ids)


def _is_usage(cells: "pd.Series[str]") -> bool:
    return str(cells.name).lower() == USAGE and set(cells.str.lower()) <= {PUBLIC, PRIVATE, IGNORED}


# --- the truth ---------------------------------------------------------------------------------------


def true_marks(pairs: Pairs) -> "pd.DataFrame | None":
    """Returns which classes are true, a column for each of the submission's, if the solution has the same columns."""
    names = list(pairs.answers)
    if len(names) < 2 or not set(names) <= set(pairs.truth):
        return None
    columns = pairs.truth[names]
    is_wrong = ~columns.isin((*MARKS, *NO_MARKS)).all(axis=1)
    if is_wrong.any():
        line = is_wrong.idxmax()
        cell = next(cell for cell in columns.loc[line] if cell not in (*MARKS, *NO_MARKS))
        raise PodiumError(
            f"{pairs.solution}, line {line}: '{cell}' in the column of a class is neither 0 nor 1; correct it, or give"
            " a --metric of numbers, such as rmse"
        )
    return columns.isin(MARKS)


def true_votes(columns: pd.DataFrame, path: Path) -> Targets:
    """Returns the shares of the votes, a column for each class; raises if a row holds anything else, or none."""
    votes = columns.apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    is_wrong = ~(np.isfinite(votes) & (votes >= 0)).all(axis=1) | ~(votes.sum(axis=1) > 0)
    if is_wrong.any():
        raise PodiumError(
            f"{path}: the row of '{columns.index[is_wrong.argmax()]}' does not hold votes, numbers from 0 on of which"
            " one is above it; correct that row, or take a --metric of labels"
        )
    shares = votes / votes.sum(axis=1, keepdims=True)
    return Targets(ONE_LABEL, shares.argmax(axis=1)).with_votes(shares)


def true_labels(pairs: Pairs) -> "pd.Series[str]":
    """Returns the label of each row; raises if one is blank, or if it is not clear which column holds them."""
    labels = label_column(pairs)
    is_blank = labels.str.strip() == ""
    if is_blank.any():
        raise PodiumError(f"{pairs.solution}, line {is_blank.idxmax()}: a blank label; fill it in or delete that line")
    return labels


def label_column(pairs: Pairs) -> "pd.Series[str]":
    truth = pairs.truth
    likely = [*pairs.answers, *TARGET_NAMES] if pairs.answers.shape[1] == 1 else TARGET_NAMES
    if truth.shape[1] == 1:
        return truth.iloc[:, 0]
    if pairs.answers.columns[0] not in truth and truth.isin((*MARKS, *NO_MARKS)).all(axis=None):
        is_marked = truth.isin(MARKS)
        if (is_marked.sum(axis=1) == 1).all():
            return is_marked.idxmax(axis=1)
    spellings = {str(name).lower(): name for name in reversed(truth.columns)}
    column = next((spellings[name.lower()] for name in likely if name.lower() in spellings), None)
    if column is None:
        raise PodiumError(
            f"{pairs.solution}: it is not clear which of the columns {first_few(truth.columns)} holds the truth; give"
            f" it the name of the answer column, '{pairs.answers.columns[0]}'"
        )
    return truth[column]
