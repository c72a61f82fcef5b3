"""The loss: which function, how far it believes a label, how much an image of each class or a column of numbers counts.

Of labels: focal counts images that are right already less, asymmetric smoothing less for classes that are improbable,
poly images that are wrong more. Of numbers, cross_entropy stands for the squared error: absolute answers the median,
huber heeds what is far off less, quantile answers the number that a share of the images (--quantile) stays below,
poisson is for counts (it learns the logarithm of 1 + number, and answers the mean).

Where numbers reach far to one side, a frozen head that learned logarithms had a far lower error, and ranks nearly so;
the losses of numbers and the weights of columns have not been measured.

Smoothing: Szegedy et al., 2016; it raises the accuracy of clothes a little, and is too timid where the metric is a log
loss, where it is off. Focal: Lin et al., 2017. Asymmetric: Ridnik et al., 2021. Poly: Leng et al., 2022. Balanced
weights are those of scikit-learn, effective ones those of Cui et al., 2019: on a long tail, scored by classes,
balanced ones gained 3.9 points on hand signs, 4.3 on digits and 1.5 on clothes (docs/benchmarks.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean
from podium.options.knob import ALWAYS_RECORDED, knob
from podium.options.moves.move import Core, Loss, Move, Taught
from podium.options.option_kinds import WEIGHTS, parse_weights
from podium.options.search_values import Between, Searched
from podium.tasks.number_scale import LOG1P, RANK, SCALES
from podium.tasks.task import Targets

# extend.py adds a project's own entries.
LOSSES: dict[str, Callable[..., Any] | None] = {  # None: in loss_functions.py
    "cross_entropy": None,
    "focal": None,
    "asymmetric": None,
    "poly": None,
    "absolute": None,
    "huber": None,
    "quantile": None,
    "poisson": None,
}
OF_NUMBERS = ("absolute", "huber", "quantile", "poisson")
CLASS_WEIGHTS = ("none", "balanced", "effective")
PLAIN = "cross_entropy"


@dataclass(frozen=True)
class Losses(Move):
    with_head = True  # a head learns numbers on their scale, too
    topic = "labels"
    tried = {"loss": "focal", "class_weights": "balanced", "smoothing": 0.1}
    neutral = {"smoothing": 0.0}
    loss: str = knob(
        "of labels: cross_entropy, focal, asymmetric or poly; of numbers: absolute, huber, quantile or poisson in place"
        " of the squared error; or your own (docs/extend.md)",
        off="cross_entropy",
        default="cross_entropy",
        why="its probabilities need no correction, and the recipes of the rows by kind of model use it",
        choices=LOSSES,
        also_called=("criterion", "loss-fn", "loss-function"),
        for_heads=False,
    )
    quantile: float = knob(
        "of numbers, with --loss quantile: the share of the images whose number is below the answer, such as 0.9",
        0,
        0.99,
        off=0.0,
        default=0.0,
        why="only that loss has one",
        for_heads=False,
    )
    target_scale: str = knob(
        "what is learned of numbers: none (they themselves), log1p (the logarithm of 1 + number) or rank (normal scores"
        " of their ranks); answers are numbers again",
        off="none",
        default="none",
        why="the mean is the best answer where errors are squared",
        choices=SCALES,
        also_called=("target-transform", "log-target"),
        is_move=True,
    )
    target_weights: str = knob(
        "how much columns of numbers count in the loss, as in height:2+width:0.5; those that it does not name count 1",
        off="",
        default="",
        why="right for a metric that counts all columns alike",
        kind=WEIGHTS,
        for_heads=False,
        is_move=True,
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
        if self.loss in OF_NUMBERS:
            words.append(f"loss {self.loss}" + (f" {self.quantile:g}" if self.quantile else ""))
        elif (self.loss, self.class_weights) != (PLAIN, "none"):
            words.append(f"loss {self.loss}, class weights {self.class_weights}")
        if self.target_scale != "none":
            words.append(f"numbers by {self.target_scale}")
        if self.target_weights:
            words.append(f"columns weigh {self.target_weights}")
        return ", ".join(words)

    @property
    def scale(self) -> str:
        """On which numbers are learned: one of SCALES in number_scale.py."""
        return LOG1P if self.loss == "poisson" else self.target_scale

    def spec(self) -> Mapping[str, Any]:
        return {"target_scale": self.scale} if self.scale != "none" else {}

    def check(self, core: Core) -> None:
        if self.target_weights and LOSSES[self.loss] is not None:
            raise PodiumError(f"--target-weights: the loss {self.loss} is your own; weigh the columns there")
        if self.loss == "poisson" and self.target_scale == RANK:
            raise PodiumError("--loss poisson learns logarithms, and --target-scale rank ranks; leave out one of them")
        if (self.loss == "quantile") != (self.quantile > 0):
            raise PodiumError("--loss quantile and --quantile need each other, as in --loss quantile --quantile 0.9")

    def check_targets(self, targets: Targets, without_labels: int) -> None:
        import numpy as np

        task = targets.task
        if self.class_weights != "none" and task.are_labels and not task.sums_to_one:
            raise PodiumError(
                f"--class-weights {self.class_weights} weighs images by their one class, but these have"
                f" {task.words.removesuffix(' an image')}; leave it out, or use --loss asymmetric or focal"
            )
        is_for_labels = self.loss not in (PLAIN, *OF_NUMBERS) and LOSSES[self.loss] is None
        of_labels = {"--class-weights": self.class_weights != "none", "--loss": is_for_labels}
        of_numbers = {
            f"--loss {self.loss}": self.loss in OF_NUMBERS,
            "--target-scale": self.target_scale != "none",
            "--target-weights": bool(self.target_weights),
        }
        wrong = [option for option, is_on in (of_numbers if task.are_labels else of_labels).items() if is_on]
        verb = "is" if len(wrong) == 1 else "are"
        if wrong and task.are_labels:
            have = task.words.removesuffix(" an image")
            raise PodiumError(f"{' and '.join(wrong)} {verb} for numbers, but these images have {have}; leave that out")
        if wrong:
            raise PodiumError(
                f"{' and '.join(wrong)} {verb} for labels, but these images have numbers, whose loss is the squared"
                f" error, or --loss {', '.join(OF_NUMBERS)}; leave that out"
            )
        if self.scale == LOG1P and (lowest := float(np.nanmin(targets.values))) < 0:
            flag = "--loss poisson" if self.loss == "poisson" else "--target-scale log1p"
            raise PodiumError(f"{flag} is for numbers from 0 on, but the lowest is {lowest:g}; leave it out")

    def check_classes(self, classes: Sequence[str]) -> None:
        unknown = next((name for name in parse_weights(self.target_weights) if name not in classes), None)
        if unknown is not None:
            hint = did_you_mean(unknown, classes, otherwise=f"there are {', '.join(classes)}")
            raise PodiumError(f"--target-weights: no column '{unknown}'; {hint}")

    def label_loss(self, loss: Loss, taught: Taught) -> Loss:
        from podium.options.moves.loss_functions import loss_of_labels, loss_of_numbers

        own = LOSSES[self.loss]
        if not taught.targets.task.are_labels:
            given = parse_weights(self.target_weights)
            weights = [given.get(name, 1.0) for name in taught.names]
            return loss_of_numbers(own, self.loss, self.quantile, weights, taught)
        return loss_of_labels(own, self.loss, self.smoothing, self.class_weights, taught)

    @property
    def has_own_unit(self) -> bool:
        return self.loss != PLAIN
