"""Doubtful labels are left out or softened, as far as heads that were not fitted to them say.

Confident learning: Northcutt et al., 2021; here the heads are fitted by folds to frozen features, and inner held-out
images decide how much. Where a fifth of the labels was any other one, leaving out gained 1.3 points on clothes, 1.1 on
hand signs and nothing on pets and digits; softening gained 1.0 on hand signs alone (docs/benchmarks.md).
training/clean_labels.py judges them.
"""

from dataclasses import dataclass

from podium.basics.errors import PodiumError
from podium.options.knob import knob
from podium.options.moves.move import Move, refuse_unless_one_class
from podium.tasks.task import Targets


@dataclass(frozen=True)
class Cleaning(Move):
    topic = "labels"
    tried = {"clean": "drop"}
    clean: str = knob(
        "what to do about labels that are probably wrong, judged by heads that were not fitted to them: none, drop"
        " (leave out their images) or soften (believe the heads in part); how much, inner held-out images decide",
        off="none",
        default="none",
        why="whether it gains depends on the labels",
        choices=("none", "drop", "soften"),
        also_called=("clean-labels", "cleanlab", "denoise"),
        for_heads=False,
        is_move=True,
    )

    def of_learning(self) -> str:
        return f"doubtful labels: {self.clean}"

    def check_targets(self, targets: Targets, without_labels: int) -> None:
        refuse_unless_one_class("--clean", targets)
        if targets.votes is not None:
            raise PodiumError("--clean needs one label, and these images have votes; leave it out")
