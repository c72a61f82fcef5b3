"""The order of grades, of which quadratic_kappa counts how far a wrong answer is from the right one.

Numbers have it. The card gives that of words, `grades = ["mild", "severe"]`; else it is a guess, the alphabet,
and a note says so.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few
from podium.competition.card import Card
from podium.competition.decide.labels import are_numbers, sort_labels

METRIC = "quadratic_kappa"


def are_grades(card: Mapping[str, Any], classes: Sequence[str]) -> bool:
    """Returns whether the classes are in a known order: that of the card, or of numbers.

    Text may sort 10.0 before 9.0, and -1 before -2.
    """
    if "grades" in card:
        return True
    if not are_numbers(classes):
        return False
    values = [float(name) for name in classes]
    return all(lower < higher for lower, higher in pairwise(values))


def order_grades(card: Card, labels: set[str]) -> list[str]:
    """Returns the labels from the lowest grade to the highest, by the card or by value; else sorted.

    Numbers are sorted by value where the metric needs it: elsewhere the order of classes is as it always was.
    """
    if "grades" not in card and card.get("metric") == METRIC and are_numbers(labels):
        return sorted(labels, key=lambda label: (float(label), label))
    if "grades" not in card:
        return sort_labels(labels)
    grades = list(card["grades"])
    if len(set(grades)) < len(grades):
        raise PodiumError(f"{card.path}: grades names a label twice; name each once, from the lowest to the highest")
    if missing := sort_labels(labels - set(grades)):
        raise PodiumError(f"{card.path}: grades lacks the labels {first_few(missing)}; put each in its place")
    return [grade for grade in grades if grade in labels]


def check_grades(card: Card, classes: Sequence[str]) -> list[str]:
    """Refuses grades that are no classes; returns a note if the metric needs an order and nothing tells it."""
    if unknown := [grade for grade in card.get("grades", ()) if grade not in classes]:
        raise PodiumError(f"{card.path}: grades names {first_few(unknown)}, but the classes are {first_few(classes)}")
    if card.get("metric") != METRIC or len(classes) <= 2 or are_grades(card, classes):
        return []
    quoted = ", ".join([f'"{name}"' for name in classes[:3]] + ["..."] * (len(classes) > 3))
    return [
        f"{METRIC} counts how far grades are apart; that they rise as {first_few(classes)} is a guess, their order"
        f" as text; " + card.advise(f"grades = [{quoted}]") + ", the lowest first"
    ]
