"""Compiling the kernels: once per machine, and a reason where it cannot be done."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.models.operators import kernels

needs_kernels = pytest.mark.skipif(bool(kernels.problem()), reason=kernels.problem())


# Compiles in a fifth of the time, and only once.
COMPILER = """#!/bin/sh
PATH=/usr/local/bin:/usr/bin:/bin
for output; do :; done
case $output in *.o) kept=$(dirname "$0")/kept.o ;; *) kept=$(dirname "$0")/kept.so ;; esac
if [ ! -f "$kept" ]; then cc "$@" -O1 || exit; cp "$output" "$kept"; fi
cp "$kept" "$output"
"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bin") / "cc"
    path.write_text(COMPILER)
    path.chmod(0o755)
    return path


@pytest.fixture
def compiled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: Path) -> Path:
    """A new cache folder; the kernels that are loaded stay so."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(compiler.parent), prepend=os.pathsep)
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


def write_damaged(library: Path) -> None:
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)


def let_all_write(library: Path) -> None:
    library.chmod(0o666)


def give_away(library: Path) -> None:
    os.chown(library, os.geteuid() + 1, -1)


def replace_by_link(library: Path) -> None:
    planted = library.parents[2] / "planted.so"
    library.rename(planted)
    library.symlink_to(planted)


def let_all_write_to_the_folder(library: Path) -> None:
    library.chmod(0o664)  # as with the umask 002
    library.parent.chmod(0o777)


@needs_kernels
@pytest.mark.parametrize(
    "spoil", [write_damaged, let_all_write, give_away, replace_by_link, let_all_write_to_the_folder]
)
def test_a_library_that_another_may_have_written_or_that_is_damaged_is_compiled_again(
    compiled_anew: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None]
) -> None:
    if spoil is give_away and os.geteuid():
        pytest.skip("only root can give a file away")
    kernels.problem()
    (library,) = compiled_anew.iterdir()
    sound = library.read_bytes()
    spoil(library)
    loaded: list[bytes] = []
    monkeypatch.setattr(ctypes, "CDLL", lambda path: loaded.append(Path(path).read_bytes()))
    noted: list[Path] = []
    monkeypatch.setattr(kernels, "_compile", compile_and_note(noted))
    assert kernels.problem() == ""
    assert noted == [library]
    assert loaded == [sound]
    assert not library.is_symlink()
    assert library.stat().st_uid == os.geteuid()
    assert not (library.stat().st_mode | compiled_anew.stat().st_mode) & 0o022


@needs_kernels
def test_in_the_folder_of_another_user_nothing_is_loaded_or_written(
    compiled_anew: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels.problem()
    (library,) = compiled_anew.iterdir()
    before = library.read_bytes()
    monkeypatch.setattr(os, "geteuid", lambda: compiled_anew.stat().st_uid + 1)
    noted: list[Path] = []
    monkeypatch.setattr(kernels, "_compile", compile_and_note(noted))
    assert kernels.problem() == ""
    (private,) = noted
    assert private.name == library.name
    assert not private.is_relative_to(compiled_anew)
    assert not private.parent.exists()
    assert library.read_bytes() == before


def compile_and_note(noted: list[Path]) -> Callable[[Path, Path], str]:
    compile_as_usual = kernels._compile

    def compile_library(path: Path, threads: Path) -> str:
        noted.append(path)
        return compile_as_usual(path, threads)

    return compile_library


@needs_kernels
def test_they_share_the_threads_of_torch() -> None:
    """With a library of its own, OpenMP would start a second set of threads."""
    code = (
        "from podium.models.operators import kernels; assert not kernels.problem();"
        "paths = {line.split()[-1] for line in open('/proc/self/maps')};"
        "print(sum('omp' in path.rpartition('/')[2] for path in paths))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
