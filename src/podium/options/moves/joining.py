"""Images that join the training images: ones without labels, as earlier runs answer for them, and ones from elsewhere.

Pseudo-labels: Lee, 2013; as winners of Kaggle use them, but by fold, so that held-out images stay unseen. On a quarter
of the labels they gained 1.2 points on pets and clothes, 3.6 on hand signs and 4.2 on digits; as many steps without
them gained as much or more on three of the four. Half of the images from elsewhere (the card's [[extra]]) gained 2.3
points on pets, 5.6 on hand signs and digits, and 4.9 on clothes (docs/benchmarks.md). training/pseudo_labels.py and
training/lessons.py make the lessons.
"""

from dataclasses import dataclass

from podium.basics.errors import PodiumError
from podium.options.knob import knob
from podium.options.moves.move import Move
from podium.tasks.task import Targets


@dataclass(frozen=True)
class Joining(Move):
    with_head = True
    topic = "labels"
    tried = {"extra_weight": 0.5}

    pseudo: str = knob(
        "a finished run, or RUN1+RUN2, whose answers for the test images and [[unlabelled]] ones are learned, too"
        " (pseudo-labels)",
        off="",
        default="",
        why="it needs a finished run",
        learns_from="learns images without labels from",
        for_heads=False,
        is_move=True,
    )
    extra_weight: float = knob(
        "how often an epoch shows the card's [[extra]] images, times the weight of each; 0: never; for a head that is"
        " fitted, what they weigh",
        0,
        100,
        off=1.0,
        default=1.0,
        why="as often as the card says",
    )

    @property
    def is_on(self) -> bool:
        return bool(self.pseudo or self.extra_weight)

    def of_learning(self) -> str:
        words = [f"pseudo-labels of {self.pseudo}"] if self.pseudo else []
        return ", ".join(words + ([f"extra weight {self.extra_weight:g}"] if self.extra_weight != 1 else []))

    @property
    def joins_test_images(self) -> bool:
        return bool(self.pseudo)

    @property
    def weight_of_extra(self) -> float:
        return self.extra_weight

    def check_targets(self, targets: Targets, without_labels: int) -> None:
        if self.pseudo and not without_labels:
            raise PodiumError(
                f"--pseudo {self.pseudo}: this competition has no images without labels; leave it out, or name some"
                " with [[unlabelled]] in the card"
            )
