"""Teachers for tests of distillation."""

import shutil
from pathlib import Path

import pytest

from templates import template
from tiny import FAST, podium_at, tiny_with_folds


def with_two_teachers(root: Path) -> None:
    tiny_with_folds(root)
    podium_at(root, "train", *FAST, "--model", "test_convnext", "--epochs", "8")
    podium_at(root, "train", *FAST, "--model", "test_vit", "--epochs", "2", "--image-size", "48")


@pytest.fixture
def taught(tmp_path: Path) -> Path:
    """The tiny competition with two teachers: at 32 pixels, and at 48 with another mean and deviation."""
    shutil.copytree(template(with_two_teachers), tmp_path, dirs_exist_ok=True)
    return tmp_path
