"""Projects that many tests begin from: built once for all workers of pytest, and kept for later sessions."""

import fcntl
import inspect
import os
import platform
import shutil
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

TESTS = Path(__file__).parent
STORE = TESTS / ".templates"  # git ignores it, and it may be deleted
KEPT = 3  # states of the code whose templates stay


def template(build: Callable[..., None], *kind: str) -> Path:
    """Returns a folder that `build(folder, *kind)` has filled; tests work in copies of it."""
    folder = STORE / _state() / "-".join([Path(inspect.getfile(build)).stem, build.__name__, *kind])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished, *kind)
            unfinished.rename(folder)
    return folder


@cache
def _state() -> str:
    """Returns a name for all that templates depend on, code and machine, and forgets those of older states."""
    facts = [version(name) for name in ("torch", "timm", "numpy", "albumentations")]
    facts += [_processor(), os.environ.get("ONEDNN_MAX_CPU_ISA", "")]
    digest = sha256(repr(facts).encode())
    for path in sorted([*(TESTS.parent / "src" / "podium").rglob("*"), *TESTS.rglob("*.py")]):
        if path.is_file() and path.suffix != ".pyc" and STORE not in path.parents:
            digest.update(str(path.relative_to(TESTS.parent)).encode() + path.read_bytes())
    name = digest.hexdigest()[:16]
    older = sorted((path for path in STORE.glob("*") if path.name != name), key=lambda path: path.stat().st_mtime)
    for path in older[: 1 - KEPT]:
        shutil.rmtree(path, ignore_errors=True)
    return name


def _processor() -> str:
    """Returns what decides about bits: the name of the processor, and the instructions that it has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))
