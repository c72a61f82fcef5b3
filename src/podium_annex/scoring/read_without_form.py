"""Reads the cells of a submission and of a solution where no competition is known, which would say what they hold.

They become targets (task.py) and probabilities, or numbers, for a metric.

A cell of an answer that cannot be compared with the truth is an error: it would count as wrong, without a word.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, say
from podium.competition.build.class_columns import classes_of_columns
from podium.competition.build.grades import METRIC as GRADES_METRIC
from podium.competition.build.grades import are_grades
from podium.competition.build.positive_class import find_positive, put_positive_last
from podium.competition.decide.labels import find_separator, normalised_label, sort_labels
from podium.competition.decide.vote_columns import METRIC as VOTES_METRIC
from podium.competition.find.table import Table
from podium.tasks.metrics import METRICS
from podium.tasks.task import NUMBERS, ONE_LABEL, SEVERAL_LABELS, Targets
from podium_annex.scoring.solution import Pairs, true_labels, true_marks, true_votes

Array = NDArray[Any]
CONFIDENCE = r"(\S+) ([0-9.]+(?:[eE][-+]?[0-9]+)?)"  # after a label: `138982 0.1`
MOST_ODD_LINES = 0.1  # of a solution whose other lines mark one class
SUM_TOLERANCE = 1e-3  # of probabilities that are those of one label


class Comparable(NamedTuple):
    """What a metric compares."""

    metric: str
    targets: Targets  # the truth
    probs: Array  # of the submission; of numbers, the numbers


def read_without_form(pairs: Pairs, metric: str | None, positive: str | None) -> Comparable:
    """Returns what the metric compares; without one, accuracy is for labels and log loss for probabilities."""
    wants = METRICS[metric]().wants if metric else None
    if wants == "numbers" and metric:
        targets, numbers = _read_numbers(pairs)
        return Comparable(metric, Targets(NUMBERS, targets), numbers)
    names = list(pairs.answers)
    if metric == VOTES_METRIC and len(names) > 1 and set(names) <= set(pairs.truth):
        votes = true_votes(pairs.truth[names].set_axis(pairs.answers.index), pairs.solution)
        return Comparable(metric, votes, _values(pairs))
    marks = true_marks(pairs)
    if marks is not None:
        return _read_marks(pairs, marks, metric, positive)
    labels = true_labels(pairs)
    _refuse_several_labels(pairs, labels)
    if pairs.answers.shape[1] > 1 or wants == "probs":
        metric = metric or "log_loss"
        _refuse_labels(pairs, labels, metric)
        return _of_one_label(metric, *_read_probs(pairs, labels, positive))
    cells = pairs.answers.iloc[:, 0]
    if wants == "ranking" and metric:
        return _of_one_label(metric, *_read_rankings(pairs, cells, labels, METRICS[metric]().places))
    if metric in (None, "gap") and _have_confidence(cells, labels):
        return _of_one_label("gap", *_read_confidence(pairs, cells, labels))
    if metric is None:
        _refuse_numbers(pairs, labels)
    _refuse_other_labels(pairs, cells, labels)
    _note_guess_of_grades(metric, {*labels, *cells})
    return _of_one_label(metric or "accuracy", *_read_labels(cells, labels))


def _of_one_label(metric: str, numbers: Array, probs: Array) -> Comparable:
    return Comparable(metric, Targets(ONE_LABEL, numbers), probs)


def _refuse_several_labels(pairs: Pairs, labels: "pd.Series[str]") -> None:
    separator = find_separator(labels)
    if separator:
        several = labels[labels.str.contains(separator, regex=False)].iloc[0]
        raise PodiumError(
            f"{pairs.solution}: '{several}' holds several labels, and podium score compares one for each image; give"
            " both files a column of 0 and 1, or of probabilities, for each class"
        )


# --- numbers and probabilities -----------------------------------------------------------------------


def _read_numbers(pairs: Pairs) -> tuple[Array, Array]:
    answers, truth = pairs.answers, pairs.truth
    missing = [column for column in answers if column not in truth]
    if missing:
        raise PodiumError(f"{pairs.solution}: no column '{missing[0]}', which {pairs.path} has; add it")
    numbers = []
    for file, table in ((pairs.solution, truth[list(answers)]), (pairs.path, answers)):
        values = table.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
        is_unknown = (table == "").to_numpy() & (file == pairs.solution)  # the truth may be
        is_wrong = ~np.isfinite(values) & ~is_unknown
        if is_wrong.any():
            row, column = np.argwhere(is_wrong)[0]
            cell = table.iloc[row, column]
            raise PodiumError(
                f"{file}: id '{answers.index[row]}' has '{cell}', which is not a number; correct that row"
            )
        numbers.append(values)
    return numbers[0], numbers[1]


def _values(pairs: Pairs) -> Array:
    """Returns the submission's probabilities."""
    answers = pairs.answers
    values: Array = answers.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=np.float64)
    is_number = np.isfinite(values).all(axis=1)
    if not is_number.all():
        name = answers.index[is_number.argmin()]
        raise PodiumError(f"{pairs.path}: id '{name}' has a probability that is not a number; correct that row")
    _refuse_values(pairs, values, ((values < 0) | (values > 1)).any(axis=1))
    return values


