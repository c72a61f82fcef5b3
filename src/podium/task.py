"""What a model learns of an image: one label, any number of labels, or numbers.

A target is text in all tables (the training rows, folds.csv, corrections), and an array in training and scoring. Its
type says which task it is of:

    one_label       `cat`         the class's number          int64 [images]
    several_labels  `cat|indoors` a 1 for each label, else 0  float32 [images, classes]
    numbers         `0.5|12`      the numbers, nan if unknown float64 [images, columns]

The model has an output for each class, or column of numbers. With one label, its probabilities sum to 1; with several,
each class has a probability of its own, and an image may have no label at all.
"""

from __future__ import annotations  # numpy appears in the types and is imported only where numbers are computed

from collections.abc import Iterable, Sequence
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


class Numbers:
    name = "numbers"
    words = "numbers"
    loss = "rmse"

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


Task = OneLabel | SeveralLabels | Numbers
ONE_LABEL, SEVERAL_LABELS, NUMBERS = OneLabel(), SeveralLabels(), Numbers()
TASKS: dict[str, Task] = {task.name: task for task in (ONE_LABEL, SEVERAL_LABELS, NUMBERS)}


def answers_of(probs: NDArray[Any], task: Task) -> Targets:
    """Returns the predicted targets: the most probable class, the classes that are more probable than not, numbers."""
    import numpy as np

    if task is SEVERAL_LABELS:
        return (probs >= HALF).astype(np.float32)
    predicted: Targets = probs.argmax(-1) if task is ONE_LABEL else probs.astype(np.float64)
    return predicted


def are_right(targets: Targets, probs: NDArray[Any]) -> NDArray[np.bool_]:
    """Returns which images are predicted without a mistake; the last two axes of `probs` are images and classes."""
    matches = answers_of(probs, task_of(targets)) == targets
    right: NDArray[np.bool_] = matches if targets.ndim == 1 else matches.all(-1)
    return right


def task_of(targets: Targets) -> Task:
    """Returns the task that such targets are of: see the table above."""
    if targets.ndim == 1:
        return ONE_LABEL
    return NUMBERS if targets.dtype == "float64" else SEVERAL_LABELS


def labels_in(task: Task, targets: Iterable[str]) -> set[str]:
    """Returns all labels in these targets."""
    return {label for target in set(targets) for label in task.labels_of(target)}
