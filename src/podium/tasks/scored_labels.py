"""Says which label a held-out image is scored with. Everything that scores asks here; nothing that teaches does.

Usually it is the image's own label, which it also teaches in the other folds. Where the competition has a class for
unknown ones that no training image has, an image is unknown to a model that was taught no image of its label. Such an
image is scored as the unknown class.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ScoredLabels:
    """Belongs to the model of one fold; the usual one changes no label."""

    unknown: str = ""  # the class that no training image has; "" if the competition has none
    unseen: frozenset[str] = frozenset()  # the labels that no image has taught the model

    @classmethod
    def after(cls, taught: Iterable[str], classes: Collection[str], unknown: str) -> "ScoredLabels":
        """Returns those of a model that was taught images with these labels."""
        return cls(unknown, frozenset(classes) - frozenset(taught) - {unknown})

    def of(self, labels: Iterable[str]) -> list[str]:
        """Returns the label that scores each image; `labels` are the images' own."""
        return [self.unknown if label in self.unseen else label for label in labels]


OWN_LABELS = ScoredLabels()