def _refuse_values(pairs: Pairs, values: Array, is_wrong: Any) -> None:
    if is_wrong.any():
        row = is_wrong.argmax()
        name = pairs.answers.index[row]
        raise PodiumError(f"{pairs.path}: id '{name}' has no probabilities: {values[row]}; correct that row")


def _read_marks(pairs: Pairs, marks: pd.DataFrame, metric: str | None, positive: str | None) -> Comparable:
    """Reads a column for each class in both files: of one label if the truth and the probabilities are like that."""
    values, is_true, classes = _values(pairs), marks.to_numpy(), [str(name) for name in marks]
    have_sum_1 = (np.abs(values.sum(1) - 1) < SUM_TOLERANCE).all()
    if have_sum_1 and (metric is None or ONE_LABEL.name in METRICS[metric]().tasks):
        _refuse_odd_marks(pairs, marks)
    is_one_label = (is_true.sum(1) == 1).all() and have_sum_1
    if metric and SEVERAL_LABELS.name not in METRICS[metric]().tasks and (is_true.sum(1) == 1).all():
        is_one_label = True
    if not is_one_label:
        return Comparable(metric or "roc_auc", Targets(SEVERAL_LABELS, is_true.astype(np.float32)), values)
    _refuse_values(pairs, values, values.sum(axis=1) == 0)
    order = _order_of(classes, positive)
    return _of_one_label(metric or "log_loss", is_true[:, order].argmax(1), values[:, order])


def _refuse_odd_marks(pairs: Pairs, marks: pd.DataFrame) -> None:
    """Raises if few lines have no 1, or several: they would make all images ones with several labels."""
    counts = marks.sum(axis=1)
    odd = counts[counts != 1]
    if len(odd) and len(odd) <= MOST_ODD_LINES * len(counts):
        found = f"{odd.iloc[0]} columns with a 1" if odd.iloc[0] else "no column with a 1"
        raise PodiumError(
            f"{pairs.solution}, line {odd.index[0]}: {found}, and nearly all other lines have one; correct that line,"
            " or name the competition with -c if its images have several labels"
        )


def _order_of(classes: list[str], positive: str | None) -> list[int]:
    """Returns the columns in the order that metrics rely on: of two, that of the positive class last."""
    if len(classes) != 2:
        return list(range(len(classes)))
    return [classes.index(name) for name in put_positive_last(_card(positive), classes)]


def _card(positive: str | None) -> dict[str, str]:
    return {"positive": positive} if positive else {}


def _read_probs(pairs: Pairs, labels: "pd.Series[str]", positive: str | None) -> tuple[Array, Array]:
    values, answers = _values(pairs), pairs.answers
    classes, columns = sort_labels(set(labels)), [str(column) for column in answers.columns]
    if len(columns) == 1:
        if len(classes) != 2:
            problem = f"only one column of probabilities for {len(classes)} classes; give it a column for each class"
            raise PodiumError(f"{pairs.path}: {problem}")
        _note_guess(_card(positive), classes, columns[0])
        classes = put_positive_last(_card(positive), classes, columns[0])
        return _numbers_of(labels, classes), np.hstack([1 - values, values])
    _refuse_values(pairs, values, values.sum(axis=1) == 0)
    classes = classes_of_columns(columns, classes, Table(pairs.path, answers))
    order = _order_of(classes, positive)
    return _numbers_of(labels, [classes[number] for number in order]), values[:, order]


def _refuse_labels(pairs: Pairs, labels: "pd.Series[str]", metric: str) -> None:
    """Raises if the one column holds labels; 0 and 1 may be probabilities."""
    cells = pairs.answers.iloc[:, 0]
    are_labels = pairs.answers.shape[1] == 1 and cells.isin(set(labels)).all()
    if are_labels and not pd.to_numeric(cells, errors="coerce").between(0, 1).all():
        raise PodiumError(
            f"{pairs.path}: its cells hold labels, such as '{cells.iloc[0]}', and {metric} needs probabilities; take a"
            " --metric of labels, such as accuracy, or give the file a column of probabilities for each class"
        )


def _note_guess(card: dict[str, str], classes: Sequence[str], column: str) -> None:
    found = find_positive(card, classes, column)
    if found and found.is_guess:
        say(
            f"podium: note: that the probabilities are of '{found.label}' is a guess (the last by the alphabet);"
            f" --positive says which of {first_few(classes)}"
        )


def _note_guess_of_grades(metric: str | None, labels: set[str]) -> None:
    classes = sort_labels(labels)
    if metric == GRADES_METRIC and len(classes) > 2 and not are_grades({}, classes):
        say(
            f"podium: note: that the grades rise as {first_few(classes)} is a guess, their order as text; write them as"
            " numbers in both files"
        )


