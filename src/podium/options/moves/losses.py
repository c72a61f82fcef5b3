"""The loss of labels: which function, how far it believes a label, and how much an image of each class counts.

Smoothing: Szegedy et al., 2016; it raises the accuracy of clothes a little, and is too timid where the metric is a log
loss, where it is off. Focal: Lin et al., 2017. Asymmetric: Ridnik et al., 2021. Poly: Leng et al., 2022. Balanced
weights are those of scikit-learn, effective ones those of Cui et al., 2019: on a long tail, scored by classes,
balanced ones gained 3.9 points on hand signs, 4.3 on digits and 1.5 on clothes (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from podium.basics.errors import PodiumError
from podium.options.knob import ALWAYS_RECORDED, knob
from podium.options.moves.move import Loss, Move, Taught
from podium.options.search_values import Between, Searched
from podium.tasks.task import Targets

# extend.py adds a project's own entries.
LOSSES: dict[str, Callable[..., Any] | None] = {  # None: in loss_functions.py
    "cross_entropy": None,
    "focal": None,
    "asymmetric": None,
    "poly": None,
}
CLASS_WEIGHTS = ("none", "balanced", "effective")
PLAIN = "cross_entropy"


@dataclass(frozen=True)
class Losses(Move):
    topic = "labels"
    tried = {"loss": "focal", "class_weights": "balanced", "smoothing": 0.1}
    neutral = {"smoothing": 0.0}
    loss: str = knob(
        "cross_entropy, focal (images that are right already count less), asymmetric (smoothing counts less for classes"
        " that are improbable), poly (images that are wrong count more), or your own (docs/extend.md)",
        off="cross_entropy",
        default="cross_entropy",
        why="its probabilities need no correction, and the recipes of the rows by kind of model use it",
        choices=LOSSES,
        also_called=("criterion", "loss-fn", "loss-function"),
        for_heads=False,
    )
    class_weights: str = knob(
        "how much an image of a rare class counts: none, balanced (so that all classes count the same), or effective"
        " (between the two)",
        off="none",
        default="none",
        why="right for a metric that counts every image alike, such as accuracy",
        choices=CLASS_WEIGHTS,
        also_called=("class-weight", "weighted-loss", "balanced"),
        for_heads=False,
        is_move=True,
        against={"balance": "do the same twice"},
    )
    smoothing: float = knob(
        "label smoothing",
        0,
        0.95,
        off=ALWAYS_RECORDED,
        default=0.1,
        why="some labels are wrong",
        also_called=("label-smoothing", "ls"),
        searched=Searched(Between(0, 0.2)),
    )

    @property
    def is_on(self) -> bool:
        return True

    def of_learning(self) -> str:
        words = [f"smoothing {self.smoothing:g}"] if self.smoothing else []
        if (self.loss, self.class_weights) != (PLAIN, "none"):
            words.append(f"loss {self.loss}, class weights {self.class_weights}")
        return ", ".join(words)

    def check_targets(self, targets: Targets, without_labels: int) -> None:
        task, is_for_labels = targets.task, self.loss != PLAIN and LOSSES[self.loss] is None
        if self.class_weights != "none" and task.are_labels and not task.sums_to_one:
            raise PodiumError(
                f"--class-weights {self.class_weights} weighs images by their one class, but these have"
                f" {task.words.removesuffix(' an image')}; leave it out, or use --loss asymmetric or focal"
            )
        options = {"--class-weights": self.class_weights != "none", "--loss": is_for_labels}
        wrong = [] if task.are_labels else [option for option, is_given in options.items() if is_given]
        if wrong:
            raise PodiumError(
                f"{' and '.join(wrong)} are for labels, but these images have numbers, whose loss is the squared error;"
                " leave that out"
            )

    def label_loss(self, loss: Loss, taught: Taught) -> Loss:
        from podium.options.moves.loss_functions import loss_of_labels

        own = LOSSES[self.loss]
        return loss_of_labels(own, self.loss, self.smoothing, self.class_weights, taught)

    @property
    def has_own_unit(self) -> bool:
        return self.loss != PLAIN
