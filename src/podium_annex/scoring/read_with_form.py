"""Reads a submission and a solution of a known competition, through the form of its answers.

A solution holds the truth in the columns of the submission, or as a label in one column.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, plural, say
from podium.competition.answer_form import AnswerForm, Cells, LabelForm, ProbabilityForm
from podium.competition.build.grades import METRIC as GRADES_METRIC
from podium.competition.decide.labels import MARKS, NO_MARKS
from podium.competition.decide.vote_columns import METRIC as VOTES_METRIC
from podium.competition.load import Competition
from podium.competition.metric_of_file import is_metric_of_file
from podium.tasks.metrics import METRICS
from podium.tasks.task import ONE_LABEL
from podium_annex.scoring.read_without_form import Comparable
from podium_annex.scoring.solution import Pairs, label_column, true_votes

SCALED_BY_KAGGLE = (
    "log_loss",
    "balanced_log_loss",
    "brier",
    "kl_divergence",
)  # the others look at each column, or at the largest


def read_with_form(pairs: Pairs, competition: Competition, metric: str | None) -> Comparable:
    """Returns what the metric compares: the competition's, or another one."""
    form, metric = competition.answer_form, metric or competition.metric
    _refuse_other_ids(pairs, competition)
    cells = _cells(pairs.answers, competition, pairs.path)
    sums = _say_wrong_sums(form, cells, pairs.path, metric) if isinstance(form, ProbabilityForm) else pd.Series()
    if not len(sums):
        _refuse_problem(form, cells, pairs.path)
    if form.wants == "labels" and metric != competition.metric and METRICS[metric]().wants == "probs":
        say(
            f"podium: warning: the cells of {pairs.path} hold labels, and {metric} needs probabilities: each label"
            " counts as sure; take a --metric of labels, such as accuracy"
        )
    predictions = form.read(_by_image(cells, competition))
    if len(sums) and metric in SCALED_BY_KAGGLE:
        predictions = predictions / predictions.sum(axis=1, keepdims=True)
    truth_form, truth = _truth(pairs, competition)
    if isinstance(truth_form, LabelForm):
        unknown = _unknown_labels(truth_form, truth[0], pairs, metric)
        truth_form = LabelForm(form.columns, (*form.classes, *unknown))
        predictions = np.hstack([predictions, np.zeros((len(predictions), len(unknown)))])
    elif truth_form.wants == "numbers":
        _refuse_problem(truth_form, [own[own != ""] for own in truth], pairs.solution)  # a blank one is not known
    else:
        if metric == VOTES_METRIC and len(truth) > 1:
            return Comparable(
                metric, true_votes(pd.DataFrame(form.read(truth), truth[0].index), pairs.solution), predictions
            )
        if competition.task is ONE_LABEL and len(truth) > 1:
            _refuse_odd_marks(truth, pairs.solution)
        _refuse_problem(truth_form, truth, pairs.solution)
    sure = truth_form.read(_by_image(truth, competition))
    return Comparable(metric, competition.answers_of(sure), predictions)


def _say_wrong_sums(form: ProbabilityForm, cells: Cells, path: Path, metric: str) -> "pd.Series[float]":
    """Returns the sums of probabilities that are not 1, which Kaggle takes, and says what becomes of them.

    None where other cells are wrong, too, or a row is all zeros.
    """
    if any(form.are_wrong(own, column).any() for column, own in zip(form.columns, cells, strict=True)):
        return pd.Series()
    sums = form.wrong_sums(cells)
    if len(sums) and (sums > 0).all():
        done = "are divided by their sum" if metric in SCALED_BY_KAGGLE else "are scored as they are"
        say(
            f"podium: note: {plural(len(sums), 'row')} of {path} with probabilities that do not add up to 1,"
            f" '{sums.index[0]}' first ({sums.iloc[0]:.6g}): they {done}, as Kaggle does"
        )
        return sums
    return pd.Series()


