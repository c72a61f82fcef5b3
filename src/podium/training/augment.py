"""What happens to an image between the file and the model; every draw a function of (seed, epoch, image).

Training: a random crop, mirrored or not, colour and erasing (albumentations). Testing: the centre crop that the model's
own data config asks for, or the whole image. Mixup and cutmix work on whole batches, on the device.
"""

import os
import random
import warnings
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor

from podium.images.decode import Pixels
from podium.models.build import ModelSpec
from podium.recipe import Recipe, image_size_at

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # else it asks the network for a newer version at every import
import albumentations as A

INTERPOLATION = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}
ORDER, AUGMENT, MIX, STEP = range(4)  # one stream of draws for each purpose


def generator(purpose: int, *key: int) -> np.random.Generator:
    """Independent draws for every purpose and key; there is no state to save."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([purpose, *key])))


class TrainView:
    """An image as training sees it: `view(image, epoch, index)`."""

    def __init__(self, recipe: Recipe, spec: ModelSpec) -> None:
        self.recipe, self.spec = recipe, spec
        around = (1 - recipe.colour, 1 + recipe.colour)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # albumentations only warns of an argument it does not know
            self.colour = A.Compose([A.ColorJitter(around, around, around, (0.0, 0.0), p=0.8)])
            # One random colour: black would be a shortcut on white backgrounds.
            erase = A.CoarseDropout((1, 1), (0.1, 0.4), (0.1, 0.4), fill="random_uniform", p=recipe.erase)
            self.erase = A.Compose([erase])
            self.ops = A.Compose([A.SomeOf(_operations(recipe.strength), n=max(1, recipe.ops))])

    def __call__(self, image: Pixels, epoch: int, index: int) -> Pixels:
        recipe, size = self.recipe, image_size_at(epoch, self.recipe)
        draws = generator(AUGMENT, recipe.seed, epoch, index)
        seen = _random_box(image, draws, recipe.crop, self.spec.fit)
        mirrored = draws.random() < recipe.mirror
        by_albumentations = recipe.colour or recipe.erase or recipe.ops
        second = random.Random(int(draws.integers(2**63))) if by_albumentations else None
        small = seen.shape[0] * seen.shape[1] < size * size  # what costs by the pixel is done where there are fewer
        for step in ("mirror", "colour", "ops", "resize") if small else ("resize", "mirror", "colour", "ops"):
            if step == "resize":
                seen = _resize(seen, size, self.spec)
            elif step == "mirror" and mirrored:
                seen = cv2.flip(seen, 1)  # type: ignore[assignment]
            elif step == "colour" and recipe.colour:
                seen = self._apply(self.colour, np.ascontiguousarray(seen), draws, second)
            elif step == "ops" and recipe.ops:
                seen = self._apply(self.ops, np.ascontiguousarray(seen), draws, second)
        return self._apply(self.erase, seen, draws, second) if recipe.erase else seen

    def _apply(self, pipeline: Any, image: Pixels, draws: np.random.Generator, second: random.Random | None) -> Pixels:
        pipeline.set_random_state(draws, second)
        seen: Pixels = pipeline(image=image)["image"]
        return seen


def _operations(strength: float) -> list[Any]:
    """RandAugment's, without those that make pictures of a JPEG's noise (equalising, stretching, sharpening). What a
    turn uncovers continues the border: a grey triangle would be a shortcut."""
    around = max(0.0, 1 - 0.9 * strength), 1 + 0.9 * strength
    one, turn, slant, shift = (1.0, 1.0), 30 * strength, 17 * strength, 0.3 * strength
    geometric = (
        {"rotate": (-turn, turn)},
        {"shear": {"x": (-slant, slant), "y": 0}},
        {"shear": {"x": 0, "y": (-slant, slant)}},
        {"translate_percent": {"x": (-shift, shift), "y": 0}},
        {"translate_percent": {"x": 0, "y": (-shift, shift)}},
    )
    return [
        *(A.Affine(border_mode=cv2.BORDER_REPLICATE, p=1, **each) for each in geometric),
        A.ColorJitter(around, one, one, (0.0, 0.0), p=1),
        A.ColorJitter(one, around, one, (0.0, 0.0), p=1),
        A.ColorJitter(one, one, around, (0.0, 0.0), p=1),
        A.Posterize(7 - round(3 * strength), p=1),
    ]


def _random_box(image: Pixels, draws: np.random.Generator, smallest: float, fit: str) -> Pixels:
    """A box of at least the `smallest` share of the image, up to a third wider or higher than square; squashed
    images count as square."""
    height, width = image.shape[:2]
    share, shape, right, down = draws.random(4).tolist()
    share = smallest + (1 - smallest) * share
    oblong = 1.0 if fit == "squash" else width / height
    # width / height of the box: within 3/4 and 4/3, and such that the box fits into the image
    low, high = max(3 / 4, share * oblong), min(4 / 3, oblong / share)
    ratio = low * (high / low) ** shape if low < high else min(max(oblong, 3 / 4), 4 / 3)
    wide = max(1, round(width * min(1.0, (share * ratio / oblong) ** 0.5)))
    high_ = max(1, round(height * min(1.0, (share * oblong / ratio) ** 0.5)))
    left, top = int(right * (width - wide + 1)), int(down * (height - high_ + 1))
    return image[top : top + high_, left : left + wide]


class TestView:
    """An image as validation and test see it: its centre, `crop` of the shorter side, or all of it, squashed."""

    __test__ = False  # no test case, whatever pytest makes of the name

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    def __call__(self, image: Pixels, epoch: int = 0, index: int = 0) -> Pixels:
        if self.spec.fit == "crop":
            height, width = image.shape[:2]
            side = max(1, round(min(height, width) * self.spec.crop))
            top, left = (height - side) // 2, (width - side) // 2
            image = image[top : top + side, left : left + side]
        return _resize(image, self.spec.test_size, self.spec)


def _resize(image: Pixels, side: int, spec: ModelSpec) -> Pixels:
    longer = max(image.shape[:2])
    how = INTERPOLATION.get(spec.interpolation, cv2.INTER_CUBIC)
    if longer > side:  # four neighbours blend well down to half the size; below, whole areas have to be
        how = cv2.INTER_LINEAR if longer <= 2 * side else cv2.INTER_AREA
    return cv2.resize(image, (side, side), interpolation=how)  # type: ignore[return-value]


View = Callable[[Pixels, int, int], Pixels]


def mix(images: Tensor, targets: Tensor, draws: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Mixup or cutmix with equal chance, of neighbours, which are strangers: images and soft targets."""
    partner = torch.arange(len(images), device=images.device) ^ 1
    partner[-1] -= len(images) % 2  # the last of an odd number is alone
    if draws.random() < 0.5:
        keep = float(draws.beta(0.2, 0.2))  # mostly near 0 or 1: a light mixture
        images = images.lerp(images[partner], 1 - keep)
    else:
        height, width = images.shape[-2:]
        cut = (1 - draws.random()) ** 0.5  # beta(1, 1): the pasted area is uniform
        y, x = draws.integers(height), draws.integers(width)
        top, bottom = (int(np.clip(y + d * cut * height / 2, 0, height)) for d in (-1, 1))
        left, right = (int(np.clip(x + d * cut * width / 2, 0, width)) for d in (-1, 1))
        images = images.clone()
        images[:, :, top:bottom, left:right] = images[partner, :, top:bottom, left:right]
        keep = 1 - (bottom - top) * (right - left) / (height * width)
    return images, targets.lerp(targets[partner], 1 - keep)
