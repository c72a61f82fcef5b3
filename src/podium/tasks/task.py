"""What a model learns of an image: one label, any number of labels, a label in each of several columns, or numbers.

A target is text in all tables (the training rows, folds.csv, corrections). In training and scoring, `Targets` hold an
array of them and say which task they are of:

    one_label       `cat`         the class's number          int64 [images]
    several_labels  `cat|indoors` a 1 for each label, else 0  float32 [images, classes]
    several_targets `a=3|b=x`     a 1 for each label, else 0  int8 [images, classes]
    numbers         `0.5|12`      the numbers, nan if unknown float64 [images, columns]

The model has an output for each class, or column of numbers. With one label, its probabilities sum to 1; with several,
each class has a probability of its own, and an image may have no label at all. With several targets, those of each
column sum to 1; the classes are called `column=label` and stand column by column.

Where experts voted, the one label is the class with the most votes, and `Targets` also hold the shares of all classes.
"""

from __future__ import annotations  # numpy appears in the types and is imported only where numbers are computed

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[Any]

SEPARATOR = "|"  # between the labels or numbers of an image, in our own tables
HALF = 0.5  # from this probability on, one of several labels is predicted


@dataclass(frozen=True, eq=False)  # arrays have no truth value
class Targets:
    """The targets of images as an array, and the task they are of: see the table above."""

    task: Task
    values: Array
    columns: tuple[int, ...] = ()  # of several targets: the number of each class's column, from 1
    may_be_blank: bool = True  # else an image of which no label is probable answers its most probable one
    votes: Array | None = None  # of one label, if experts voted: the share of each class, float32 [images, classes]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, images: Any) -> Targets:
        """Returns the targets of some images: a mask, positions or a slice."""
        votes = None if self.votes is None else self.votes[images]
        return replace(self, values=self.values[images], votes=votes)

    @property
    def taught(self) -> Array:
        """What the images teach: the shares of the classes if experts voted, else the values."""
        return self.values if self.votes is None else self.votes

    def with_votes(self, votes: Array) -> Targets:
        """Returns the targets with these shares; a label without the largest one was corrected, and gets all votes."""
        import numpy as np

        is_corrected = votes[np.arange(len(self)), self.values] < votes.max(1)
        whole = self.are_true(votes.shape[1])
        return replace(self, votes=np.where(is_corrected[:, None], whole, votes).astype(np.float32))

    def parts(self, count: int) -> list[slice]:
        """Returns the parts of so many classes in which the probabilities sum to 1."""
        return self.task.parts(count, self.columns)

    def answers(self, probs: Array) -> Array:
        """Returns the values that these probabilities, or numbers, answer, as the cells of a submission hold them."""
        answers = self.task.answers(probs, self.columns)
        return answers if self.may_be_blank else add_most_probable(answers, probs)

    def are_true(self, count: int) -> NDArray[np.bool_]:
        """Returns which of so many classes an image has [images, classes]."""
        import numpy as np

        if self.values.ndim == 1:
            return np.asarray(np.arange(count) == self.values[:, None])
        return np.asarray(self.values > 0)

    def truth(self, count: int) -> Array:
        """Returns the share of each of so many classes in an image's votes; without votes, which it has."""
        return self.are_true(count) if self.votes is None else self.votes.astype("float64")

    def counts(self, count: int) -> Array:
        """Returns how many images have each of so many classes; votes add up."""
        import numpy as np

        if self.votes is not None:
            return np.asarray(self.votes.sum(0, dtype=np.float64))
        if self.values.ndim == 1:
            return np.bincount(self.values, minlength=count)
        return np.asarray((self.values > 0).sum(0))


