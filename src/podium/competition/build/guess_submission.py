"""Guesses a submission's format and the order of the classes from the sample submission, the card and the labels."""

import re
from typing import NamedTuple

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, plural
from podium.competition.build.class_columns import advise_other_sample, classes_of_columns
from podium.competition.build.grades import METRIC, order_grades
from podium.competition.build.positive_class import note_on_guess, put_positive_last
from podium.competition.build.read_rows import Rows
from podium.competition.build.submission_format import NO_SAMPLE, SubmissionFormat
from podium.competition.build.unknown_class import UnknownClass, find_unknown, note_on_placeholder
from podium.competition.card import Card
from podium.competition.decide.labels import MARKS, NO_MARKS, are_numbers, are_words, sort_labels
from podium.competition.decide.layout import Layout, TargetColumns
from podium.competition.find.csv_files import csv_style_of
from podium.competition.find.table import Table
from podium.tasks.metrics import METRICS
from podium.tasks.task import ONE_LABEL, column_and_label, labels_in


class Labels(NamedTuple):
    """What is known of the labels when a submission's format is guessed."""

    card: Card
    id_column: str  # of the training table
    targets: TargetColumns
    names: list[str]  # of the training images, in order; then the unknown class
    marked: str | None  # of two, the one that another column of the training table marks with 1
    unknown: UnknownClass | None = None  # that no training image has
    are_voted: bool = False  # the shares of the votes are learned

    def taught(self, classes: list[str]) -> list[str]:
        """Returns those of the classes that images may be labelled with: all but the unknown one."""
        return [name for name in classes if self.unknown is None or name != self.unknown.name]

    @property
    def notes(self) -> tuple[str, ...]:
        return self.unknown.notes if self.unknown else ()


def labels_of(layout: Layout, rows: Rows, sample: Table | None) -> Labels:
    targets = layout.train.targets
    names = order_grades(layout.card, labels_in(targets.task, rows.train["target"]))
    labels = Labels(layout.card, layout.train.id_column, targets, names, rows.marked, are_voted=rows.votes is not None)
    is_possible = targets.task is ONE_LABEL and not (sample is not None and _have_confidence(sample, labels))
    unknown = find_unknown(layout.card, names, sample, is_possible)
    if unknown and rows.answers:
        remedy = layout.card.advise('unknown = ""')
        raise PodiumError(f"rows of the submission are for several images each, which cannot be unknown; {remedy}")
    return labels._replace(names=[*names, unknown.name], unknown=unknown) if unknown else labels


class Answer(NamedTuple):
    """What the cells of a submission hold."""

    wants: str  # of WANTS in metrics.py
    classes: list[str]
    notes: tuple[str, ...] = ()
    reason: str = ""


def guess_submission(sample: Table | None, labels: Labels) -> tuple[SubmissionFormat, list[str]]:
    """Returns the format and the classes: those of the training images, and others with a column in the sample."""
    card, task = labels.card, labels.targets.task
    _refuse_other_wants(labels)
    if sample is None:
        return _format_without_sample(labels)
    answer_columns = sample.answer_columns
    if not answer_columns:
        raise PodiumError(
            f"{sample.path}: only one column, but a submission has an id and a prediction{advise_other_sample(card)}"
        )
    answer = _answer_in(sample, labels)
    wants, classes = answer.wants, answer.classes
    column_classes = tuple(classes) if len(answer_columns) > 1 and task is ONE_LABEL else ()
    classes = _as_metrics_count(labels, classes) if column_classes else classes
    position = sample.id_position
    columns = (*answer_columns[:position], str(sample.rows.columns[0]), *answer_columns[position:])
    counted = None if sample.counted is None else (str(sample.counted.name), tuple(sample.counted))
    in_file = [*(counted[:1] if counted else ()), *(sample.long.columns if sample.long else columns)]
    csv_style = csv_style_of(sample.path, in_file)
    ids, on_ids = _repeated_ids(sample)
    on_answers = _notes_on_answers(sample, labels) if wants == "labels" and len(answer_columns) == 1 else ()
    form = SubmissionFormat(
        columns,
        wants,
        sample.path.name,
        csv_style,
        position,
        notes=(*answer.notes, *on_answers, *on_ids, *csv_style.notes),
        ids=ids,
        separator=labels.targets.separator or " ",
        places=_places(sample, card) if wants == "ranking" else 1,
        has_confidence=wants == "labels" and _have_confidence(sample, labels),
        long=sample.long,
        column_classes=column_classes,
        reason=answer.reason,
        counted=counted,
    )
    return form, classes


