"""What a model learns of an image: one label, any number of labels, a label in each of several columns, or numbers.

A target is text in all tables (the training rows, folds.csv, corrections), and an array in training and scoring. Its
type says which task it is of:

    one_label       `cat`         the class's number          int64 [images]
    several_labels  `cat|indoors` a 1 for each label, else 0  float32 [images, classes]
    several_targets `a=3|b=x`     see SeveralTargets          int8 [images, classes]
    numbers         `0.5|12`      the numbers, nan if unknown float64 [images, columns]

The model has an output for each class, or column of numbers. With one label, its probabilities sum to 1; with several,
each class has a probability of its own, and an image may have no label at all. With several targets, those of each
column sum to 1.
"""

from __future__ import annotations  # numpy appears in the types and is imported only where numbers are computed

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Targets = NDArray[Any]  # see above
else:
    Targets = Any

SEPARATOR = "|"  # between the labels or numbers of an image, in our own tables
HALF = 0.5  # from this probability on, one of several labels is predicted


class OneLabel:
    name = "one_label"
    words = "one label an image"
    loss = "log_loss"  # the metric that goes with the training loss, whatever the competition's metric is
    training_loss = "loss"  # in words, with its unit if the metric above has another

    def labels_of(self, target: str) -> tuple[str, ...]:
        """Returns the labels in a target's text."""
        return (target,)

    def encode(self, targets: Iterable[str], classes: Sequence[str]) -> Targets:
        """Returns the numbers of the targets."""
        import numpy as np

        number_of = {name: number for number, name in enumerate(classes)}
        return np.array([number_of[target] for target in targets], np.int64)

    def decode(self, target: Any, classes: Sequence[str]) -> str:
        """Returns the text of one image's target."""
        return str(classes[target])

    def in_order(self, target: str, classes: Sequence[str]) -> str:
        """Returns the text with the labels in the order of the classes, as all our tables have it."""
        return target


class SeveralLabels:
    name = "several_labels"
    words = "several labels an image"
    loss = "log_loss"
    training_loss = "loss"

    def labels_of(self, target: str) -> tuple[str, ...]:
        return tuple(target.split(SEPARATOR)) if target else ()

    def encode(self, targets: Iterable[str], classes: Sequence[str]) -> Targets:
        import numpy as np

        number_of = {name: number for number, name in enumerate(classes)}
        numbers = [[number_of[label] for label in self.labels_of(target)] for target in targets]
        encoded = np.zeros((len(numbers), len(classes)), np.float32)
        for row, own in zip(encoded, numbers, strict=True):
            row[own] = 1
        return encoded

    def decode(self, target: Any, classes: Sequence[str]) -> str:
        import numpy as np

        return SEPARATOR.join(classes[number] for number in np.flatnonzero(target).tolist())

    def in_order(self, target: str, classes: Sequence[str]) -> str:
        labels = set(self.labels_of(target))
        return SEPARATOR.join(name for name in classes if name in labels)


class SeveralTargets(SeveralLabels):
    """A label in each of several columns; the classes are called `column=label` and stand column by column.

    In an array, the classes of the first column are 1 and -1, those of the second 2 and -2, and so on: the positive one
    is true. So the array says which classes belong together.
    """

    name = "several_targets"
    words = "a label in each of several columns"

    def encode(self, targets: Iterable[str], classes: Sequence[str]) -> Targets:
        import numpy as np

        numbers = np.array(column_numbers(classes), np.int8)
        return np.where(super().encode(targets, classes) > 0, numbers, -numbers)

    def decode(self, target: Any, classes: Sequence[str]) -> str:
        return super().decode(target > 0, classes)


def column_and_label(name: str) -> tuple[str, str]:
    """Returns both parts of a class of several targets."""
    column, _, label = name.partition("=")
    return column, label