class OneLabel:
    name = "one_label"
    words = "one label an image"
    loss = "log_loss"  # the metric that goes with the training loss, whatever the competition's metric is
    training_loss = "loss"  # in words, with its unit if the metric above has another
    wants: tuple[str, ...] = ("labels", "probs", "ranking")  # what a submission's cells can hold, the usual first
    are_labels = True
    sums_to_one = True  # the probabilities of all classes together
    has_columns = False  # the answers stand in columns, with a label or a number in each

    def labels_of(self, target: str) -> tuple[str, ...]:
        """Returns the labels in a target's text."""
        return (target,)

    def encode(self, targets: Iterable[str], classes: Sequence[str]) -> Targets:
        """Returns the targets of these texts."""
        import numpy as np

        number_of = {name: number for number, name in enumerate(classes)}
        return Targets(self, np.array([number_of[target] for target in targets], np.int64))

    def decode(self, target: Any, classes: Sequence[str]) -> str:
        """Returns the text of one image's value."""
        return str(classes[target])

    def sort_labels(self, target: str, classes: Sequence[str]) -> str:
        """Returns the text with the labels in the order of the classes, as all our tables have it."""
        return target

    def columns_of(self, classes: Sequence[str]) -> tuple[int, ...]:
        """Returns the number of each class's column, from 1; nothing where a class has none."""
        return ()

    def parts(self, count: int, columns: Sequence[int] = ()) -> list[slice]:
        """Returns the parts of so many classes in which the probabilities sum to 1; `columns` as in `Targets`."""
        return [slice(0, count)]

    def answers(self, probs: Array, columns: Sequence[int] = ()) -> Array:
        """Returns the values that probabilities, or numbers, answer: their last two axes are images and classes."""
        answers: Array = probs.argmax(-1)
        return answers


class SeveralLabels:
    name = "several_labels"
    words = "several labels an image"
    loss = "log_loss"
    training_loss = "loss"
    wants: tuple[str, ...] = ("labels", "probs")
    are_labels = True
    sums_to_one = False
    has_columns = False

    def labels_of(self, target: str) -> tuple[str, ...]:
        return tuple(target.split(SEPARATOR)) if target else ()

    def encode(self, targets: Iterable[str], classes: Sequence[str]) -> Targets:
        import numpy as np

        return Targets(self, self._marks(targets, classes).astype(np.float32))

    def _marks(self, targets: Iterable[str], classes: Sequence[str]) -> Array:
        import numpy as np

        number_of = {name: number for number, name in enumerate(classes)}
        numbers = [[number_of[label] for label in self.labels_of(target)] for target in targets]
        marks = np.zeros((len(numbers), len(classes)), np.int8)
        for row, own in zip(marks, numbers, strict=True):
            row[own] = 1
        return marks

    def decode(self, target: Any, classes: Sequence[str]) -> str:
        import numpy as np

        return SEPARATOR.join(classes[number] for number in np.flatnonzero(target).tolist())

    def sort_labels(self, target: str, classes: Sequence[str]) -> str:
        labels = set(self.labels_of(target))
        return SEPARATOR.join(name for name in classes if name in labels)

    def columns_of(self, classes: Sequence[str]) -> tuple[int, ...]:
        return ()

    def parts(self, count: int, columns: Sequence[int] = ()) -> list[slice]:
        return []

    def answers(self, probs: Array, columns: Sequence[int] = ()) -> Array:
        import numpy as np

        return (probs >= HALF).astype(np.float32)


class SeveralTargets(SeveralLabels):
    name = "several_targets"
    words = "a label in each of several columns"
    wants = ("labels",)
    has_columns = True

    def encode(self, targets: Iterable[str], classes: Sequence[str]) -> Targets:
        return Targets(self, self._marks(targets, classes), self.columns_of(classes))

    def columns_of(self, classes: Sequence[str]) -> tuple[int, ...]:
        columns = list(dict.fromkeys(column_and_label(name)[0] for name in classes))
        return tuple(columns.index(column_and_label(name)[0]) + 1 for name in classes)

    def parts(self, count: int, columns: Sequence[int] = ()) -> list[slice]:
        return parts_of(columns)

    def answers(self, probs: Array, columns: Sequence[int] = ()) -> Array:
        import numpy as np

        is_best = np.zeros(probs.shape, np.int8)
        for part in parts_of(columns):
            np.put_along_axis(is_best[..., part], probs[..., part].argmax(-1)[..., None], 1, -1)
        return is_best


