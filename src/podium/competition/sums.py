"""Sums of numbers that must hold: columns of which one is the sum of others, as the card says.

    sums = ["total = green + clover + dead", "forage = green + clover"]

The training answers must hold them, too. blending/decision.py makes predictions that do.
"""

import numpy as np
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean, first_few
from podium.competition.card import Card
from podium.tasks.task import Targets

FORM = 'as in sums = ["total = a + b"]'
TOLERANCE = 0.01  # of the deviation of a sum in training: tables are rounded


def sums_in(card: Card, columns: tuple[str, ...]) -> NDArray[np.float64]:
    """Returns a row for each sum of the card, by which the columns come to 0: 1 for its parts, and -1 for the sum."""
    rows = np.zeros((len(card.get("sums", ())), len(columns)))
    for row, text in zip(rows, card.get("sums", ()), strict=True):
        whole, _, parts = text.partition("=")
        names = [name.strip() for name in (whole, *parts.split("+"))]
        if not all(names) or len(set(names)) < len(names) or len(names) < 3:
            raise PodiumError(f"{card.path}: sums: '{text}' is not one column and the others that it sums, {FORM}")
        if unknown := [name for name in names if name not in columns]:
            hint = did_you_mean(unknown[0], columns, otherwise=f"the columns are {first_few(columns)}")
            raise PodiumError(f"{card.path}: sums: '{text}': there is no column '{unknown[0]}'; {hint}")
        for name in names:
            row[columns.index(name)] = 1 if name != names[0] else -1
    for count in range(1, len(rows) + 1):
        if np.linalg.matrix_rank(rows[:count]) < count:
            text = card["sums"][count - 1]
            raise PodiumError(
                f"{card.path}: sums: '{text}' follows from those before it, or contradicts them; delete it"
            )
    return rows


def check_sums(card: Card, columns: tuple[str, ...], targets: Targets, ids: list[str]) -> None:
    """Refuses sums that the training answers do not hold, and says by how much."""
    if not card.get("sums"):
        return
    if targets.task.are_labels:
        raise PodiumError(f"{card.path}: sums are for numbers, but these images have {targets.task.words}; delete them")
    for text, row in zip(card["sums"], sums_in(card, columns), strict=True):
        whole = targets.values[:, int(row.argmin())]
        errors = np.nan_to_num(targets.values[:, row != 0] @ row[row != 0])  # where a number is unknown, nobody can say
        is_wrong = np.abs(errors) > TOLERANCE * np.nanstd(whole)
        if is_wrong.any():
            worst = int(np.abs(errors).argmax())
            raise PodiumError(
                f"{card.path}: sums: '{text}' does not hold for {is_wrong.sum():,} of {len(errors):,} training images:"
                f" the parts of {ids[worst]} come to {whole[worst] + errors[worst]:g}, and the sum is {whole[worst]:g}"
                f" ({abs(errors[worst]):g} off); correct the table, or delete the sum"
            )
