"""What training does to an image: a random crop, mirrored or not, colour, operations and erasing (albumentations).

Every random draw comes from the generator that is given.
"""

import os
import random
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from podium.basics.image_size import Box, ImageSize, area_of, sides_of
from podium.options.recipe_options import AUGMENTATIONS

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # else every import asks the network for a newer version
import albumentations as A

Pixels = NDArray[np.uint8]

NEAR = 2  # linear interpolation is good enough down to half the size
INTERPOLATION = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}


class Framing(Protocol):
    """How a model wants its images."""

    @property
    def fit(self) -> str: ...

    @property
    def mean(self) -> tuple[float, ...]: ...

    @property
    def interpolation(self) -> str: ...


class Augmenter:
    """The changes of an image, of these strengths. 0 leaves one out, and takes no random number."""

    def __init__(
        self,
        smallest_crop: float,
        mirrored: float,
        colour: float,
        erased: float,
        operations: tuple[int, float] = (0, 0.0),  # how many, and how strong
        own: Sequence[str] = (),  # names in AUGMENTATIONS: a loader process finds its functions when it has started
    ) -> None:
        self.smallest_crop, self.mirrored, self.strength_of_colour, self.own = smallest_crop, mirrored, colour, own
        count, strength = operations
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # albumentations only warns of an argument it does not know
            self.colour = A.Compose([_colours(colour)]) if colour else None
            # Filled with one random colour: black would be a shortcut on white backgrounds.
            erase = A.CoarseDropout((1, 1), (0.1, 0.4), (0.1, 0.4), fill="random_uniform", p=erased)
            self.erase = A.Compose([erase]) if erased else None
            self.operations = A.Compose([A.SomeOf(_operations(strength), n=count)]) if count else None

    def frame(self, height: int, width: int, rng: np.random.Generator, fit: str, target: float) -> tuple[Box, bool]:
        """Draws which part of an image is seen, and whether it is mirrored."""
        box = random_box(height, width, rng, (self.smallest_crop, 1.0), fit, target)
        return box, bool(rng.random() < self.mirrored)

    def __call__(self, image: Pixels, rng: np.random.Generator, size: ImageSize, spec: Framing) -> Pixels:
        image = pad(image, size, spec) if spec.fit == "pad" else image
        box, is_mirrored = self.frame(image.shape[0], image.shape[1], rng, spec.fit, shape_of(size))
        image = part_of(image, box)
        pipelines = self.colour, self.operations, self.erase
        # albumentations draws from two generators, Python's and numpy's.
        python_rng = random.Random(int(rng.integers(2**63))) if any(step is not None for step in pipelines) else None
        # These operations take time for every pixel, so they change the smaller image: before it is enlarged, or after
        # it is shrunk.
        is_small = image.shape[0] * image.shape[1] < area_of(size)
        for step in ("mirror", "colour", "ops", "resize") if is_small else ("resize", "mirror", "colour", "ops"):
            if step == "resize":
                image = resize(image, size, spec)
            elif step == "mirror" and is_mirrored:
                image = cv2.flip(image, 1)  # type: ignore[assignment]
            elif step == "colour" and self.colour:
                image = _apply(self.colour, np.ascontiguousarray(image), rng, python_rng)
            elif step == "ops" and self.operations:
                image = _apply(self.operations, np.ascontiguousarray(image), rng, python_rng)
        for name in self.own:
            image = AUGMENTATIONS[name](np.ascontiguousarray(image), rng)
        return _apply(self.erase, image, rng, python_rng) if self.erase else image


def _apply(pipeline: Any, image: Pixels, rng: np.random.Generator, python_rng: random.Random | None) -> Pixels:
    pipeline.set_random_state(rng, python_rng)
    changed: Pixels = pipeline(image=image)["image"]
    return changed


def _colours(strength: float) -> Any:
    around = (1 - strength, 1 + strength)
    return A.ColorJitter(around, around, around, (0.0, 0.0), p=0.8)


