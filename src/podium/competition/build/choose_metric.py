"""Chooses the metric of a competition: the card's, or the usual one for what a submission holds.

Refuses a metric of the user's whose scores are better where they are said to be worse: an error rate that does not say
so would choose the worst blend and the worst decision. The truth, scored as if it were a submission, must not lose
against the same answers given to the wrong images.
"""

import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from podium.basics.errors import PodiumError
from podium.competition.build.grades import check_grades
from podium.competition.build.guess_submission import Labels
from podium.competition.build.positive_class import ABOUT_POSITIVE, note_on_guess
from podium.competition.build.submission_format import SubmissionFormat
from podium.competition.card import Card
from podium.competition.decide.vote_columns import METRIC as VOTES_METRIC
from podium.competition.metric_of_file import is_metric_of_file, use_metric_of_file
from podium.tasks.metrics import METRICS, Metric
from podium.tasks.task import ONE_LABEL, Targets

USUAL_METRICS = {  # by task, and what a submission holds
    ("one_label", "labels"): "accuracy",
    ("one_label", "probs"): "log_loss",
    ("one_label", "ranking"): "map_at_5",
    ("several_labels", "labels"): "macro_f1",
    ("several_labels", "probs"): "roc_auc",
    ("several_targets", "labels"): "mean_recall",
    ("numbers", "numbers"): "rmse",
}


class MetricChoice(NamedTuple):
    name: str
    origin: str
    card: Card  # without the metric that Podium knows, if that is not defined for these files
    notes: list[str]


def choose_metric(
    labels: Labels, submission: SubmissionFormat, classes: list[str], targets: Iterable[str], folder: Path
) -> MetricChoice:
    """Returns the card's metric, else the usual one; raises if the card's is not defined for the task."""
    card, task, wants = labels.card, labels.targets.task, submission.wants
    usual = USUAL_METRICS[task.name, wants]
    if wants == "ranking" and f"map_at_{submission.places}" in METRICS:
        usual = f"map_at_{submission.places}"
    if submission.has_confidence:
        usual = "gap"
    if labels.are_voted:
        usual = VOTES_METRIC
    guess = f"a guess, the usual one for {wants}"
    metric = str(card.get("metric", usual))
    if is_metric_of_file(metric):
        form, position = submission.answer_form(task, tuple(classes), targets), submission.id_position
        use_metric_of_file(metric, card, form, submission.columns[position], position)
    built = METRICS[metric]()
    if task.name not in built.tasks:
        problem = f"{metric} is not defined for {task.words}"
        refusal = f"{folder}: {problem}; " + card.advise(f'metric = "{usual}"') + ", or another one"
        note = f"{problem}, which this copy of the competition has: {usual} stands for it"
        return MetricChoice(usual, guess, card.without("metric"), [card.drop("metric", note, refusal)])
    notes = []
    if metric in ABOUT_POSITIVE and task is ONE_LABEL and len(submission.answer_columns) > 1:
        notes += note_on_guess(card, classes, marked=labels.marked)
    notes += check_grades(card, classes)
    if built.wants not in (wants, ""):
        notes.append(f"{metric} is a metric of {built.wants}, but the submission holds {wants}")
    return MetricChoice(metric, card.origin_of("metric", guess), card, notes)


# --- a metric whose sign is wrong --------------------------------------------------------------------

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
