"""Refuses a metric of the user's whose scores are better where they are said to be worse.

An error rate that does not say so would choose the worst blend and the worst decision. The truth, scored as if it were
a submission, must not lose against the same answers given to the wrong images.
"""

import math
from contextlib import suppress

import numpy as np

from podium.basics.errors import PodiumError
from podium.competition.card import Card
from podium.competition.metric_of_file import is_metric_of_file
from podium.tasks.metrics import METRICS, Metric
from podium.tasks.task import Targets

MOST_IMAGES = 500  # that are scored: each command that reads the competition waits for it
SHUFFLES = 3


def refuse_wrong_sign(name: str, card: Card, targets: Targets, class_count: int) -> None:
    """Raises if the truth loses. A metric that cannot score these answers is explained where a score is needed."""
    draws = np.random.default_rng(0)
    some = targets[np.sort(draws.permutation(len(targets))[:MOST_IMAGES])]
    metric: Metric = METRICS[name]()
    truth = some.are_true(class_count).astype(np.float64) if some.task.are_labels else some.values.astype(np.float64)
    if not np.isfinite(truth).all():  # unknown numbers
        return
    right = wrong = math.nan
    with suppress(PodiumError):
        right = metric.score(some, truth)
        wrong = float(np.mean([metric.score(some, truth[draws.permutation(len(truth))]) for _ in range(SHUFFLES)]))
    if not metric.better * (right - wrong) < 0:  # also where it is not a number
        return
    other, now = ("lower", "higher") if metric.better > 0 else ("higher", "lower")
    remedy = card.advise(f'better = "{other}"')
    if not is_metric_of_file(name):
        remedy = f'write better="{other}" in its decorator, @extend.metric(...)'
    raise PodiumError(
        f"{name} gives the true answers {right:.4g} and the same answers for the wrong images {wrong:.4g}, but"
        f" {now} scores are said to be better; {remedy}"
    )
