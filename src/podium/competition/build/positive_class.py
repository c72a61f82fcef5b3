"""Finds which of two classes is positive: the one that a single column of probabilities is about, and some metrics.

The card says it, or the name of the column, or the labels themselves, or another column of the training table. Else it
is a guess, and a note says so wherever the competition is read.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.card import Card
from podium.competition.decide.labels import MARKS, NO_MARKS

# Labels of the class that is not looked for, or their first word.
NEGATIVE = frozenset(
    {"no", "non", "not", "none", "without", "negative", "neg", "false", "absent"}
    | {"normal", "healthy", "benign", "background", "control"}
)
ABOUT_POSITIVE = (
    "average_precision",
    "partial_auc_80",
    "probabilistic_f1",
    "weighted_auc",
)  # metrics; of two classes, only of one


class Positive(NamedTuple):
    label: str
    is_guess: bool


def put_positive_last(
    card: Mapping[str, Any], labels: list[str], column: str = "", marked: str | None = None
) -> list[str]:
    """Returns the labels; of two, the positive one comes last, where metrics and single columns look for it."""
    positive = find_positive(card, labels, column, marked)
    if positive is None:
        return labels
    return [*(label for label in labels if label != positive.label), positive.label]


def find_positive(
    card: Mapping[str, Any], labels: Sequence[str], column: str = "", marked: str | None = None
) -> Positive | None:
    """Returns the positive class of two: the card's `positive`, else what tells it best, else the last one.

    `column` is the name of a column that holds one probability; `marked` is the class of marked_label().
    """
    chosen = card.get("positive")
    if chosen is not None and (chosen not in labels or len(labels) != 2):
        raise PodiumError(f'positive = "{chosen}" is not one of two classes; the classes are {first_few(labels)}')
    if len(labels) != 2:
        return None
    told = chosen or _named_after(column, labels) or _mark_among(labels) or marked or _not_negative(labels)
    return Positive(labels[-1] if told is None else told, is_guess=told is None)


def note_on_guess(card: Card, labels: Sequence[str], column: str = "", marked: str | None = None) -> list[str]:
    """Returns a note if nothing tells which class is positive."""
    positive = find_positive(card, labels, column, marked)
    if positive is None or not positive.is_guess:
        return []
    (other,) = (label for label in labels if label != positive.label)
    return [
        f"that the answers are about '{positive.label}', not '{other}', is a guess (the last by the alphabet); "
        + card.advise(f'positive = "{positive.label}"', f'"{other}"')
    ]


def marked_label(labels: "pd.Series[str]", others: pd.DataFrame) -> str | None:
    """Returns the label of two that another column marks with 1, and the other with 0, in every row."""
    for name in others:
        cells = others[name]
        if len(set(cells)) == 2 and set(cells) <= {*MARKS, *NO_MARKS}:
            marked, unmarked = set(labels[cells.isin(MARKS)]), set(labels[cells.isin(NO_MARKS)])
            if len(marked) == len(unmarked) == 1 and marked != unmarked:
                return str(marked.pop())
    return None


def _named_after(column: str, labels: Sequence[str]) -> str | None:
    """Returns the label that a column is named after: cat, is_cat; but not no_cat."""
    *first_words, last_word = re.split(r"[\W_]+", column.lower())
    is_negated = bool({"no", "not", "non"} & set(first_words))
    names = [column.lower()] if is_negated else [column.lower(), last_word]
    return next((label for name in names for label in labels if label.lower() == name), None)


def _mark_among(labels: Sequence[str]) -> str | None:
    are_marks = all(label in (*MARKS, *NO_MARKS) for label in labels)
    return next((label for label in labels if label in MARKS), None) if are_marks else None


def _not_negative(labels: Sequence[str]) -> str | None:
    others = [label for label in labels if re.split(r"[\W_]+", label.lower().strip())[0] not in NEGATIVE]
    return others[0] if len(others) == 1 else None
