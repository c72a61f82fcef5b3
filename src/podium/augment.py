"""What happens to an image between the file and the model; every draw a function of (seed, epoch, image).

Training: random crop, mirror, colour, erasing (albumentations). Testing: the centre crop that the model's
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

from podium.images import Pixels
from podium.models import Spec
from podium.recipe import Recipe

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # else it asks the network for a newer version at every import
import albumentations as A

cv2.setNumThreads(1)  # the loader's workers are the parallelism

INTERPOLATION = {"nearest": cv2.INTER_NEAREST, "bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}
ORDER, AUGMENT, MIX, STEP = range(4)  # one stream of draws for each purpose


def generator(purpose: int, *key: int) -> np.random.Generator:
    """Independent draws for every purpose and key; there is no state to save."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([purpose, *key])))


class TrainView:
    """An image as training sees it: `view(image, epoch, index)`."""

    def __init__(self, recipe: Recipe, spec: Spec) -> None:
        self.seed, self.spec = recipe.seed, spec
        size, around = spec.image_size, (1 - recipe.colour, 1 + recipe.colour)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # albumentations only warns of an argument it does not know
            steps: list[Any] = [
                A.RandomResizedCrop(
                    (size, size),
                    scale=(recipe.crop, 1.0),
                    interpolation=INTERPOLATION.get(spec.interpolation, cv2.INTER_CUBIC),
                    area_for_downscale="image",  # the others alias when they shrink
                ),
                A.HorizontalFlip(p=recipe.mirror),
                A.ColorJitter(around, around, around, (0.0, 0.0), p=0.8 if recipe.colour else 0.0),
                # One random colour: black would be a shortcut on white backgrounds.
                A.CoarseDropout((1, 1), (0.1, 0.4), (0.1, 0.4), fill="random_uniform", p=recipe.erase),
            ]
            self.pipeline = A.Compose(steps)

    def __call__(self, image: Pixels, epoch: int, index: int) -> Pixels:
        draws = generator(AUGMENT, self.seed, epoch, index)
        if self.spec.fit == "squash":  # before the crop, without losing what it may need
            side = min(max(image.shape[:2]), 2 * self.spec.image_size)
            image = _resize(image, side, self.spec)
        self.pipeline.set_random_state(draws, random.Random(int(draws.integers(2**63))))
        seen: Pixels = self.pipeline(image=image)["image"]
        return seen


class TestView:
    """An image as validation and test see it: its centre, `crop` of the shorter side, or all of it, squashed."""

    __test__ = False  # no test case, whatever pytest makes of the name

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def __call__(self, image: Pixels, epoch: int = 0, index: int = 0) -> Pixels:
        if self.spec.fit == "crop":
            height, width = image.shape[:2]
            side = max(1, round(min(height, width) * self.spec.crop))
            top, left = (height - side) // 2, (width - side) // 2
            image = image[top : top + side, left : left + side]
        return _resize(image, self.spec.image_size, self.spec)


def _resize(image: Pixels, side: int, spec: Spec) -> Pixels:
    shrinks = max(image.shape[:2]) > side  # the other interpolations alias then
    how = cv2.INTER_AREA if shrinks else INTERPOLATION.get(spec.interpolation, cv2.INTER_CUBIC)
    return cv2.resize(image, (side, side), interpolation=how)  # type: ignore[return-value]


View = Callable[[Pixels, int, int], Pixels]


def mix(images: Tensor, targets: Tensor, draws: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Mixup or cutmix with equal chance, one partner for each image: images and soft targets."""
    partner = torch.from_numpy(draws.permutation(len(images))).to(images.device)
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
