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
PACKAGES = ("podium", "podium_annex")
# The environment of the tests knows the clone, too.
WITHOUT_CLONE = f"""
import runpy, sys
sys.path[:] = [folder for folder in sys.path if folder != {str(ROOT / "src")!r}]
runpy.run_module("podium", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("package", ["podium", pytest.param("podium_annex", marks=pytest.mark.annex)])
def test_every_file_of_a_package_is_declared(package: str) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][package]
    folder = ROOT / "src" / package
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    others = {name for name in files if not name.endswith((".py", ".pyc", ".typed"))}
    assert others == {name for name in others if any(fnmatch.fnmatch(name, pattern) for pattern in declared)}
    assert set(declared) <= others


@pytest.mark.annex
@pytest.mark.slow
@pytest.mark.all
@pytest.mark.parametrize("packages", [PACKAGES[:1], PACKAGES], ids=["core", "whole"])
def test_a_wheel_goes_from_the_sample_to_a_submission(tmp_path: Path, packages: tuple[str, ...]) -> None:
    for package in packages:
        shutil.copytree(ROOT / "src" / package, tmp_path / "clone" / "src" / package)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "clone" / name)
    source = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    build = [sys.executable, "-c", source, str(tmp_path)]
    subprocess.run(build, cwd=tmp_path / "clone", check=True, capture_output=True)
    (wheel,) = tmp_path.glob("podium-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}

    def podium(*words: str) -> str:
        command = [sys.executable, "-c", WITHOUT_CLONE, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    podium("sample")
    podium("folds", "-c", "sample", "--k", "3")
    podium("train", "-c", "sample", "--model", "test_resnet", "--weights", "none", "--epochs", "1", "--folds", "0")
    assert podium("submit", "-c", "sample", "--anyway").endswith("submissions/sample/test_resnet.csv\n")
    podium("predict", "-c", "sample", "test_resnet", str(next((tmp_path / "data").rglob("*.png"))))
    if len(packages) > 1:
        assert podium("report", "-c", "sample").endswith("report.html\n")
    else:
        with pytest.raises(AssertionError, match="podium report comes with podium_annex, which is not installed"):
            podium("report", "-c", "sample")
    where = [sys.executable, "-c", "import podium; print(podium.__file__)"]
    assert str(tmp_path) in subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_the_core_alone_answers(tmp_path: Path) -> None:
    """A short form of the way above, which `make test-all` goes."""
    shutil.copytree(ROOT / "src" / PACKAGES[0], tmp_path / "alone" / "podium")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "alone")}
    answers = {
        ("train", "--help"): (0, "--help TOPIC"),
        ("report", "-c", "tiny"): (1, "podium report comes with podium_annex"),
        ("train", "--on", "ray"): (1, "--on comes with podium_annex"),
        ("sample",): (0, "podium folds"),
        ("folds", "-c", "sample"): (0, "next: podium compete"),
    }
    for words, (status, said) in answers.items():
        command = [sys.executable, "-c", WITHOUT_CLONE, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (done.returncode, said in done.stdout + done.stderr) == (status, True), done.stdout + done.stderr
