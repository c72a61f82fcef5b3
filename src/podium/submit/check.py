"""Writes a submission's text as the sample asks, and checks it: against the sample, and against common sense."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.csv_files import csv_text, read_table
from podium.competition.load import Competition
from podium.submit.blend import Probs
from podium.submit.test_predictions import class_frequencies
from podium.terminal import say

RARE = 1e-6  # the chance of an accident that is taken for a mistake
ASTRAY = 0.1  # of the answers, in other classes than training lets expect, beyond what chance does


def render(competition: Competition, probs: NDArray[np.floating[Any]]) -> str:
    """The submission's text: the sample's columns, rows and line ends, the labels as train.csv writes them."""
    columns = competition.submission_format
    if probs.shape != (len(competition.test), len(competition.classes)):
        raise PodiumError(f"predictions of shape {probs.shape} for {len(competition.test)} images")
    if not np.isfinite(probs).all():
        row = int(np.flatnonzero(~np.isfinite(probs).all(axis=1))[0])
        raise PodiumError(f"the prediction for id '{competition.test['id'].iloc[row]}' is not a number")
    if columns.wants == "labels":
        cells = [[competition.classes[best]] for best in probs.argmax(axis=1)]
    else:
        wanted = probs[:, 1:] if len(columns.answer_columns) == 1 else probs  # of two classes in one column: the second
        cells = [[f"{value:.9g}" for value in row] for row in wanted]
    at = columns.id_position
    rows = ([*each[:at], name, *each[at:]] for name, each in zip(competition.test["id"], cells, strict=True))
    form = columns.line_style
    return f"{form.header}{form.newline}{csv_text(rows, form.newline, form.delimiter)}"


def check_csv(competition: Competition, path: Path) -> None:
    """Reads a submission back, and refuses it unless Kaggle would take it."""
    expected, written = competition.submission_format, read_table(path)
    if list(written.columns) != list(expected.columns) or not path.read_text("utf-8").startswith(
        expected.line_style.header
    ):
        raise PodiumError(f"{path}: the columns are {list(written.columns)}, not {list(expected.columns)}")
    ids, wanted = list(written.iloc[:, expected.id_position]), list(competition.test["id"])
    if ids != wanted:
        at = next((i for i, (a, b) in enumerate(zip(ids, wanted, strict=False)) if a != b), min(len(ids), len(wanted)))
        raise PodiumError(f"{path}: {len(ids)} ids that differ from the {len(wanted)} expected, at row {at + 1} first")
    for column in expected.answer_columns:
        cells = written[column]
        if expected.wants == "labels":
            wrong = cells[~cells.isin(competition.classes)]
        else:
            values = pd.to_numeric(cells, errors="coerce")
            wrong = cells[~((values >= 0) & (values <= 1))]
        if len(wrong):
            raise PodiumError(f"{path}, line {wrong.index[0]}: '{wrong.iloc[0]}' is no prediction")
    if len(expected.answer_columns) > 1:
        sums = written[list(expected.answer_columns)].astype(float).sum(axis=1)
        wrong = sums[(sums - 1).abs() > 1e-5]
        if len(wrong):
            raise PodiumError(f"{path}, line {wrong.index[0]}: the probabilities sum to {wrong.iloc[0]:.6g}")


def check_class_shares(competition: Competition, probs: Probs, anyway: bool) -> None:
    """Are the answers such as training lets expect?"""
    expected, count = class_frequencies(competition, competition.classes).astype(np.float64), len(probs)
    labels = competition.submission_format.wants == "labels"
    found = np.bincount(probs.argmax(1), minlength=probs.shape[1]) / count if labels else probs.mean(0)
    most = int(found.argmax())
    if found[most] * count > count - 0.5 and expected[most] ** count < RARE and not anyway:
        raise PodiumError(
            f"all {count:,} test images would be answered '{competition.classes[most]}', which is {expected[most]:.1%}"
            " of training; train longer, or look at the models with --runs (--anyway writes it all the same)"
        )
    chance = np.sqrt(2 / np.pi * expected * (1 - expected) / count)  # how far a share is off on average
    if np.abs(found - expected).sum() / 2 > ASTRAY + chance.sum():
        away = np.argsort(-np.abs(found - expected))[:3]
        numbers = ", ".join(f"'{competition.classes[k]}' {found[k]:.1%} instead of {expected[k]:.1%}" for k in away)
        say(f"podium: warning: the answers are not mixed as the training images are: {numbers}")
