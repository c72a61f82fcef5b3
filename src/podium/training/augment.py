"""What happens to an image between the store and the model. Every random draw is a function of (seed, epoch, image).

Training: a random crop, mirrored or not, colour, operations and erasing (albumentations), and the project's own
augmentations (extend.py). Prediction: the centre crop
that the model's data config asks for, or the whole image.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from podium.basics.errors import PodiumError
from podium.basics.image_size import area_of
from podium.basics.randomness import AUGMENT, generator
from podium.images.decode import Pixels, in_threes
from podium.models.build import ModelSpec
from podium.options.moves.augmenter import Augmenter, pad, resize, shape_of
from podium.options.recipe import Recipe


class View(Protocol):
    """Makes of an image what a model sees."""

    @property
    def nbytes(self) -> int:
        """The bytes of the largest image that it makes."""

    def __call__(self, image: Pixels, epoch: int, row: int, /) -> Pixels:
        """The row is that of the training table."""


# --- training ----------------------------------------------------------------------------------------


class TrainView:
    """Makes of an image what training sees."""

    def __init__(self, recipe: Recipe, spec: ModelSpec) -> None:
        self.recipe, self.spec = recipe, spec

    @cached_property
    def augmenter(self) -> Augmenter:
        return self.recipe.augmenter()

    def __getstate__(self) -> dict[str, Any]:
        """A loader process makes the augmenter itself: it may be a project's own, whose file is loaded there later."""
        return {"recipe": self.recipe, "spec": self.spec}

    @property
    def nbytes(self) -> int:
        return self.spec.channel_count * area_of(self.recipe.largest_size)

    def __call__(self, image: Pixels, epoch: int, row: int) -> Pixels:
        def changed(image: Pixels) -> Pixels:
            rng = generator(AUGMENT, self.recipe.seed, epoch, row)  # the same draws for all that is seen at once
            return self.augmenter(image, rng, self.recipe.size_at(epoch), self.spec)

        return joined(changed, image, self.spec)


# --- prediction --------------------------------------------------------------------------------------


class TestView:
    """An image as validation and tests see it: its centre, `crop` of the shorter side, or all of it."""

    __test__ = False  # pytest takes the name for a test case

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    @property
    def nbytes(self) -> int:
        return self.spec.channel_count * area_of(self.spec.test_size)

    def __call__(self, image: Pixels, epoch: int = 0, row: int = 0) -> Pixels:
        return joined(self._framed, image, self.spec)

    def _framed(self, image: Pixels) -> Pixels:
        if self.spec.fit == "crop":
            image = _centre(image, self.spec)
        elif self.spec.fit == "pad":
            image = pad(image, self.spec.test_size, self.spec)
        return resize(image, self.spec.test_size, self.spec)


def _centre(image: Pixels, spec: ModelSpec) -> Pixels:
    """Returns the largest box of the final shape, made smaller by the model's `crop`, in the middle of the image."""
    height, width = image.shape[:2]
    target = shape_of(spec.test_size)
    box_height = min(height, width / target)
    down, across = (max(1, round(side * spec.crop)) for side in (box_height, box_height * target))
    top, left = (height - down) // 2, (width - across) // 2
    return image[top : top + down, left : left + across]


# --- images that are seen at once -------------------------------------------------------------------


def joined(change: Callable[[Pixels], Pixels], image: Pixels, spec: ModelSpec) -> Pixels:
    """Returns the changed image.

    Of several that are seen at once, each is changed alone, and so are three channels of many; then the channels join.
    """
    if not spec.channels:
        return change(image)
    parts = list(image) if image.ndim == 4 else in_threes(image)
    if 3 * len(parts) <= max(spec.channels):
        raise PodiumError(
            f"this model sees {len(spec.channels)} channels, of several images of a series (--adjacent) or of several"
            " files (the card's channels), and only its competition says which; take another run"
        )
    planes = np.concatenate([change(one) for one in parts], -1)
    return np.ascontiguousarray(planes[..., list(spec.channels)])
