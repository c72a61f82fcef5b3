"""Two trained runs for the tests of submissions."""

import shutil
from pathlib import Path

import pytest

from tiny import FAST, Podium, podium_at, write_competition


@pytest.fixture(scope="session")
def trained_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the runs `good` and `idle` of two folds each. `idle` has learned nothing."""
    root = tmp_path_factory.mktemp("two_runs")
    write_competition(root, per_class=12, test_images=9)
    podium_at(root, "folds", "-c", "tiny", "--k", "2")
    for name, epochs, rate in (("good", "8", "3e-3"), ("idle", "1", "1e-9")):
        words = ("--model", "test_convnext", "--name", name, "--epochs", epochs, "--lr", rate, "--image-size", "64")
        podium_at(root, "train", *FAST, *words)
    return root


@pytest.fixture
def two_runs(trained_root: Path, tmp_path: Path) -> Path:
    """A copy of that project, in the folder that the `podium` fixture works in."""
    shutil.copytree(trained_root, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def csv(two_runs: Path, podium: Podium) -> Path:
    """A submission of the run `good`, in that copy."""
    status, out, err = podium("submit", "-c", "tiny", "--runs", "good")
    assert status == 0, err
    return Path(out.strip())
