"""An installation without a clone: the wheel holds all that the commands need."""

import fnmatch
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "podium"


def test_every_file_of_the_package_is_declared() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["podium"]
    files = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*") if path.is_file()]
    others = {name for name in files if not name.endswith((".py", ".pyc", ".typed"))}
    assert others == {name for name in others if any(fnmatch.fnmatch(name, pattern) for pattern in declared)}
    assert set(declared) <= others


@pytest.mark.slow
@pytest.mark.all
def test_a_wheel_goes_from_the_sample_to_a_submission(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "clone" / "src" / "podium")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "clone" / name)
    source = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    build = [sys.executable, "-c", source, str(tmp_path)]
    subprocess.run(build, cwd=tmp_path / "clone", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("podium-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}

    def podium(*words: str) -> str:
        command = [sys.executable, "-m", "podium", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    podium("sample")
    podium("folds", "-c", "sample", "--k", "3")
    podium("train", "-c", "sample", "--model", "test_resnet", "--weights", "none", "--epochs", "1", "--folds", "0")
    assert podium("submit", "-c", "sample", "--anyway").endswith("submissions/sample/test_resnet.csv\n")
    where = [sys.executable, "-c", "import podium; print(podium.__file__)"]
    assert str(tmp_path) in subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
