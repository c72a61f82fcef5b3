"""How much work a fold is. All forecasts count with it: those before a run, of a budget, and while a fold trains."""

import numpy as np

from podium.options.recipe import Recipe, relative_area

FORWARD_SHARE = 1 / 3  # of the time of a training step
CHECKED_IMAGES = 256  # training images whose predictions tell whether there is a barrier: see kept_start.py


class FoldWork:
    """Counts in training at full image size: in images, or in steps if the steps of an epoch are given."""

    def __init__(self, recipe: Recipe, training: int, held_out: int, steps: int | None = None) -> None:
        self.epochs = recipe.epochs
        self.per_epoch = training if steps is None else steps
        areas = [relative_area(recipe.size_at(epoch), recipe) for epoch in range(recipe.epochs)]
        self.training = self.per_epoch * np.append(0.0, np.cumsum(areas))  # until each epoch begins, and all
        forward = FORWARD_SHARE * relative_area(recipe.test_size, recipe)  # of one image
        if steps is not None:
            forward *= steps / training
        checked = forward * recipe.added_cost.checks * min(CHECKED_IMAGES, training)
        self.prediction = forward * held_out * recipe.view_count
        self.validation = forward * held_out + checked
        self.last_validation = self.prediction + checked

    @property
    def total(self) -> float:
        return float(self.training[-1] + self.validation * (self.epochs - 1) + self.last_validation)


def feature_seconds(recipe: Recipe, training: int, held_out: int, images_per_s: float) -> float:
    """Returns the seconds that the features of so many images take under the frozen backbone, once for all folds."""
    return (training + held_out) * recipe.view_count * FORWARD_SHARE / images_per_s


def estimate_seconds(recipe: Recipe, training: int, held_out: int, images_per_s: float, folds: int = 1) -> float:
    """Returns the seconds that folds of so many images take, if so many are trained on in a second."""
    steps = FoldWork(recipe, training, held_out).total / images_per_s if recipe.takes_steps else 0.0
    if recipe.takes_steps and not recipe.fits_head:
        return folds * steps
    features = feature_seconds(recipe, training, held_out, images_per_s)
    return folds * steps + (1 if recipe.shares_features else folds) * features