def _repeated_ids(sample: Table) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the ids of all rows if several have one id, and a note."""
    ids = sample.rows.iloc[:, 0]
    if sample.long or not ids.duplicated().any():
        return (), ()
    note = (
        f"{sample.path.name}: its {len(ids):,} rows have {plural(ids.nunique(), 'id')}; rows of one id get one answer"
    )
    return tuple(ids), (note,)


def _as_metrics_count(labels: Labels, classes: list[str]) -> list[str]:
    """Returns the classes of several columns in the order that metrics rely on, whatever the order of the columns.

    Of two classes the positive one comes last; grades are in theirs.
    """
    if len(classes) == 2:
        return put_positive_last(labels.card, classes, marked=labels.marked)
    return order_grades(labels.card, set(classes)) if labels.card.get("metric") == METRIC else classes


def _answer_in(sample: Table, labels: Labels) -> Answer:
    """Returns what the sample's cells hold, and the classes."""
    card, task, names, answer_columns = labels.card, labels.targets.task, labels.names, sample.answer_columns
    if task.has_columns:
        return Answer(task.wants[0], _classes_by_column(labels), reason=f"there are {task.words}")
    if len(answer_columns) > 1:
        if card.get("wants") == "labels":
            raise PodiumError(
                f"{sample.path}: {len(answer_columns)} columns to fill, not one label;"
                f' remove wants = "labels" from {card.path}'
            )
        classes = classes_of_columns(answer_columns, names, sample, card)
        return Answer("probs", classes, reason="the sample submission has a column for each class")
    if task is not ONE_LABEL:
        return Answer("labels", names, reason="the sample submission has one column to fill")
    wants, reason = _guess_wants(sample, labels)
    if wants == "labels" and "wants" not in card:
        _refuse_words_for_numbers(sample, labels)
    if wants != "probs":
        return Answer(wants, names, _note_on_marks(sample, labels) if wants == "labels" else (), reason)
    if len(names) != 2:
        problem = f"one column to fill for {len(names)} classes"
        raise PodiumError(f'{sample.path}: {problem}; remove wants = "probs" from {card.path}')
    notes = note_on_guess(card, names, answer_columns[0], labels.marked)
    return Answer(wants, put_positive_last(card, names, answer_columns[0], labels.marked), tuple(notes), reason)


def _format_without_sample(labels: Labels) -> tuple[SubmissionFormat, list[str]]:
    card, targets, names = labels.card, labels.targets, labels.names
    task, separator = targets.task, targets.separator
    if task.has_columns:
        columns = (labels.id_column, *targets.columns)
        form = SubmissionFormat(columns, task.wants[0], NO_SAMPLE, reason=f"there are {task.words}")
        return form, _classes_by_column(labels)
    has_one_label, reason = task is ONE_LABEL, "the usual one"
    default = "labels" if has_one_label or separator else "probs"
    if has_one_label and "metric" in card and METRICS[card["metric"]]().wants == "ranking":
        default, reason = "ranking", f"{card['metric']} needs it"
    wants = card.get("wants", default)
    is_single_column = wants != "probs" or (len(names) == 2 and has_one_label)
    columns = (labels.id_column, targets.name) if is_single_column else (labels.id_column, *names)
    classes, notes = names, list[str]()
    if has_one_label:
        classes = put_positive_last(card, names, targets.name, labels.marked)
        notes = note_on_guess(card, names, targets.name, labels.marked) if wants == "probs" else []
    form = SubmissionFormat(
        columns,
        wants,
        NO_SAMPLE,
        notes=tuple(notes),
        separator=separator or " ",
        places=_places(None, card) if wants == "ranking" else 1,
        reason=card.origin_of("wants", reason),
    )
    return form, classes


def _classes_by_column(labels: Labels) -> list[str]:
    """Returns the columns of numbers, or the classes of each column; in the order of the training table."""
    columns = list(labels.targets.columns)
    if not labels.targets.task.are_labels:
        return columns
    pairs = [column_and_label(name) for name in labels.names]
    return [
        f"{column}={label}"
        for column in columns
        for label in sort_labels({label for own, label in pairs if own == column})
    ]


def _refuse_other_wants(labels: Labels) -> None:
    """Raises if the card wants answers that the task does not have."""
    card, task = labels.card, labels.targets.task
    if card.get("wants", task.wants[0]) not in task.wants:
        raise PodiumError(
            f'{card.path}: wants = "{card["wants"]}", but the training table has {task.words}; write'
            f' {" or ".join(task.wants)} there, or task = "NAME"'
        )


