"""Builds a model without its head that takes images of several sizes, for pretraining on crops of two sizes."""

from typing import TYPE_CHECKING, Any

from podium.basics.errors import PodiumError
from podium.basics.image_size import square_side
from podium.models.build import ModelSpec, build_model, sizes_near, try_size
from podium.options.recipe import Options, Recipe

if TYPE_CHECKING:
    from torch import nn

# What timm's models need to take any size: most nothing, ViTs and Swin an option. The parameters stay the same.
ANY_SIZE: tuple[Options, ...] = ({}, {"dynamic_img_size": True}, {"strict_img_size": False})


def build_backbone(recipe: Recipe) -> tuple["nn.Module", ModelSpec, int]:
    """Returns a model whose output is its features, the description of its inputs, and the size of small images."""
    problems = []
    for further in ANY_SIZE:
        try:
            model, spec = build_model(recipe, (), further=further)
        except PodiumError as problem:
            problems.append(problem)
            continue
        size = small_size(model, square_side(recipe.image_size, "pretraining"))
        if size:
            return model, spec, size
    if len(problems) == len(ANY_SIZE):
        raise problems[0]  # the others say that the model has no such option
    raise PodiumError(
        f"{recipe.model} takes no images smaller than {recipe.image_size} pixels, which the small crops are; use a"
        " larger --image-size, or a model that takes any size: a ConvNet, a timm ViT or cpvt_nano"
    )


def small_size(model: "nn.Module", image_size: int) -> int | None:
    """Returns the size nearest to half of the image size that the model takes; None if it takes no smaller size.

    The last map should have more than one pixel: with one, torch 2.15 computes a wrong gradient of a bfloat16
    convolution, and a crop of a single token has nothing to attend to.
    """
    half, reduction = image_size // 2, _reduction(model)
    sizes = [size for size in (half, *sizes_near(half)) if max(reduction, 1) <= size < image_size]
    sizes.sort(key=lambda size: size <= reduction)
    return next((size for size in sizes if not try_size(model, size)[1]), None)


def _reduction(model: Any) -> int:
    """Returns how many pixels of the image a pixel of the last map stands for, as far as timm knows."""
    info = getattr(model, "feature_info", None) or [{"reduction": 1}]
    return max(int(layer["reduction"]) for layer in info)
