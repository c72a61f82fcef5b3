"""Writes the CSV of a submission in the format of the sample submission, if it passes check.py."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.competition.csv_files import csv_text
from podium.competition.load import Competition
from podium.disk import atomic
from podium.errors import PodiumError
from podium.submissions.check import check_csv
from podium.task import ONE_LABEL, SEVERAL_TARGETS, answers_of, column_and_label, parts_by_column


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
    if competition.task is SEVERAL_TARGETS:
        by_column = parts_by_column(competition.classes)
        parts = [by_column[column] for column in expected.answer_columns]
        labels = [column_and_label(name)[1] for name in competition.classes]
        answers = [[labels[part.start + row[part].argmax()] for part in parts] for row in probs]
    elif expected.wants == "labels":
        answers = [[answer] for answer in label_answers(competition, probs)]
        if expected.has_confidence:
            answers = [[f"{label} {prob:.6g}"] for (label,), prob in zip(answers, probs.max(axis=1), strict=True)]
    elif expected.wants == "ranking":
        order = (-probs).argsort(axis=1, kind="stable")[:, : expected.places].tolist()
        answers = [[expected.separator.join(competition.classes[number] for number in row)] for row in order]
    else:
        outputs = expected.outputs_in_columns(competition.classes)
        answers = [[f"{prob:.9g}" for prob in row] for row in probs[:, outputs]]
    position, style = expected.id_position, expected.line_style
    pairs = zip(ids, answers, strict=True)
    rows = [[*cells[:position], image_id, *cells[position:]] for image_id, cells in pairs]
    if expected.long:
        rows = expected.long.answers_of(answers)
    return f"{style.header}{style.newline}{csv_text(rows, style.newline, style.delimiter)}"


def label_answers(competition: Competition, probs: NDArray[np.floating[Any]]) -> list[str]:
    """Returns the most probable class of each image; of several labels, those that are more probable than not.

    If every training image has a label, each image gets its most probable one at least.
    """
    classes = competition.classes
    if competition.task is ONE_LABEL:
        return [classes[best] for best in probs.argmax(axis=1)]
    is_chosen = answers_of(probs, competition.task) > 0
    if (competition.train["target"] != "").all():
        is_chosen[np.arange(len(probs)), probs.argmax(axis=1)] = True
    separator = competition.submission_format.separator
    return [separator.join(classes[number] for number in np.flatnonzero(row)) for row in is_chosen]


def write_csv(competition: Competition, path: Path, text: str) -> None:
    """Writes the rendered CSV and checks what was written, before the file gets its name."""
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode())
        check_csv(competition, temporary)
