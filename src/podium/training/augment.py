"""What happens to an image between the store and the model. Every random draw is a function of (seed, epoch, image).

Training: a random crop, mirrored or not, colour, operations and erasing (albumentations), and the project's own
augmentations (extend.py). Prediction: the centre crop
that the model's data config asks for, or the whole image. Mixup and cutmix work on whole batches, on the device.
"""

import os
import random
import warnings
from typing import Any, Protocol

import cv2
import numpy as np
import torch
from torch import Tensor

from podium.containers.image_place import Box
from podium.image_size import ImageSize, area_of, sides_of
from podium.images.decode import Pixels
from podium.models.build import ModelSpec
from podium.recipe import Recipe, image_size_at
from podium.recipe_options import AUGMENTATIONS
from podium.training.randomness import AUGMENT, generator

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # else every import asks the network for a newer version
import albumentations as A

CHANNELS = 3
NEAR = 2  # linear interpolation is good enough down to half the size
INTERPOLATION = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}


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
        around = (1 - recipe.colour, 1 + recipe.colour)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # albumentations only warns of an argument it does not know
            self.colour = A.Compose([A.ColorJitter(around, around, around, (0.0, 0.0), p=0.8)])
            # Filled with one random colour: black would be a shortcut on white backgrounds.
            erase = A.CoarseDropout((1, 1), (0.1, 0.4), (0.1, 0.4), fill="random_uniform", p=recipe.erase)
            self.erase = A.Compose([erase])
            self.operations = A.Compose([A.SomeOf(_operations(recipe.strength), n=max(1, recipe.ops))])

    @property
    def nbytes(self) -> int:
        return CHANNELS * area_of(self.recipe.largest_size)

    def __call__(self, image: Pixels, epoch: int, row: int) -> Pixels:
        recipe, size = self.recipe, image_size_at(epoch, self.recipe)
        rng = generator(AUGMENT, recipe.seed, epoch, row)
        image = pad(image, size, self.spec) if self.spec.fit == "pad" else image
        image = random_crop(image, rng, (recipe.crop, 1.0), self.spec.fit, shape_of(size))
        is_mirrored = rng.random() < recipe.mirror
        uses_albumentations = recipe.colour or recipe.erase or recipe.ops
        # albumentations draws from two generators, Python's and numpy's.
        python_rng = random.Random(int(rng.integers(2**63))) if uses_albumentations else None
        # These operations take time for every pixel, so they change the smaller image: before it is enlarged, or after
        # it is shrunk.
        is_small = image.shape[0] * image.shape[1] < area_of(size)
        for step in ("mirror", "colour", "ops", "resize") if is_small else ("resize", "mirror", "colour", "ops"):
            if step == "resize":
                image = resize(image, size, self.spec)
            elif step == "mirror" and is_mirrored:
                image = cv2.flip(image, 1)  # type: ignore[assignment]
            elif step == "colour" and recipe.colour:
                image = _apply(self.colour, np.ascontiguousarray(image), rng, python_rng)
            elif step == "ops" and recipe.ops:
                image = _apply(self.operations, np.ascontiguousarray(image), rng, python_rng)
        for name in recipe.augment.split("+") if recipe.augment != "none" else ():
            image = AUGMENTATIONS[name](np.ascontiguousarray(image), rng)
        return _apply(self.erase, image, rng, python_rng) if recipe.erase else image


def _apply(pipeline: Any, image: Pixels, rng: np.random.Generator, python_rng: random.Random | None) -> Pixels:
    pipeline.set_random_state(rng, python_rng)
    changed: Pixels = pipeline(image=image)["image"]
    return changed


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


def shape_of(size: ImageSize) -> float:
    """Returns the width of such images in units of their height."""
    height, width = sides_of(size)
    return width / height


def random_crop(
    image: Pixels, rng: np.random.Generator, shares: tuple[float, float], fit: str, target: float = 1.0
) -> Pixels:
    box = random_box(image.shape[0], image.shape[1], rng, shares, fit, target)
    return image[box.top : box.top + box.height, box.left : box.left + box.width]


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


# --- prediction --------------------------------------------------------------------------------------


class TestView:
    """An image as validation and tests see it: its centre, `crop` of the shorter side, or all of it."""

    __test__ = False  # pytest takes the name for a test case

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    @property
    def nbytes(self) -> int:
        return CHANNELS * area_of(self.spec.test_size)

    def __call__(self, image: Pixels, epoch: int = 0, row: int = 0) -> Pixels:
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


def pad(image: Pixels, size: ImageSize, spec: ModelSpec) -> Pixels:
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


def border_colour(spec: ModelSpec) -> list[int]:
    return [round(255 * mean) for mean in spec.mean]


def resize(image: Pixels, size: ImageSize, spec: ModelSpec) -> Pixels:
    (height, width), (from_height, from_width) = sides_of(size), image.shape[:2]
    interpolation = INTERPOLATION.get(spec.interpolation, cv2.INTER_CUBIC)
    if from_height > height or from_width > width:
        is_near = from_height <= NEAR * height and from_width <= NEAR * width
        interpolation = cv2.INTER_LINEAR if is_near else cv2.INTER_AREA
    return cv2.resize(image, (width, height), interpolation=interpolation)  # type: ignore[return-value]


# --- whole batches -----------------------------------------------------------------------------------


def mix(images: Tensor, targets: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Mixes neighbours of the batch by mixup or cutmix, with equal probability; returns images and soft targets."""
    partner = torch.arange(len(images), device=images.device) ^ 1
    partner[-1] -= len(images) % 2  # the last of an odd number stays as it is
    if rng.random() < 0.5:
        keep = float(rng.beta(0.2, 0.2))  # mostly near 0 or 1: a light mixture
        images = images.lerp(images[partner], 1 - keep)
    else:
        height, width = images.shape[-2:]
        cut = (1 - rng.random()) ** 0.5  # beta(1, 1): the area of the box is uniform
        y, x = rng.integers(height), rng.integers(width)
        top, bottom = (int(np.clip(y + d * cut * height / 2, 0, height)) for d in (-1, 1))
        left, right = (int(np.clip(x + d * cut * width / 2, 0, width)) for d in (-1, 1))
        images = images.clone()
        images[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
        keep = 1 - (bottom - top) * (right - left) / (height * width)
    return images, targets.lerp(targets[partner], 1 - keep)
