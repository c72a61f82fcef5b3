"""Projects that many tests begin from: built once for all workers of pytest, and kept for later sessions.

A template is kept until something changes that it depends on: the code that ran while it was built (traced_code.py),
the data files of podium, or the machine. Other code may change. In CI, where none is kept, nothing is traced.
"""

import fcntl
import inspect
import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from traced_code import code_that_runs

TESTS = Path(__file__).parent
PROJECT = TESTS.parent
SOURCES = [PROJECT / "src" / name for name in ("podium", "podium_annex")]
STORE = TESTS / ".templates"  # git ignores it, and it may be deleted
DEPENDS = "depends.json"
KEPT = 3  # of each template, for states of the code that come back

_of_builds_around: list[set[str]] = []  # what templates depend on that are being built, with the templates in them


def template(build: Callable[..., None], *kind: str) -> Path:
    """Returns a folder that `build(folder, *kind)` has filled; tests work in copies of it."""
    shelf = STORE / "-".join([Path(inspect.getfile(build)).stem, build.__name__, *kind])
    shelf.mkdir(parents=True, exist_ok=True)
    with shelf.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = _find(shelf) or _build(shelf, build, *kind)
    for names in _of_builds_around:
        names.update(json.loads((folder.parent / DEPENDS).read_text()))
    return folder


def copied(build: Callable[..., None], *kind: str) -> Any:
    """Returns a fixture: a copy of that folder, where the `podium` fixture works."""

    @pytest.fixture
    def project(tmp_path: Path) -> Path:
        shutil.copytree(template(build, *kind), tmp_path, dirs_exist_ok=True)
        return tmp_path

    return project


def _find(shelf: Path) -> Path | None:
    """Returns a folder all of whose dependencies are as they were."""
    for record in sorted(shelf.glob(f"*/{DEPENDS}")):
        recorded = json.loads(record.read_text())
        if recorded == _state(recorded):
            return record.parent / "project"
    return None


def _build(shelf: Path, build: Callable[..., None], *kind: str) -> Path:
    older = sorted(shelf.glob("*/"), key=lambda path: path.stat().st_mtime)
    for path in [path for path in older if path.name != "unfinished"][: 1 - KEPT]:
        shutil.rmtree(path, ignore_errors=True)
    unfinished = shelf / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    (unfinished / "project").mkdir(parents=True)
    names = set(_machine())
    _of_builds_around.append(names)
    try:
        if os.environ.get("CI"):
            build(unfinished / "project", *kind)
            files = {path for folder in (*SOURCES, TESTS) for path in folder.rglob("*.py")}
        else:
            with code_that_runs(*SOURCES, TESTS) as files:
                build(unfinished / "project", *kind)
    finally:
        _of_builds_around.pop()
    data = [path for folder in SOURCES for path in folder.rglob("*") if path.suffix in (".csv", ".toml", ".c")]
    names |= {str(path.relative_to(PROJECT)) for path in {*files, *data}}
    state = _state(dict.fromkeys(names))
    (unfinished / DEPENDS).write_text(json.dumps(state, indent=0))
    folder = shelf / sha256(json.dumps(state).encode()).hexdigest()[:16]
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
    return folder / "project"


def _state(names: Mapping[str, object]) -> dict[str, str]:
    """Returns what these dependencies are now: the hash of a file, or a fact about the machine."""
    return {name: _machine().get(name) or _hash(name) for name in sorted(names)}


@cache
def _hash(name: str) -> str:
    path = PROJECT / name
    return sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"


@cache
def _machine() -> dict[str, str]:
    """Returns what decides about bits beside the code: the packages, and the processor with its instructions."""
    packages = {name: version(name) for name in ("torch", "timm", "numpy", "albumentations")}
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [f"model name: {platform.processor()}"]
    processor = "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))
    return {**packages, "processor": f"{processor} {os.environ.get('ONEDNN_MAX_CPU_ISA', '')}"}
