"""What the zoo's models say of themselves, in timm's form. Their weights are files: `--weights FILE`."""

from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD


def config(**differences: Any) -> dict[str, Any]:
    """Returns timm's description of a model: how most authors of these papers fed their images, and the differences."""
    return {
        "num_classes": 1000,
        "input_size": (3, 224, 224),
        "pool_size": None,
        "crop_pct": 0.9,
        "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "first_conv": "patch_embed.proj",
        "classifier": "head",
        **differences,
    }
