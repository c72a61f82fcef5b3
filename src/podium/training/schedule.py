"""The learning rate of every step: a pure function of the step, with warm-up and a cosine that ends at zero."""

import math

from podium.recipe import Recipe


def learning_rate(step: int, total_steps: int, steps_per_epoch: int, recipe: Recipe) -> float:
    """Rises linearly to the peak during the warm-up, then falls to zero along a half cosine."""
    warmup = min(recipe.warmup * steps_per_epoch, total_steps / 5)
    if step < warmup:
        return recipe.lr * (step + 1) / (warmup + 1)
    return recipe.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total_steps - warmup)))
