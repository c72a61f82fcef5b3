"""A decision: how blended probabilities become answers that the metric rewards.

It adjusts the probabilities, so that the most probable class, or the labels from a half on, are the decided answer.
decision_fits.py fits its numbers; choose_decision.py says whether it is worth taking.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.blending.shares_of_test import SHARES_KIND, reweigh_by_shares

Numbers = NDArray[np.float64]
Probs = NDArray[np.float64]  # [images, classes]

ONE_HOT_SHARE = 0.6  # above a half, so that the decided grade is the most probable one whatever the other share says
MOST_ROUNDS = 2_000  # of holding sums and ranges in turn
QUOTA_STEPS = 300  # of the search for weights that give each class its share


@dataclass(frozen=True)
class Decision:
    kind: str  # one of ADJUST
    numbers: tuple[float, ...]  # fitted: weights, thresholds, cut points, shares, or a single number
    unknown: int = -1  # the number of the class for unknown ones

    def apply(self, probs: Probs, undecided: object = None) -> Probs:
        """Returns the adjusted probabilities [images, classes]; only the project's own need more (own_decision.py)."""
        numbers = np.array(self.numbers)
        if self.kind == "unknown_threshold":
            return replace_unknown(probs, self.unknown, self.numbers[0])
        return ADJUST[self.kind].apply(probs, numbers)

    def describe(self) -> str:
        """Returns the kind in words."""
        return self.kind.replace("_", " ")

    def fits(self, classes: int) -> bool:
        """Returns whether it has as many numbers as its kind needs for so many classes."""
        if self.kind == "unknown_threshold":
            return 0 <= self.unknown < classes and len(self.numbers) == 1
        count = ADJUST[self.kind].count(classes)
        if self.kind == SHARES_KIND and min(self.numbers) <= 0:
            return False
        if self.kind == "sums":
            return len(self.numbers) >= count and len(self.numbers) % classes == 0
        return len(self.numbers) == count

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "numbers": self.numbers, "unknown": self.unknown}


def decision_from_json(content: Mapping[str, Any]) -> Decision:
    """Returns the decision of a lineage; raises an error of any kind if it cannot be applied."""
    numbers = tuple(map(float, content["numbers"]))
    if content["kind"] not in KINDS or not numbers or not all(map(math.isfinite, numbers)):
        raise ValueError("its decision")
    return Decision(content["kind"], numbers, int(content["unknown"]))


def sum_to_one(probs: Probs) -> Probs:
    return np.asarray(probs / probs.sum(1, keepdims=True))


def weigh_classes(probs: Probs, weights: Numbers) -> Probs:
    return sum_to_one(probs * weights)


def move_thresholds(probs: Probs, thresholds: Numbers) -> Probs:
    """Multiplies the odds so that each label's threshold becomes a half; the order of the images stays."""
    yes, no = probs * (1 - thresholds), (1 - probs) * thresholds
    moved: Probs = yes / (yes + no)
    return moved


def cut_grades(probs: Probs, cuts: Numbers) -> Probs:
    """Makes the grade most probable that the expected grade falls into; the grades are 0, 1, 2 and so on."""
    decided = np.searchsorted(cuts, expected_grades(probs), side="right")
    return np.asarray(ONE_HOT_SHARE * np.eye(probs.shape[1])[decided] + (1 - ONE_HOT_SHARE) * sum_to_one(probs))


def expected_grades(probs: Probs) -> Numbers:
    return np.asarray(sum_to_one(probs) @ np.arange(probs.shape[1]))


def clip_one_label(probs: Probs, numbers: Numbers) -> Probs:
    return sum_to_one(clip_several_labels(sum_to_one(probs), numbers))


def clip_several_labels(probs: Probs, numbers: Numbers) -> Probs:
    return probs.clip(numbers[0], 1 - numbers[0])


def raise_odds(probs: Probs, numbers: Numbers) -> Probs:
    """Multiplies the odds of each label, where one that is there counts more than one that is not; then clips."""
    return clip_several_labels(move_thresholds(probs, 1 / (1 + numbers[1:])), numbers)


