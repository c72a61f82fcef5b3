"""Writes the CSV of a submission in the format of the sample submission, if it passes check.py."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.disk import atomic
from podium.basics.errors import PodiumError
from podium.competition.find.csv_files import csv_text
from podium.competition.load import Competition
from podium.submissions.check import check_csv


def render(competition: Competition, probs: NDArray[np.floating[Any]]) -> str:
    """Returns the text of the CSV: the sample's columns, ids and line ends, and labels as train.csv writes them."""
    expected = competition.submission_format
    ids = competition.answer_ids
    if probs.shape != (len(ids), len(competition.classes)):
        raise PodiumError(
            f"predictions of shape {probs.shape} for {len(ids)} rows"
            f" and {len(competition.classes)} classes;"
            " give a row for each of them and a column for each class"
        )
    if not np.isfinite(probs).all():
        row = int(np.flatnonzero(~np.isfinite(probs).all(axis=1))[0])
        raise PodiumError(
            f"the prediction for id '{ids[row]}' is not a number;"
            " leave out the run that predicts it with --runs, or train it again"
        )
    answers = competition.answer_form.write(probs)
    position, style = expected.id_position, expected.line_style
    pairs = zip(ids, answers, strict=True)
    rows = [[*cells[:position], image_id, *cells[position:]] for image_id, cells in pairs]
    if expected.ids:
        row_of = dict(zip(ids, rows, strict=True))
        rows = [row_of[image_id] for image_id in expected.ids]
    if expected.long:
        rows = expected.long.answers_of(answers)
    if expected.counted:
        rows = [[number, *row] for number, row in zip(expected.counted[1], rows, strict=True)]
    return f"{style.header}{style.newline}{csv_text(rows, style.newline, style.delimiter)}"


def write_csv(competition: Competition, path: Path, text: str) -> None:
    """Writes the rendered CSV and checks what was written, before the file gets its name."""
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode())
        check_csv(competition, temporary)
