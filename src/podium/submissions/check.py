"""Checks a submission: the CSV against the sample submission, and the answers against the classes of training."""

from pathlib import Path

import numpy as np
import pandas as pd

from podium import PodiumError
from podium.competition.csv_files import read_table
from podium.competition.load import Competition
from podium.submissions.blend import Probs
from podium.submissions.predict_test import class_frequencies
from podium.terminal import first_few, say

MIN_CHANCE = 1e-6  # if one class for all test images is less likely than this, it is treated as a mistake
MAX_SHIFT = 0.1  # share of the answers that may be in other classes than in training, beyond chance


def check_csv(competition: Competition, path: Path) -> None:
    """Raises unless Kaggle would accept the CSV."""
    written = read_table(path)
    _check_header(competition, path, written)
    _check_ids(competition, path, written)
    _check_answers(competition, path, written)


def _check_header(competition: Competition, path: Path, written: pd.DataFrame) -> None:
    expected = competition.submission_format
    has_columns = list(written.columns) == list(expected.columns)
    if not has_columns or not path.read_text("utf-8").startswith(expected.line_style.header):
        raise PodiumError(
            f"{path}: the columns are {list(written.columns)}, not {list(expected.columns)};"
            " use the header of the sample submission"
        )


def _check_ids(competition: Competition, path: Path, written: pd.DataFrame) -> None:
    ids, expected = list(written.iloc[:, competition.submission_format.id_position]), list(competition.test["id"])
    if ids != expected:
        pairs = enumerate(zip(ids, expected, strict=False))
        differing_rows = (row for row, (written_id, expected_id) in pairs if written_id != expected_id)
        row = next(differing_rows, min(len(ids), len(expected)))
        raise PodiumError(
            f"{path}: its {len(ids)} ids are not the {len(expected)} expected; they differ at row {row + 1} first;"
            " keep the ids of the sample submission and their order"
        )


def _check_answers(competition: Competition, path: Path, written: pd.DataFrame) -> None:
    expected = competition.submission_format
    for column in expected.answer_columns:
        cells = written[column]
        if expected.wants == "labels":
            wrong = cells[~cells.isin(competition.classes)]
        else:
            values = pd.to_numeric(cells, errors="coerce")
            wrong = cells[~((values >= 0) & (values <= 1))]
        if len(wrong):
            answer, remedy = "class", f"the classes are {first_few(competition.classes)}"
            if expected.wants == "probs":
                answer, remedy = "probability", "write a number from 0 to 1"
            raise PodiumError(f"{path}, line {wrong.index[0]}: '{wrong.iloc[0]}' is not a {answer}; {remedy}")
    if len(expected.answer_columns) > 1:
        sums = written[list(expected.answer_columns)].astype(float).sum(axis=1)
        wrong = sums[(sums - 1).abs() > 1e-5]
        if len(wrong):
            raise PodiumError(
                f"{path}, line {wrong.index[0]}: the probabilities sum to {wrong.iloc[0]:.6g}, not 1;"
                " divide them by their sum"
            )


def check_class_shares(competition: Competition, probs: Probs, anyway: bool) -> None:
    """Raises if all images get the same class, unless `anyway`; warns if their shares differ from training."""
    expected, count = class_frequencies(competition, competition.classes).astype(np.float64), len(probs)
    if competition.submission_format.wants == "labels":
        shares = np.bincount(probs.argmax(1), minlength=probs.shape[1]) / count
    else:
        shares = probs.mean(0)
    top = int(shares.argmax())
    if shares[top] * count > count - 0.5 and expected[top] ** count < MIN_CHANCE and not anyway:
        raise PodiumError(
            f"all {count:,} test images would get the class '{competition.classes[top]}', like {expected[top]:.1%}"
            " of the training images; train longer, or choose other runs with --runs (--anyway writes"
            " the submission in any case)"
        )
    deviation = np.sqrt(2 / np.pi * expected * (1 - expected) / count)  # of a share, by chance, on average
    if np.abs(shares - expected).sum() / 2 > MAX_SHIFT + deviation.sum():
        largest = np.argsort(-np.abs(shares - expected))[:3]
        numbers = [f"'{competition.classes[k]}' {shares[k]:.1%} instead of {expected[k]:.1%}" for k in largest]
        problem = "the predicted classes are distributed differently from the training labels"
        say(f"podium: warning: {problem}: {', '.join(numbers)}")