def clip_numbers(values: Probs, numbers: Numbers) -> Probs:
    """Moves numbers outside of a range to its ends; first come the lowest numbers of all columns, then the highest."""
    lowest, highest = numbers.reshape(2, -1)
    return values.clip(lowest, highest)


def hold_sums(values: Probs, numbers: Numbers) -> Probs:
    """Moves numbers as little as possible to where the sums hold and all are in their range.

    `numbers` are the lowest of all columns, the highest, the variances of their errors, and a row of each sum
    (competition/sums.py). A move counts in units of its column's error: what is predicted badly moves most. Sums and
    ranges are satisfied in turn, with what the ranges have corrected handed back (Boyle and Dykstra, 1986).
    """
    lowest, highest, variances, *sums = numbers.reshape(-1, values.shape[1])
    unit = np.sqrt(variances)
    rows = np.array(sums) * unit
    onto_sums = np.eye(len(unit)) - np.linalg.pinv(rows) @ rows
    moved, handed_back = values / unit, np.zeros_like(values)
    for _ in range(MOST_ROUNDS):
        summed = moved @ onto_sums
        clipped = (summed + handed_back).clip(lowest / unit, highest / unit)
        handed_back += summed - clipped
        moved = clipped
        if np.abs(summed - clipped).max(initial=0) < 1e-9:
            break
    return moved * unit


def answer_at_least_cost(probs: Probs, numbers: Numbers) -> Probs:
    """Makes the answer most probable that is expected to cost least; the numbers are the matrix of costs, by rows."""
    count = probs.shape[1]
    decided = (sum_to_one(probs) @ numbers.reshape(count, count)).argmin(1)
    return np.asarray(ONE_HOT_SHARE * np.eye(count)[decided] + (1 - ONE_HOT_SHARE) * sum_to_one(probs))


def fill_quotas(probs: Probs, shares: Numbers) -> Probs:
    """Weighs the classes so that each is the most probable one for its share of these images, as nearly as possible."""
    log_probs, log_weights = np.log(probs.clip(1e-12)), np.zeros(len(shares))
    best, least = log_weights.copy(), np.inf
    for step in range(QUOTA_STEPS):
        predicted = np.bincount((log_probs + log_weights).argmax(1), minlength=len(shares)) / len(probs)
        mismatch = float(np.abs(predicted - shares).sum())
        if mismatch < least:
            best, least = log_weights.copy(), mismatch
        log_weights += 4 * (1 - step / QUOTA_STEPS) ** 2 * (shares - predicted)
    return weigh_classes(probs, np.exp(best))


def replace_unknown(probs: Probs, unknown: int, threshold: float) -> Probs:
    """Gives the class for unknown ones the same probability for every image: known classes above it come first."""
    replaced = probs.copy()
    replaced[:, unknown] = threshold
    return sum_to_one(replaced)


class Adjustment(NamedTuple):
    apply: Callable[[Probs, Numbers], Probs]
    count: Callable[[int], int]  # how many numbers it has for so many classes


ADJUST = {
    "class_weights": Adjustment(weigh_classes, lambda classes: classes),
    "thresholds": Adjustment(move_thresholds, lambda classes: classes),
    "cut_points": Adjustment(cut_grades, lambda classes: classes - 1),
    "clip_one_label": Adjustment(clip_one_label, lambda classes: 1),
    "clip_several_labels": Adjustment(clip_several_labels, lambda classes: 1),
    "raised_odds": Adjustment(raise_odds, lambda classes: 1 + classes),
    "quotas": Adjustment(fill_quotas, lambda classes: classes),
    "clip_numbers": Adjustment(clip_numbers, lambda classes: 2 * classes),
    "sums": Adjustment(hold_sums, lambda classes: 4 * classes),  # and as many again for each further sum
    SHARES_KIND: Adjustment(reweigh_by_shares, lambda classes: 1 + classes),
    "least_cost": Adjustment(answer_at_least_cost, lambda classes: classes**2),
}
KINDS = (*ADJUST, "unknown_threshold")
