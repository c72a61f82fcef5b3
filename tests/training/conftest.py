"""Teachers for tests of distillation."""

from pathlib import Path

from templates import copied
from tiny import FAST, podium_at, tiny_with_folds


def with_two_teachers(root: Path) -> None:
    tiny_with_folds(root)
    podium_at(root, "train", *FAST, "--model", "test_convnext", "--epochs", "8")
    podium_at(root, "train", *FAST, "--model", "test_vit", "--epochs", "2", "--image-size", "48")


# Two teachers: at 32 pixels, and at 48 with another mean and deviation.
taught = copied(with_two_teachers)
