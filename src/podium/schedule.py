"""The plan of a fold's steps: how fast it learns at each, and how long all will take."""

import math
import time

import numpy as np

from podium.console import duration, say
from podium.loader import Steps
from podium.recipe import Recipe, size_at


def learning_rate(step: int, total: int, warmup: float, peak: float) -> float:
    """Linear from nothing to the peak, then a half cosine to nothing."""
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


class Forecast:
    """After the first steps, once: how long the run will take."""

    def __init__(self, steps: Steps, held_out: float, folds_left: int, recipe: Recipe) -> None:
        self.steps, self.folds_left, self.epochs = steps, folds_left, recipe.epochs
        # Predicting an image is a forward pass, a third of a training step; the last time with its mirrored view.
        self.overhead = 1 + held_out / 3 * (1 + (recipe.mirror > 0) / recipe.epochs)
        areas = np.array([size_at(epoch, recipe) ** 2 for epoch in range(recipe.epochs)], dtype=np.float64)
        self.work = np.append(np.cumsum((areas / areas[steps.start // steps.per_epoch % recipe.epochs])[::-1])[::-1], 0)
        self.first, self.began, self.said = 0.0, 0.0, False

    def at(self, step: int) -> None:
        """Called before each step; the very first step allocates memory and chooses kernels."""
        done = step - self.steps.start - 1
        if done < 0:
            self.first = time.monotonic()
        if done == 0:
            self.began = time.monotonic()
        seconds = time.monotonic() - self.began
        if self.said or done < 2 or (done < 20 and seconds < 5):
            return
        self.said = True
        pace = seconds / done
        epoch, nth = divmod(step, self.steps.per_epoch)
        left = self.work[epoch] - (self.work[epoch] - self.work[epoch + 1]) * nth / self.steps.per_epoch
        ahead = (left + (self.folds_left - 1) * self.work[0]) * self.steps.per_epoch * pace * self.overhead
        until = time.strftime("%a %H:%M", time.localtime(time.time() + ahead))
        folds = f"{self.folds_left} folds" if self.folds_left > 1 else "this fold"
        epochs = f"{self.epochs} epochs" if self.epochs > 1 else "1 epoch"
        speed = f"{self.steps.batch_size / pace:,.1f} images/s"
        say(f"podium: {speed}; {folds} of {epochs} will take about {duration(ahead)}, until {until}")
