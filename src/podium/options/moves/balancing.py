"""Images of rare classes are shown more often.

Between once each and all classes alike, by a power of the number of their images (Mahajan et al., 2018, took the
root). On a long tail, scored by classes, the root gained 1.4 points on hand signs, 2.8 on digits and 1.5 on clothes:
less than weights or logit adjustment (docs/benchmarks.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from podium.options.knob import knob
from podium.options.moves.move import Move, Shown, refuse_unless_one_class
from podium.tasks.task import Targets

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Balancing(Move):
    topic = "rare classes"
    tried = {"balance": 0.5}
    balance: float = knob(
        "how much more often images of rare classes are shown: by the number of images of their class to this power,"
        " from 0 (every image once in an epoch) to 1 (all classes equally often)",
        0,
        1,
        off=0.0,
        default=0.0,
        why="right for a metric that counts every image alike, such as accuracy",
        for_heads=False,
        is_move=True,
    )

    def of_learning(self) -> str:
        return f"balance {self.balance:g}"

    def check_targets(self, targets: Targets, without_labels: int) -> None:
        refuse_unless_one_class("--balance", targets)

    def shown(self, own: Shown, classes: NDArray[np.int64]) -> Shown:
        return ClassBalance(classes, self.balance)


@dataclass(frozen=True)
class ClassBalance:
    classes: NDArray[np.int64]  # of the training images
    power: float  # 0: every image once; 1: all classes equally often

    def __len__(self) -> int:
        """Returns how many images an epoch shows."""
        return len(self.classes)

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Returns the images of an epoch, in random order; images of rare classes several times.

        The numbers of times differ from those that the power asks for by less than one, for each image and each class.
        """
        import numpy as np

        order = rng.permutation(len(self.classes))
        order = order[np.argsort(self.classes[order], kind="stable")]  # by class, in random order within each
        counts = np.bincount(self.classes).astype(np.float64)
        weights = counts[self.classes[order]] ** -self.power
        shown: NDArray[np.int64] = rng.permutation(np.repeat(order, times_shown(weights, len(order), rng)))
        return shown


def times_shown(weights: NDArray[np.float64], total: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Returns how often each image is shown: in all so often, and each as its weight says, up to less than one."""
    import numpy as np

    if not len(weights):
        return np.zeros(0, np.int64)
    ends = np.cumsum(weights) * (total / weights.sum())
    ends[-1] = total
    times: NDArray[np.int64] = np.diff(np.floor(ends + rng.random()), prepend=0).astype(np.int64)
    return times