def column_numbers(classes: Sequence[str]) -> list[int]:
    """Returns the number of each class's column, from 1; nothing for the classes of other tasks."""
    if not all("=" in name for name in classes):
        return []
    columns = list(dict.fromkeys(column_and_label(name)[0] for name in classes))
    return [columns.index(column_and_label(name)[0]) + 1 for name in classes]


def parts_by_column(classes: Sequence[str]) -> dict[str, slice]:
    """Returns where the classes of each column of several targets stand, by the column's name."""
    parts = parts_of(column_numbers(classes))
    return {column_and_label(classes[part.start])[0]: part for part in parts}


def parts_of(columns: Sequence[int]) -> list[slice]:
    """Returns where the classes of each column stand; `columns` has the column's number for each class."""
    starts = [number for number in range(len(columns)) if number == 0 or columns[number] != columns[number - 1]]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(columns)], strict=True)]


class Numbers:
    name = "numbers"
    words = "numbers"
    loss = "rmse"
    training_loss = "loss (squared error, in deviations)"

    def labels_of(self, target: str) -> tuple[str, ...]:
        return ()

    def encode(self, targets: Iterable[str], classes: Sequence[str]) -> Targets:
        import numpy as np

        rows = [[float(cell or "nan") for cell in target.split(SEPARATOR)] for target in targets]
        return np.array(rows, np.float64).reshape(len(rows), len(classes))

    def decode(self, target: Any, classes: Sequence[str]) -> str:
        return SEPARATOR.join("" if number != number else format(float(number), ".12g") for number in target)

    def in_order(self, target: str, classes: Sequence[str]) -> str:
        return target


Task = OneLabel | SeveralLabels | SeveralTargets | Numbers
ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, NUMBERS = OneLabel(), SeveralLabels(), SeveralTargets(), Numbers()
TASKS: dict[str, Task] = {task.name: task for task in (ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, NUMBERS)}


def answers_of(probs: NDArray[Any], task: Task, columns: Sequence[int] = ()) -> Targets:
    """Returns the predicted targets: the most probable class, the classes that are more probable than not, numbers.

    With several targets, the most probable class of each column; `columns` has the column's number for each class.
    """
    import numpy as np

    if task is SEVERAL_LABELS:
        return (probs >= HALF).astype(np.float32)
    if task is SEVERAL_TARGETS:
        numbers = np.array(columns, np.int8)
        is_best = np.zeros(probs.shape, bool)
        for part in parts_of(columns):
            np.put_along_axis(is_best[..., part], probs[..., part].argmax(-1)[..., None], True, -1)
        return np.where(is_best, numbers, -numbers)
    predicted: Targets = probs.argmax(-1) if task is ONE_LABEL else probs.astype(np.float64)
    return predicted


def are_right(targets: Targets, probs: NDArray[Any]) -> NDArray[np.bool_]:
    """Returns which images are predicted without a mistake; the last two axes of `probs` are images and classes."""
    task = task_of(targets)
    matches = answers_of(probs, task, columns_in(targets)) == targets
    right: NDArray[np.bool_] = matches if targets.ndim == 1 else matches.all(-1)
    return right


def task_of(targets: Targets) -> Task:
    """Returns the task that such targets are of: see the table above."""
    if targets.ndim == 1:
        return ONE_LABEL
    if targets.dtype == "int8":
        return SEVERAL_TARGETS
    return NUMBERS if targets.dtype == "float64" else SEVERAL_LABELS


def columns_in(targets: Targets) -> list[int]:
    """Returns the column's number for each class of several targets; nothing for other tasks."""
    if task_of(targets) is not SEVERAL_TARGETS or not len(targets):
        return []
    numbers: list[int] = abs(targets[0]).tolist()
    return numbers


def class_columns(classes: Sequence[str], taken: Collection[str]) -> list[str]:
    """Returns the names of the classes' columns in a table with these other columns: `class id` for a class `id`."""
    return [f"class {name}" if name in taken else name for name in classes]


def labels_in(task: Task, targets: Iterable[str]) -> set[str]:
    """Returns all labels in these targets."""
    return {label for target in set(targets) for label in task.labels_of(target)}
