"""The record of an epoch, a line of metrics.jsonl: the training loop and the linear probe write the same one."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium.basics.machine import memory_mb
from podium.tasks.metrics import evaluate
from podium.tasks.task import Targets, Task

LARGEST = 1e18  # of the numbers in a file
OPTIONAL = ("gpu_mb", "l2", "neighbours", "temperature", "kept")
DIGITS = {"images_per_s": 1, "seconds": 2, "validation_seconds": 2}  # in the file


@dataclass(frozen=True)
class EpochRecord:
    epoch: int
    step: int
    lr: float
    loss: float  # mean over the training images, in the unit of the training (task.py)
    scores: dict[str, float]  # of the held-out images: the task's loss and the competition's metric
    views: str  # of the validation; the last record has the views that are submitted
    images_per_s: float  # in training
    seconds: float  # of training
    validation_seconds: float
    memory_mb: int = field(default_factory=memory_mb)
    gpu_mb: int | None = None  # the most that the GPU's tensors have held
    l2: float | None = None  # strength of the linear probe's regularisation
    neighbours: int | None = None  # training images that vote, of --head neighbours
    temperature: float | None = None  # that their cosines are divided by
    kept: float | None = None  # the share of the start in the weights that were validated

    @property
    def is_start(self) -> bool:
        """Returns whether this is no epoch, but what training started from."""
        return self.epoch == 0

    def text(self, task: Task) -> str:
        """Formats the loss and the scores."""
        return f"{task.training_loss} {self.loss:z.4f}  {self.scores_text()}"

    def scores_text(self) -> str:
        """Formats the scores of the held-out images, the competition's metric first."""
        return "  ".join(f"{name} {score:z.4f}" for name, score in reversed(self.scores.items()))

    def to_json(self) -> dict[str, Any]:
        """Returns the line; the scores stand beside the other numbers, each under the name of its metric."""
        line: dict[str, Any] = {}
        for name, value in asdict(self).items():
            if name == "scores":
                line |= value
            else:
                line[name] = round(value, DIGITS[name]) if name in DIGITS else value
        return {name: value for name, value in line.items() if value is not None or name not in OPTIONAL}

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> "EpochRecord":
        """Reads a line; raises LookupError, TypeError or ValueError if it is not a record."""
        if not isinstance(line, Mapping):
            raise TypeError("a line is not an object")
        own = {name: line[name] for name in _NAMES if name in line}
        for name, value in own.items():
            _check(name, value)
        return EpochRecord(**own, scores={name: float(value) for name, value in line.items() if name not in own})


def _check(name: str, value: Any) -> None:
    """Raises TypeError or ValueError for a value that a record cannot have; a page shows it."""
    kind: Any = EpochRecord.__dataclass_fields__[name].type
    if not isinstance(value, kind | int if kind in (float, float | None) else kind) or isinstance(value, bool):
        raise TypeError(f"{name} cannot be {value!r}")
    if isinstance(value, int | float) and not abs(value) < LARGEST:  # NaN fails this comparison as well
        raise ValueError(f"{name} cannot be {value}")


_NAMES = [name for name in EpochRecord.__dataclass_fields__ if name != "scores"]


def score_held_out(metric: str, targets: Targets, probs: NDArray[np.float32]) -> dict[str, float]:
    """Returns the scores that a record holds; none of a model that holds nothing out."""
    if not len(targets):
        return {}
    return {name: evaluate(name, targets, probs) for name in (targets.task.loss, metric)}
