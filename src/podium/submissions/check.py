"""Checks a submission: the CSV against the sample submission, and the answers against the classes of training."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import say
from podium.blending.blend import Probs
from podium.blending.pool_images import answer_targets, rows_of
from podium.competition.find.csv_files import read_table
from podium.competition.load import Competition
from podium.tasks.task import ONE_LABEL

LABEL_ANSWERS = ("labels", "ranking")  # submissions that name classes
ANYWAY = "(--anyway writes the submission in any case)"
ADVICE = f"train longer, or choose other runs with --runs {ANYWAY}"
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
    has_columns = list(written.columns) == list(expected.header)
    if not has_columns or not path.read_text("utf-8").startswith(expected.line_style.header):
        raise PodiumError(
            f"{path}: the columns are {list(written.columns)}, not {list(expected.header)};"
            " use the header of the sample submission"
        )


def _check_ids(competition: Competition, path: Path, written: pd.DataFrame) -> None:
    form = competition.submission_format
    ids = list(written[form.id_column])
    expected = form.long.ids if form.long else list(form.ids) or competition.answer_ids
    if ids != expected:
        pairs = enumerate(zip(ids, expected, strict=False))
        differing_rows = (row for row, (written_id, expected_id) in pairs if written_id != expected_id)
        row = next(differing_rows, min(len(ids), len(expected)))
        raise PodiumError(
            f"{path}: its {len(ids)} ids are not the {len(expected)} expected; they differ at row {row + 1} first;"
            " keep the ids of the sample submission and their order"
        )


def _check_answers(competition: Competition, path: Path, written: pd.DataFrame) -> None:
    problem = competition.answer_form.find_problem(competition.submission_format.answer_cells(written))
    if problem:
        raise PodiumError(f"{path}, line {problem[0]}: {problem[1]}")


def advice_on_same_answer(other_images: Sequence[str]) -> str:
    """Returns what to do if all test images get one answer: to train longer does not help where they are others."""
    return f"{'; '.join(other_images)} {ANYWAY}" if other_images else ADVICE


def check_class_shares(
    competition: Competition, probs: Probs, anyway: bool, are_ranks: bool = False, advice: str = ADVICE
) -> None:
    """Raises if all rows get the same answer, unless `anyway`; warns if the classes' shares differ from training.

    `are_ranks`: these are no probabilities, so their means are no shares; the most probable classes still are.
    """
    if not competition.task.are_labels:
        if not anyway and len(probs) > 1:
            _refuse_same_numbers(probs, advice)
        return
    expected = _class_shares(competition)
    wants_labels = competition.submission_format.wants in LABEL_ANSWERS
    answers = competition.answers_of(probs)
    shares = answers.counts(probs.shape[1]) / len(probs) if wants_labels else probs.mean(0)
    if not anyway:
        _refuse_same_answer(competition, probs, shares, expected, advice)
    if are_ranks and not wants_labels:
        return
    deviation = np.sqrt(2 / np.pi * expected * (1 - expected) / len(probs))  # of a share, by chance, on average
    moved = np.abs(shares - expected).sum() / (2 if competition.task.sums_to_one else max(expected.sum(), 1e-9))
    if moved > MAX_SHIFT + deviation.sum():
        largest = np.argsort(-np.abs(shares - expected))[:3]
        numbers = [f"'{competition.classes[k]}' {shares[k]:.1%} instead of {expected[k]:.1%}" for k in largest]
        problem = "the predicted classes are distributed differently from the training labels"
        say(f"podium: warning: {problem}: {', '.join(numbers)}")


def _class_shares(competition: Competition) -> Probs:
    """Returns the share of each class among the training images, or answers: what a row of the submission is for."""
    targets = answer_targets(competition)
    return np.asarray(targets.counts(len(competition.classes)) / len(targets))


def _refuse_same_answer(competition: Competition, probs: Probs, shares: Probs, expected: Probs, advice: str) -> None:
    count, top, rows = len(probs), int(shares.argmax()), rows_of(competition)
    if competition.task is ONE_LABEL:
        if shares[top] * count > count - 0.5 and expected[top] ** count < MIN_CHANCE:
            raise PodiumError(
                f"all {count:,} test {rows} would get the class '{competition.classes[top]}', like {expected[top]:.1%}"
                f" of the training {rows}; {advice}"
            )
    elif count > 1 and (np.ptp(probs, axis=0) < MIN_CHANCE).all():
        raise PodiumError(f"all {count:,} test {rows} would get the same answer; {advice}")


def _refuse_same_numbers(numbers: Probs, advice: str) -> None:
    if (np.ptp(numbers, axis=0) <= MIN_CHANCE * np.abs(numbers).max(axis=0)).all():
        raise PodiumError(f"all {len(numbers):,} test images would get the same answer; {advice}")