class Numbers:
    name = "numbers"
    words = "numbers"
    loss = "rmse"
    training_loss = "loss (in deviations)"
    wants: tuple[str, ...] = ("numbers",)
    are_labels = False
    sums_to_one = False
    has_columns = True

    def labels_of(self, target: str) -> tuple[str, ...]:
        return ()

    def encode(self, targets: Iterable[str], classes: Sequence[str]) -> Targets:
        import numpy as np

        rows = [[float(cell or "nan") for cell in target.split(SEPARATOR)] for target in targets]
        return Targets(self, np.array(rows, np.float64).reshape(len(rows), len(classes)))

    def decode(self, target: Any, classes: Sequence[str]) -> str:
        return SEPARATOR.join("" if number != number else format(float(number), ".12g") for number in target)

    def sort_labels(self, target: str, classes: Sequence[str]) -> str:
        return target

    def columns_of(self, classes: Sequence[str]) -> tuple[int, ...]:
        return ()

    def parts(self, count: int, columns: Sequence[int] = ()) -> list[slice]:
        return []

    def answers(self, probs: Array, columns: Sequence[int] = ()) -> Array:
        answers: Array = probs.astype("float64")
        return answers


Task = OneLabel | SeveralLabels | SeveralTargets | Numbers
ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, NUMBERS = OneLabel(), SeveralLabels(), SeveralTargets(), Numbers()
TASKS: dict[str, Task] = {task.name: task for task in (ONE_LABEL, SEVERAL_LABELS, SEVERAL_TARGETS, NUMBERS)}


# --- the columns of several targets ------------------------------------------------------------------


def column_and_label(name: str) -> tuple[str, str]:
    """Returns both parts of a class of several targets."""
    column, _, label = name.partition("=")
    return column, label


def parts_by_column(classes: Sequence[str]) -> dict[str, slice]:
    """Returns where the classes of each column of several targets stand, by the column's name."""
    parts = parts_of(SEVERAL_TARGETS.columns_of(classes))
    return {column_and_label(classes[part.start])[0]: part for part in parts}


def parts_of(columns: Sequence[int]) -> list[slice]:
    """Returns where the classes of each column stand; `columns` has the column's number for each class."""
    starts = [number for number in range(len(columns)) if number == 0 or columns[number] != columns[number - 1]]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(columns)], strict=True)]


def joined(parts: Sequence[Targets]) -> Targets:
    """Returns the targets of all parts, which are of one task."""
    import numpy as np

    voted = next((part.votes for part in parts if part.votes is not None), None)
    votes = None
    if voted is not None:
        votes = np.concatenate([part.truth(voted.shape[1]) for part in parts]).astype(np.float32)
    return replace(parts[0], values=np.concatenate([part.values for part in parts]), votes=votes)


# --- answers -----------------------------------------------------------------------------------------


def add_most_probable(answers: Array, probs: Array) -> Array:
    """Adds each image's most probable label to its labels; where it has some, this is one of them."""
    import numpy as np

    filled = answers.copy()
    np.put_along_axis(filled, probs.argmax(-1)[..., None], 1, -1)
    return filled


def are_right(targets: Targets, probs: Array) -> NDArray[np.bool_]:
    """Returns which images are predicted without a mistake; the last two axes of `probs` are images and classes."""
    matches = targets.answers(probs) == targets.values
    right: NDArray[np.bool_] = matches if targets.values.ndim == 1 else matches.all(-1)
    return right


def class_columns(classes: Sequence[str], taken: Collection[str]) -> list[str]:
    """Returns the names of the classes' columns in a table with these other columns: `class id` for a class `id`."""
    return [f"class {name}" if name in taken else name for name in classes]


def labels_in(task: Task, targets: Iterable[str]) -> set[str]:
    """Returns all labels in these targets."""
    return {label for target in set(targets) for label in task.labels_of(target)}
