"""Teachers for tests of distillation."""

import shutil
from pathlib import Path

import pytest

from tiny import FAST, podium_at


@pytest.fixture(scope="session")
def taught_template(tiny_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("taught") / "tiny"
    shutil.copytree(tiny_template, root)
    podium_at(root, "train", *FAST, "--model", "test_convnext", "--epochs", "8")
    podium_at(root, "train", *FAST, "--model", "test_vit", "--epochs", "2", "--image-size", "48")
    return root


@pytest.fixture
def taught(tmp_path: Path, taught_template: Path) -> Path:
    """The tiny competition with two teachers: at 32 pixels, and at 48 with another mean and deviation."""
    shutil.copytree(taught_template, tmp_path, dirs_exist_ok=True)
    return tmp_path