def _operations(strength: float) -> list[Any]:
    """RandAugment's operations, except equalising, stretching and sharpening, which amplify a JPEG's noise.

    The area that a rotation or a shift uncovers repeats the border: grey triangles would be a shortcut.
    """
    around = max(0.0, 1 - 0.9 * strength), 1 + 0.9 * strength
    unchanged, turn, slant, shift = (1.0, 1.0), 30 * strength, 17 * strength, 0.3 * strength
    geometric = (
        {"rotate": (-turn, turn)},
        {"shear": {"x": (-slant, slant), "y": 0}},
        {"shear": {"x": 0, "y": (-slant, slant)}},
        {"translate_percent": {"x": (-shift, shift), "y": 0}},
        {"translate_percent": {"x": 0, "y": (-shift, shift)}},
    )
    return [
        *(A.Affine(border_mode=cv2.BORDER_REPLICATE, p=1, **arguments) for arguments in geometric),
        A.ColorJitter(around, unchanged, unchanged, (0.0, 0.0), p=1),
        A.ColorJitter(unchanged, around, unchanged, (0.0, 0.0), p=1),
        A.ColorJitter(unchanged, unchanged, around, (0.0, 0.0), p=1),
        A.Posterize(7 - round(3 * strength), p=1),
    ]


def part_of(image: Pixels, box: Box) -> Pixels:
    return image[box.top : box.top + box.height, box.left : box.left + box.width]


def shape_of(size: ImageSize) -> float:
    """Returns the width of such images in units of their height."""
    height, width = sides_of(size)
    return width / height


def random_crop(
    image: Pixels, rng: np.random.Generator, shares: tuple[float, float], fit: str, target: float = 1.0
) -> Pixels:
    return part_of(image, random_box(image.shape[0], image.shape[1], rng, shares, fit, target))


def random_box(
    height: int, width: int, rng: np.random.Generator, shares: tuple[float, float], fit: str, target: float = 1.0
) -> Box:
    """Returns a box whose share of the image lies between two shares, with sides of a ratio between 3:4 and 4:3.

    The ratio is that after the box gets its final shape, whose width is `target` heights. An image that will be
    squashed counts as one of this shape.
    """
    share, shape, right, down = rng.random(4).tolist()
    smallest, largest = shares
    share = smallest + (largest - smallest) * share
    oblong = 1.0 if fit == "squash" else width / height / target
    # The ratio of the box: between 3/4 and 4/3, and so that the box fits into the image.
    low, high = max(3 / 4, share * oblong), min(4 / 3, oblong / share)
    ratio = low * (high / low) ** shape if low < high else min(max(oblong, 3 / 4), 4 / 3)
    box_width = max(1, round(width * min(1.0, (share * ratio / oblong) ** 0.5)))
    box_height = max(1, round(height * min(1.0, (share * oblong / ratio) ** 0.5)))
    left, top = int(right * (width - box_width + 1)), int(down * (height - box_height + 1))
    return Box(left, top, box_width, box_height)


# --- frames -----------------------------------------------------------------------------------------


def pad(image: Pixels, size: ImageSize, spec: Framing) -> Pixels:
    """Returns a larger image of the final shape, with this one in its middle.

    The borders have the mean colour that the model subtracts.
    """
    height, width = image.shape[:2]
    box = padded_box(height, width, size)
    above, left = -box.top, -box.left
    below, right = box.height - height - above, box.width - width - left
    colour = border_colour(spec)
    return cv2.copyMakeBorder(image, above, below, left, right, cv2.BORDER_CONSTANT, value=colour)  # type: ignore[return-value]


def padded_box(height: int, width: int, size: ImageSize) -> Box:
    """Returns the box around an image that has the final shape."""
    target = shape_of(size)
    padded_height, padded_width = max(height, round(width / target)), max(width, round(height * target))
    return Box(-((padded_width - width) // 2), -((padded_height - height) // 2), padded_width, padded_height)


def border_colour(spec: Framing) -> list[int]:
    return [round(255 * mean) for mean in spec.mean]


def resize(image: Pixels, size: ImageSize, spec: Framing) -> Pixels:
    (height, width), (from_height, from_width) = sides_of(size), image.shape[:2]
    interpolation = INTERPOLATION.get(spec.interpolation, cv2.INTER_CUBIC)
    if from_height > height or from_width > width:
        is_near = from_height <= NEAR * height and from_width <= NEAR * width
        interpolation = cv2.INTER_LINEAR if is_near else cv2.INTER_AREA
    return cv2.resize(image, (width, height), interpolation=interpolation)  # type: ignore[return-value]