def _places(sample: Table | None, card: Card) -> int:
    """Returns how many labels of a ranking a cell holds: as many as in the sample submission, else as the metric."""
    count = _labels_in_cells(sample) if sample else 1
    metric = card.get("metric")
    return count if count > 1 or metric is None else METRICS[metric]().places


def _labels_in_cells(sample: Table) -> int:
    """Returns how many labels, separated by blanks, each cell of the answers holds; 1 if that differs."""
    counts = sample.rows.iloc[:, 1].str.split().str.len().unique()
    return int(counts[0]) if len(counts) == 1 else 1


def _guess_wants(sample: Table, labels: Labels) -> tuple[str, str]:
    """Returns what a single answer column holds, and why: labels, the probability of one of two classes, or a ranking.

    It holds probabilities if the card's metric needs them, or if its placeholders are like 0.5 and are not labels.
    It holds a ranking if the card's metric needs one, or if each of its cells holds the same number of labels.
    """
    card, names = labels.card, labels.names
    if "wants" in card:
        return card["wants"], card.origin_of("wants")
    metric = card.get("metric")
    wants = METRICS[metric]().wants if metric else None
    if wants == "ranking":
        return wants, f"{metric} needs it"
    first_words = str(sample.rows.iloc[0, 1]).split()
    if len(set(first_words)) == _labels_in_cells(sample) > 1 and set(first_words) <= set(names):
        return "ranking", "each cell of the sample submission holds several labels"
    if len(names) != 2:
        return "labels", "the sample submission has one column to fill"
    if wants == "probs":
        return wants, f"{metric} needs them"
    answers = {cell.strip() for cell in sample.rows.iloc[:, 1]} - {"", *names}
    if answers and all(map(_is_probability, answers)):
        if any(re.search(r"[.eE]", answer) for answer in answers):
            return "probs", "the cells of the sample submission are fractions"
        if are_words(names):
            return "probs", "the cells of the sample submission are numbers, and the labels are words"
    return "labels", "the cells of the sample submission are no fractions"


def _note_on_marks(sample: Table, labels: Labels) -> tuple[str, ...]:
    """Says that 0 and 1 are a guess where a probability of 1 may be wanted."""
    card, marks = labels.card, {*MARKS, *NO_MARKS}
    answers = set(sample.rows.iloc[:, 1].str.strip())
    if {"wants", "metric"} & set(card) or not {*labels.names} <= marks or not answers <= marks:
        return ()
    return (
        f"that the answers are {' or '.join(labels.names)}, not probabilities, is a guess: most competitions with these"
        " two labels score the order of probabilities; " + card.advise('metric = "NAME"', 'wants = "probs"'),
    )


def _refuse_words_for_numbers(sample: Table, labels: Labels) -> None:
    """Raises if the sample's answers are numbers and the labels are words: Kaggle would refuse them, or score zero."""
    answers = [cell for cell in sample.rows.iloc[:, 1].str.strip() if cell]
    if not answers or not are_numbers(answers) or not are_words(labels.names):
        return
    raise PodiumError(
        f"{sample.path}: its answers are numbers, such as {answers[0]}, but the labels are words, such as"
        f" '{labels.names[0]}'; if another column of the training table holds the numbers, "
        + labels.card.advise('target_column = "NAME"')
        + ", and if words are wanted all the same, "
        + labels.card.advise('wants = "labels"')
    )


def _have_confidence(sample: Table, labels: Labels) -> bool:
    """Returns whether each answer is a label and a probability; a blank one says that there is no label."""
    if labels.targets.task is not ONE_LABEL or len(sample.rows.columns) < 2:
        return False
    answers = sample.rows.iloc[:, 1].str.strip()
    answers = answers[answers != ""]
    return len(answers) > 0 and bool(answers.str.fullmatch(r"\S+ ([01]?\.[0-9]+|1\.0*|[0-9.]+e-[0-9]+)").all())


def _is_probability(cell: str) -> bool:
    try:
        return 0 <= float(cell) <= 1
    except ValueError:
        return False


def _notes_on_answers(sample: Table, labels: Labels) -> tuple[str, ...]:
    answers = sample.rows.iloc[:, 1]
    if _have_confidence(sample, labels):
        answers = answers.str.partition(" ")[0]
    elif labels.targets.task is not ONE_LABEL:
        answers = answers.str.split(labels.targets.separator or " ").explode().fillna("")
    unknown = answers[~answers.isin(labels.names) & (answers.str.strip() != "")].drop_duplicates()
    if not len(unknown):
        return ()
    return (
        f"{sample.path.name} has answers that are not labels of the training table: {first_few(map(repr, unknown))};"
        " the submission will hold the labels of the training table, unchanged"
        + note_on_placeholder(labels.card, unknown.tolist()),
    )
