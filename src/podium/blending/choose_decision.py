"""Chooses the decision that follows the blend, or none: see decision.py.

    podium submit [--decision none|test-shares|NAME]

The metric, the task and the card say which kind is possible. It is scored by nested cross-validation, like a blend
(nested.py), and taken where it gains more than chance. One of the project's own is taken because the user names it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.blending.blend import Probs
from podium.blending.cost import Costs
from podium.blending.decision import Decision
from podium.blending.decision_fits import FIT_NUMBERS, fit_unknown_threshold, importance_of_unknown
from podium.blending.gain import Gain, gain_of
from podium.blending.held_out import HeldOut
from podium.blending.nested import Judged, Mask, predict_nested
from podium.blending.own_decision import OwnDecision, Undecided
from podium.blending.shares_of_test import SHARES_KIND
from podium.competition.build.grades import are_grades
from podium.competition.build.unknown_class import UNKNOWN_NAMES, UnknownClass
from podium.competition.card import Card
from podium.competition.sums import sums_in
from podium.tasks.metrics import METRICS, OF_LOGARITHMS, evaluate
from podium.tasks.task import Targets, Task

OF_CLASS_WEIGHTS = ("macro_f1", "balanced_accuracy", "mcc")
OF_SEVERAL_LABELS = {
    "log_loss": "clip_several_labels",
    "hemorrhage_log_loss": "clip_several_labels",
    "fracture_log_loss": "raised_odds",  # it counts labels that are there twice
}
LEAST_COUNT = 0.1  # how often a class is expected at least, in all held-out images together
SUM_TOLERANCE = 0.01  # of the shares in the card


@dataclass(frozen=True)
class DecisionKind:
    name: str  # one of KINDS in decision.py
    unknown: int = -1  # the number of the class for unknown ones
    unknown_share: float | None = None  # of the test images that are of that class, if the card says it
    shares: tuple[float, ...] = ()  # of the classes among the test images, if the card gives them
    sums: tuple[float, ...] = ()  # the rows of the sums that must hold, one after the other

    def fit(self, probs: Probs, targets: Targets, metric: str) -> Decision:
        if self.name == "unknown_threshold":
            numbers = fit_unknown_threshold(probs, targets, metric, self.unknown)
        else:
            numbers = FIT_NUMBERS[self.name](probs, targets, metric)
        return Decision(self.name, (*numbers.tolist(), *self.sums), self.unknown)


def find_kind(
    metric: str, task: Task, classes: Sequence[str], card: Card, unknown_class: UnknownClass | None = None
) -> DecisionKind | None:
    """Returns the kind of decision that the metric rewards, or None. No training image has the `unknown_class`."""
    if card.get("sums"):
        return DecisionKind("sums", sums=tuple(sums_in(card, tuple(classes)).ravel().tolist()))
    if not task.are_labels:
        return DecisionKind("clip_numbers")
    if task.has_columns:
        return None
    if unknown_class:
        share = unknown_class.share if unknown_class.is_share_known else None
        return DecisionKind("unknown_threshold", classes.index(unknown_class.name), share)
    if not task.sums_to_one:
        if re.fullmatch("[a-z]+_f[12]", metric):
            return DecisionKind("thresholds")
        return DecisionKind(OF_SEVERAL_LABELS[metric]) if metric in OF_SEVERAL_LABELS else None
    if "shares" in card and METRICS[metric]().wants == "labels":
        return DecisionKind("quotas", shares=_shares_in(card, classes))
    if metric in OF_CLASS_WEIGHTS:
        return DecisionKind("class_weights")
    if metric == "quadratic_kappa":
        return DecisionKind("cut_points") if are_grades(card, classes) else None
    if metric.startswith("map_at_"):
        unknown = next((name for name in (card.get("unknown"), *UNKNOWN_NAMES) if name in classes), None)
        return None if unknown is None else DecisionKind("unknown_threshold", unknown=classes.index(unknown))
    return DecisionKind("clip_one_label") if metric in OF_LOGARITHMS else None


def _shares_in(card: Card, classes: Sequence[str]) -> tuple[float, ...]:
    shares: Mapping[str, float] = card["shares"]
    if set(shares) != set(classes):
        settings = ", ".join(f'"{name}" = 0.1' for name in classes[:3])
        raise PodiumError(
            f"{card.path}: shares names {first_few(sorted(shares))}, but the classes are {first_few(classes)}; "
            + card.advise(f"shares = {{ {settings} }}, with every class")
        )
    if abs(sum(shares.values()) - 1) > SUM_TOLERANCE:
        raise PodiumError(
            f"{card.path}: the shares sum to {sum(shares.values()):.4g}, not 1; " + card.advise("shares that sum to 1")
        )
    return tuple(float(shares[name]) for name in classes)


def choose_decision(
    held_out: HeldOut, nested: Probs, metric: str, kind: DecisionKind
) -> tuple[Judged[Decision], Probs]:
    """Returns the decision and what it makes of the nested probabilities.

    `nested` are the blended probabilities of the held-out images; for each, the blend was fitted to other parts.
    """

    def decide(is_fitted: Mask, is_scored: Mask) -> Probs:
        decision = kind.fit(nested[is_fitted], held_out.targets[is_fitted], metric)
        return decision.apply(nested[is_scored])

    decided = predict_nested(held_out, decide)
    gain = gain_of(held_out, nested, decided, metric, is_taken_or_left=True)
    if kind.shares:
        decision = Decision(kind.name, kind.shares)
    elif kind.unknown_share is not None:  # the gain is that on the held-out images, of which another share is unknown
        importance = importance_of_unknown(held_out.targets, kind.unknown, kind.unknown_share)
        numbers = fit_unknown_threshold(nested, held_out.targets, metric, kind.unknown, importance)
        decision = Decision(kind.name, tuple(numbers.tolist()), kind.unknown)
    else:
        decision = kind.fit(nested, held_out.targets, metric)
    # No answer that training images can be judged by lies outside; who counts what is there twice asks for higher odds.
    guards = kind.name in ("clip_numbers", "sums", "raised_odds")
    return Judged(decision, gain, gain.is_clear or guards), decided


def decide_by_cost(held_out: HeldOut, nested: Probs, metric: str, costs: Costs) -> tuple[Judged[Decision], Probs]:
    """Returns the decision for the answers that cost least, and what it makes of the nested probabilities.

    It is not fitted, and taken because the user asks for it; its gain is that in the metric, which may be a loss.
    """
    decision = Decision("least_cost", tuple(costs.matrix.ravel().tolist()))
    decided = decision.apply(nested)
    return Judged(decision, gain_of(held_out, nested, decided, metric, is_taken_or_left=True), True), decided


def decide_by_test_shares(held_out: HeldOut, nested: Probs, metric: str) -> tuple[Judged[Decision], Probs]:
    """Returns the decision by the shares that images have, and what it makes of the nested probabilities.

    Each part's shares are estimated from its images. It is taken because the user asks for it: held-out images have the
    shares of training, so they show only what a needless estimate costs.
    """
    judged, decided = choose_decision(held_out, nested, metric, DecisionKind(SHARES_KIND))
    gain = gain_of(held_out, nested, decided, metric)
    return Judged(judged.step, gain, True), decided


def decide_as_wanted(
    held_out: HeldOut, nested: Probs, metric: str, own: OwnDecision, undecided: Undecided
) -> tuple[Judged[OwnDecision], Probs]:
    """Returns the project's own decision, and what it makes of the nested probabilities.

    It sees all held-out answers at once. It is not fitted, and taken because the user asks for it, whatever it gains.
    """
    decided, again = (own.apply(nested, undecided) for _ in range(2))
    if not np.array_equal(decided, again):
        raise PodiumError(
            f"the decision {own.describe()} answers the same question in two ways, so no submission could be rebuilt;"
            " draw its random numbers from a generator with a fixed seed"
        )
    return Judged(own, gain_of(held_out, nested, decided, metric), True), decided


def choose_least_prob(
    held_out: HeldOut, nested: Probs, metric: str, judged: Judged[Decision]
) -> tuple[Judged[Decision], Probs]:
    """Returns the decision to write no probability below the least one that so many images can show, and what it makes.

    It is not fitted: it guards against a sure mistake, which could cost more than all other images together.
    """
    least = LEAST_COUNT / (len(held_out) * nested.shape[1])
    decision = Decision(judged.step.kind, (least,))
    decided = decision.apply(nested)
    score = evaluate(metric, held_out.targets, decided)
    gain = Gain(judged.gain.before, score, METRICS[metric]().better * (score - judged.gain.before))
    return Judged(decision, gain, True), decided
