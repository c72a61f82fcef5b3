"""Compiling the kernels: once per machine, and a reason where it cannot be done."""

import subprocess
import sys
from pathlib import Path

import pytest

from podium.operators import kernels

needs_kernels = pytest.mark.skipif(bool(kernels.problem()), reason=kernels.problem())


@pytest.fixture
def compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new cache folder; the kernels that are loaded stay so."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "_library", kernels._library.__wrapped__)
    return tmp_path / "cache" / "podium"


@needs_kernels
def test_they_are_compiled_once(compiled_anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels.problem() == ""
    (library,) = compiled_anew.iterdir()
    monkeypatch.setenv("PATH", "")  # a second time needs no compiler
    assert kernels.problem() == ""
    assert list(compiled_anew.iterdir()) == [library]


def test_without_a_compiler_the_reason_is_given(compiled_anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "no C compiler" in kernels.problem()


def test_a_compiler_that_fails_leaves_no_file(
    compiled_anew: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'cc: unknown option' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert "unknown option" in kernels.problem()
    assert not list(compiled_anew.iterdir())


def test_a_cache_that_cannot_be_written_is_a_reason_too(
    compiled_anew: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file in the place of the folder")
    assert kernels.problem()


@needs_kernels
def test_a_damaged_library_is_a_reason(compiled_anew: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.problem()
    (library,) = compiled_anew.iterdir()
    damaged = tmp_path / "other" / "podium" / library.name
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(b"damaged")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert f"{damaged} cannot be loaded" in kernels.problem()


@needs_kernels
def test_they_share_the_threads_of_torch() -> None:
    """With a library of its own, OpenMP would start a second set of threads."""
    code = (
        "from podium.operators import kernels; assert not kernels.problem();"
        "paths = {line.split()[-1] for line in open('/proc/self/maps')};"
        "print(sum('omp' in path.rpartition('/')[2] for path in paths))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
