"""What training changes about an image, drawn as numbers, for a GPU that holds the pixels (gpu_images.py).

The draws are those of `TrainView`, from the same generators. So loader processes send a few numbers in place of pixels.
"""

import random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from podium.basics.image_size import sides_of
from podium.basics.randomness import AUGMENT, generator
from podium.images.decode import Pixels
from podium.models.build import ModelSpec
from podium.options.moves.augmenter import padded_box, shape_of
from podium.options.recipe import Recipe

Number = Any  # or a column of numbers: an array, or a tensor on the device


class Changes(NamedTuple):
    """The changes of one image, or of many, a column each, in the order in which they are made."""

    row: Number  # of the training table
    final_height: Number
    final_width: Number
    top: Number  # of the crop, which may reach into the borders around the image
    left: Number
    height: Number
    width: Number
    is_mirrored: Number
    brightness: Number = 1.0
    contrast: Number = 1.0
    saturation: Number = 1.0
    first: Number = 0.0  # the order of these three, and of the hue, which does not change
    second: Number = 1.0
    third: Number = 2.0
    fourth: Number = 3.0
    hole_top: Number = 0.0
    hole_left: Number = 0.0
    hole_bottom: Number = 0.0
    hole_right: Number = 0.0
    red: Number = 0.0
    green: Number = 0.0
    blue: Number = 0.0


def can_be_drawn(recipe: Recipe) -> bool:
    """Returns whether all that the recipe changes about an image can be said in these numbers."""
    return all(move.can_be_drawn for move in recipe.moves)


class ChangesView:
    """Draws what `TrainView` does to an image, as bytes; it reads no pixel."""

    nbytes = len(Changes._fields) * 8

    def __init__(self, recipe: Recipe, spec: ModelSpec) -> None:
        self.recipe, self.spec = recipe, spec
        self.augmenter = recipe.augmenter()

    def __call__(self, image: Pixels, epoch: int, row: int) -> Pixels:
        recipe, size = self.recipe, self.recipe.size_at(epoch)
        rng = generator(AUGMENT, recipe.seed, epoch, row)
        height, width = image.shape[:2]
        above = before = 0
        if self.spec.fit == "pad":
            before, above, width, height = padded_box(height, width, size)
        box, is_mirrored = self.augmenter.frame(height, width, rng, self.spec.fit, shape_of(size))
        colour, erase = self.augmenter.colour, self.augmenter.erase
        changes = Changes(row, *sides_of(size), box.top + above, box.left + before, box.height, box.width, is_mirrored)
        if colour or erase:
            final = *sides_of(size), 3
            python_rng = random.Random(int(rng.integers(2**63)))
            if colour and (colours := _drawn(colour, final, rng, python_rng)):
                names = ("brightness", "contrast", "saturation")
                order = dict(zip(("first", "second", "third", "fourth"), colours["order"], strict=True))
                changes = changes._replace(**{name: colours[name] for name in names}, **order)
            if erase and (erased := _drawn(erase, final, rng, python_rng)):
                (left, top, right, bottom), fill = erased["holes"][0], _fill(erase.transforms[0], erased["seed"])
                changes = changes._replace(hole_top=top, hole_left=left, hole_bottom=bottom, hole_right=right)
                changes = changes._replace(red=fill[0], green=fill[1], blue=fill[2])
        numbers: Pixels = np.array(changes, np.float64).view(np.uint8)
        return numbers


def _drawn(
    pipeline: Any, shape: tuple[int, ...], rng: np.random.Generator, python_rng: random.Random
) -> dict[str, Any] | None:
    """Returns what the pipeline's one operation would do to an image of this shape; None if it would do nothing.

    These are the steps of albumentations' own call, without the image: a fraction of the time.
    """
    pipeline.set_random_state(rng, python_rng)
    (operation,) = pipeline.transforms
    if not (pipeline.py_random.random() < pipeline.p and operation.should_apply()):
        return None
    drawn = {"shape": shape, **operation.get_params()}
    return {**drawn, **operation.get_params_dependent_on_data(drawn, {})}


def _fill(erase: Any, seed: int) -> NDArray[np.uint8]:
    """Returns the colour that albumentations fills a hole with."""
    pixel: Pixels = erase.apply(np.zeros((1, 1, 3), np.uint8), np.array([[0, 0, 1, 1]]), seed)
    colour: Pixels = pixel[0, 0]
    return colour