def _numbers_of(labels: "pd.Series[str]", classes: Sequence[str]) -> Array:
    """Returns the number of each label among the classes, which hold all of them."""
    number_of = {name: number for number, name in enumerate(classes)}
    return np.array([number_of[label] for label in labels], np.int64)


# --- labels ------------------------------------------------------------------------------------------


def _read_labels(answers: "pd.Series[str]", labels: "pd.Series[str]") -> tuple[Array, Array]:
    """Returns each answered label as a probability of one."""
    classes = _classes_of_scale(set(labels) | set(answers))
    return _numbers_of(labels, classes), np.eye(len(classes))[_numbers_of(answers, classes)]


def _classes_of_scale(labels: set[str]) -> list[str]:
    """Returns the classes in order, with all numbers between the least and the greatest.

    Metrics that measure distances between classes need the whole scale.
    """
    classes = sort_labels(labels)
    if not all(name.isdecimal() and len(name) < 4 for name in classes):
        return classes
    return sort_labels(labels | {str(number) for number in range(int(classes[0]), int(classes[-1]))})


def _read_rankings(
    pairs: Pairs, answers: "pd.Series[str]", labels: "pd.Series[str]", places: int
) -> tuple[Array, Array]:
    """Returns as classes the places of a cell, and one for labels that it lacks: that is all that counts."""
    spaced = labels[labels.str.contains(r"\s")]
    if len(spaced):
        raise PodiumError(
            f"{pairs.solution}: the label '{spaced.iloc[0]}' has a blank, which separates those of a ranking"
        )
    cells = answers.str.split()
    _refuse_other_labels(pairs, cells.explode().fillna(""), labels)
    count = max(places, int(cells.str.len().max()))
    targets = [row.index(label) if label in row else count for row, label in zip(cells, labels, strict=True)]
    return np.array(targets, np.int64), np.tile(1 / np.arange(1.0, count + 2), (len(cells), 1))


def _have_confidence(answers: "pd.Series[str]", labels: "pd.Series[str]") -> bool:
    """Returns whether the answers are labels with their probability, or blank; plain labels may look the same."""
    answered = answers[answers.str.strip() != ""]
    if not len(answered) or answered.isin(set(labels)).any():
        return False
    return bool(answered.str.fullmatch(CONFIDENCE).all() and answered.str.partition(" ")[0].isin(set(labels)).any())


def _read_confidence(pairs: Pairs, answers: "pd.Series[str]", labels: "pd.Series[str]") -> tuple[Array, Array]:
    """Returns the rank of each answer's probability for its label; a blank cell answers with a label of its own."""
    parts = answers.str.partition(" ")
    _refuse_other_labels(pairs, parts[0][answers.str.strip() != ""], labels)
    classes = sort_labels(set(labels) | set(parts[0]))
    ranks = pd.to_numeric(parts[2], errors="coerce").fillna(-1).rank(method="min", pct=True)
    probs = np.zeros((len(answers), len(classes)))
    probs[np.arange(len(answers)), _numbers_of(parts[0], classes)] = ranks
    return _numbers_of(labels, classes), probs


# --- cells that are no labels ------------------------------------------------------------------------


def _spelling(cell: str) -> str:
    """Returns the same for `1`, `1.0`, ` 1` and `True`."""
    text = normalised_label(cell)
    return {"True": "1", "False": "0"}.get(text, text)


def _is_fraction(cell: str) -> bool:
    return "/" in normalised_label(cell) and "/" not in cell  # 0.5 becomes 1/2


def _refuse_numbers(pairs: Pairs, labels: "pd.Series[str]") -> None:
    fractions = [label for label in labels.unique() if _is_fraction(label)]
    if fractions:
        raise PodiumError(
            f"{pairs.solution}: '{fractions[0]}' looks like a number, not like a label; give a --metric, such as rmse"
        )


def _refuse_other_labels(pairs: Pairs, answers: "pd.Series[str]", labels: "pd.Series[str]") -> None:
    """Raises if an answer is a label in another spelling or a probability, or if none is a label of the solution."""
    known = set(labels)
    unknown = answers[~answers.isin(known)]
    written = {_spelling(label): label for label in known}
    for name, cell in unknown.drop_duplicates().items():
        label = written.get(_spelling(cell))
        if label is not None:
            raise PodiumError(
                f"{pairs.path}: id '{name}' has '{cell}', and {pairs.solution} writes '{label}'; write labels as there"
            )
    fractions = [] if any(map(_is_fraction, known)) else [cell for cell in unknown.unique() if _is_fraction(cell)]
    if fractions or len(unknown) == len(answers):
        cell = next(iter([*fractions, *unknown]), "")
        raise PodiumError(
            f"{pairs.path}: '{cell}' is no label; those of {pairs.solution} are {first_few(sort_labels(known))}; give a"
            " --metric for what the cells hold, such as roc_auc (probabilities), map_at_5 (rankings) or rmse (numbers)"
        )
