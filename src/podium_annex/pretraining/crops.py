"""The crops that DINO compares: two large ones and several small ones of every image.

Every random draw is a function of (seed, epoch, image, crop). All crops of an image are one row of bytes, so that the
loader needs no change; `unpack` takes them apart on the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from torch import Tensor

from podium.basics.randomness import CROPS, generator
from podium.images.decode import Pixels
from podium.models.build import ModelSpec
from podium.options.moves.augmenter import random_crop, resize
from podium.options.recipe import Recipe

LARGE_CROPS = 2
# Of the recipe's smallest crop: the paper's large crops hold 0.4 to 1 of an image and its small ones 0.05 to 0.4. The
# card or the default say what a crop must hold so that an object stays recognisable, so that replaces the 0.4.
SMALLEST_SHARE = 0.25
GREYSCALE = 0.2  # probabilities, as in the paper
JITTER = 0.8
BLUR_FIRST, BLUR_SECOND, BLUR_SMALL = 1.0, 0.1, 0.5
SOLARISE_SECOND = 0.2
# The paper jitters twice as strongly as Podium's default for training, 0.2; the recipe's strength is doubled here.
JITTER_SCALE = 2.0
MOST_BLUR = 2.0 / 224  # standard deviation for an image of one pixel: a small image loses as much detail as a large one


@dataclass(frozen=True)
class CropSizes:
    """How many crops an image has, and how large they are."""

    large: int  # pixels
    small: int
    small_crops: int

    @property
    def large_bytes(self) -> int:
        return LARGE_CROPS * self.large**2 * 3


class MultiCropView:
    """Makes of an image the bytes of all its crops, the large ones first."""

    def __init__(self, recipe: Recipe, spec: ModelSpec, sizes: CropSizes) -> None:
        self.seed, self.spec, self.sizes, self.changes = recipe.seed, spec, sizes, recipe.augmenter()

    @property
    def nbytes(self) -> int:
        return self.sizes.large_bytes + self.sizes.small_crops * self.sizes.small**2 * 3

    def __call__(self, image: Pixels, epoch: int, row: int) -> Pixels:
        crops = [self.crop(image, epoch, row, number) for number in range(LARGE_CROPS + self.sizes.small_crops)]
        return np.concatenate([crop.ravel() for crop in crops])

    def crop(self, image: Pixels, epoch: int, row: int, number: int) -> Pixels:
        """Returns one crop; the first two are large. The two differ in blur and solarisation."""
        changes, sizes = self.changes, self.sizes
        smallest, colour = changes.smallest_crop, changes.strength_of_colour
        rng = generator(CROPS, self.seed, epoch, row, number)
        is_large = number < LARGE_CROPS
        shares = (smallest, 1.0) if is_large else (smallest * SMALLEST_SHARE, smallest)
        image = random_crop(image, rng, shares, self.spec.fit)
        image = resize(image, sizes.large if is_large else sizes.small, self.spec)
        if rng.random() < changes.mirrored:
            image = cv2.flip(image, 1)  # type: ignore[assignment]
        if colour and rng.random() < JITTER:
            image = jitter(image, JITTER_SCALE * colour, rng)
        if colour and rng.random() < GREYSCALE:
            image = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)  # type: ignore[assignment]
        if rng.random() < (BLUR_FIRST, BLUR_SECOND, BLUR_SMALL)[min(number, LARGE_CROPS)]:
            deviation = rng.uniform(0.1, 1) * MOST_BLUR * len(image)
            image = cv2.GaussianBlur(image, (0, 0), deviation)  # type: ignore[assignment]
        if number == 1 and rng.random() < SOLARISE_SECOND:
            image = np.where(image < 128, image, 255 - image)
        return np.ascontiguousarray(image)


def jitter(image: Pixels, strength: float, rng: np.random.Generator) -> Pixels:
    """Changes brightness, contrast and, half as strongly, saturation. The hue stays: it often depends on the class."""
    brightness, contrast, saturation = 1 + rng.uniform(-1, 1, 3) * strength * np.array([1, 1, 0.5])
    bright = image.astype(np.float32) * np.float32(brightness)
    grey = cv2.cvtColor(bright, cv2.COLOR_RGB2GRAY)[..., None]
    saturated = grey + (bright - grey) * np.float32(saturation)
    middle = grey.mean()
    changed: Pixels = np.clip(np.rint(middle + (saturated - middle) * np.float32(contrast)), 0, 255).astype(np.uint8)
    return changed


def unpack(rows: Tensor, sizes: CropSizes) -> Sequence[Tensor]:
    """Returns the large crops of a batch of rows, then its small ones if there are any: [crops * n, side, side, 3].

    The first crops of all images come first, then the second ones.
    """
    large, small = rows[:, : sizes.large_bytes], rows[:, sizes.large_bytes :]
    parts = [(large, LARGE_CROPS, sizes.large), (small, sizes.small_crops, sizes.small)]
    return [
        part.reshape(len(rows), crops, side, side, 3).transpose(0, 1).flatten(0, 1)
        for part, crops, side in parts
        if crops
    ]
