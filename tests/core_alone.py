"""Runs the tests of the core where there is no annex: `make test-core`.

    python tests/core_alone.py [words of pytest]

It copies the clone to build/core, without src/podium_annex and without the tests that are about it: those in folders
that are rooms of the annex, modules that import it, and modules that import such ones. Tests of other modules that
need the annex have the mark `annex`. A test that needs it and does not say so fails here.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

CLONE = Path(__file__).parents[1]
ANNEX = CLONE / "src" / "podium_annex"
COPY = CLONE / "build" / "core"
STORE = Path("tests", ".templates")  # shared with the clone: a template says which files it depends on


def imported_by(path: Path) -> set[str]:
    """Returns the modules that a module imports when it is imported, in functions not."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def tests_of_the_annex(tests: Path) -> set[Path]:
    """Returns the modules of tests that cannot be imported without the annex, or are about one of its rooms."""
    rooms = {path.name for path in ANNEX.iterdir() if path.is_dir()}
    modules = [path for path in tests.rglob("*.py") if ".templates" not in path.parts]
    left_out = {path for path in modules if path.relative_to(tests).parts[0] in rooms}
    missing, size = {ANNEX.name}, -1
    imports = {path: imported_by(path) for path in modules}
    while len(left_out) > size:
        size = len(left_out)
        missing |= {path.relative_to(tests).with_suffix("").as_posix().replace("/", ".") for path in left_out}
        left_out |= {
            path
            for path in modules
            if any(name in missing or name.startswith(f"{ANNEX.name}.") for name in imports[path])
            or any(other.name == "conftest.py" and path.is_relative_to(other.parent) for other in left_out)
        }
    return left_out


def copy_core() -> None:
    """Copies what git knows, or would."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CLONE,
        check=True,
        capture_output=True,
        text=True,
    )
    left_out = tests_of_the_annex(CLONE / "tests")
    shutil.rmtree(COPY, ignore_errors=True)
    for name in filter(None, listed.stdout.split("\0")):
        source, target = CLONE / name, COPY / name
        if source.exists() and not source.is_relative_to(ANNEX) and source not in left_out:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    (CLONE / STORE).mkdir(exist_ok=True)
    (COPY / STORE).symlink_to(CLONE / STORE)


def main(words: list[str]) -> int:
    copy_core()
    # Before the clone itself, which the environment knows, too; beside podium there is no annex then.
    environment = {**os.environ, "PYTHONPATH": str(COPY / "src")}
    command = [sys.executable, "-m", "pytest", *words]
    return subprocess.run(command, cwd=COPY, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