def _refuse_other_ids(pairs: Pairs, competition: Competition) -> None:
    long = competition.submission_format.long
    unknown = pairs.answers.index[~pairs.answers.index.isin(long.ids if long else competition.answer_ids)]
    if len(unknown):
        raise PodiumError(
            f"{pairs.path}: id '{unknown[0]}' is not one of {competition.slug}; name the right one with -c"
        )


def _cells(table: pd.DataFrame, competition: Competition, path: Path) -> Cells:
    """Returns the cells of each answer column, by the ids of the rows."""
    form, long = competition.submission_format, competition.submission_format.long
    columns = [long.columns[1]] if long else form.answer_columns
    missing = [column for column in columns if column not in table]
    if missing:
        raise PodiumError(f"{path}: no column '{missing[0]}', which {form.source} has; add it")
    return long.split(table[columns[0]]) if long else [table[column] for column in columns]


def _by_image(cells: Cells, competition: Competition) -> Cells:
    """Returns the cells of each column in the order of the images; some numbers of an image may not be asked for."""
    long = competition.submission_format.long
    if not long:
        return cells
    wide = long.widen(pd.concat(cells))
    if competition.answer_form.wants != "numbers" and wide.isna().any(axis=None):
        missing = len(long.ids) - sum(map(len, cells))
        raise PodiumError(f"{plural(missing, 'row')} of {competition.slug} are missing; give both files all of its ids")
    return [wide[number] for number in wide]


def _truth(pairs: Pairs, competition: Competition) -> tuple[AnswerForm, Cells]:
    """Returns the cells of the truth and their form: that of the answers, or a label in one column."""
    form, truth = competition.answer_form, pairs.truth.set_index(pairs.answers.index)
    has_columns = competition.submission_format.long is not None or set(form.columns) <= set(truth)
    if has_columns or competition.task is not ONE_LABEL:
        if len(form.columns) == 1 and not has_columns:
            truth = label_column(pairs).set_axis(truth.index).to_frame(form.columns[0])
        cells = _cells(truth, competition, pairs.solution)
    else:
        cells = [label_column(pairs).set_axis(truth.index)]
    is_single = competition.task is ONE_LABEL and form.wants == "probs" and len(cells) == 1
    if is_single and (cells[0].isin(form.classes).all() or not cells[0].isin((*MARKS, *NO_MARKS)).all()):
        return LabelForm(form.columns, form.classes), cells
    return form.solution_form, cells


def _unknown_labels(form: LabelForm, truth: "pd.Series[str]", pairs: Pairs, metric: str) -> list[str]:
    """Returns the true labels that are no class, so that no answer is right; refuses them where the metric cannot."""
    unknown = truth[form.are_wrong(truth, "")]
    if len(unknown) == len(truth) or (len(unknown) and (metric == GRADES_METRIC or is_metric_of_file(metric))):
        problem = form.find_problem([truth])
        raise PodiumError(f"{pairs.solution}: id '{unknown.index[0]}': {problem[1] if problem else ''}")
    labels = sorted(set(unknown))
    if labels:
        count = plural(len(unknown), "answer")
        say(f"podium: note: {pairs.solution} has labels that are no classes: {first_few(labels)} ({count}, all wrong)")
    return labels


def _refuse_odd_marks(truth: Cells, path: Path) -> None:
    """Raises if not exactly one class of an image is true."""
    counts = pd.concat([own.isin(MARKS) for own in truth], axis=1).sum(axis=1)
    odd = counts[counts != 1]
    if len(odd):
        count = int(odd.iloc[0])
        raise PodiumError(
            f"{path}: id '{odd.index[0]}' has a 1 in {plural(count, 'column')}, not in one; correct that row"
        )


def _refuse_problem(form: AnswerForm, cells: Cells, path: Path) -> None:
    problem = form.find_problem(cells)
    if problem:
        raise PodiumError(f"{path}: id '{problem[0]}': {problem[1]}")
