"""Finds the files whose code decides about what is computed in a block."""

import dis
import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType


@contextmanager
def code_that_runs(*folders: Path) -> Iterator[set[Path]]:
    """Fills a set with the files in these folders whose functions ran in the block, and those that they import.

    What a function imports counts if the function ran, what a module imports counts always: from either, a constant
    may have been read without running anything.
    """
    codes, seen, files = set[CodeType](), set[CodeType](), set[Path]()
    starts = tuple(str(folder) for folder in folders)

    def note(frame: FrameType, event: str, _: object) -> None:  # of a call; without a return value, of no line in it
        if frame.f_code not in seen:
            seen.add(frame.f_code)
            if frame.f_code.co_filename.startswith(starts):
                codes.add(frame.f_code)

    before, before_in_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(note)
    threading.settrace(note)
    try:
        yield files
    finally:
        sys.settrace(before)
        threading.settrace(before_in_threads)  # type: ignore[arg-type]  # None is none
    waiting = [Path(code.co_filename) for code in codes]
    waiting += [path for code in list(codes) for path in _imported(code, starts)]
    while waiting:
        path = waiting.pop()
        if path not in files and path.exists():
            files.add(path)
            waiting += _imported_by_module(path, starts)


@cache
def _imported_by_module(path: Path, starts: tuple[str, ...]) -> list[Path]:
    return _imported(compile(path.read_text(encoding="utf-8"), str(path), "exec"), starts)


def _imported(code: CodeType, starts: tuple[str, ...]) -> list[Path]:
    """Returns the files in these folders that the code imports, and the packages around them."""
    names, module = list[str](), ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            module = str(instruction.argval)
            names += [module, module.rpartition(".")[0]]
        elif instruction.opname == "IMPORT_FROM":
            names.append(f"{module}.{instruction.argval}")
    return [path for name in dict.fromkeys(names) if name and (path := _file_of(name)) and str(path).startswith(starts)]


@cache
def _file_of(name: str) -> Path | None:
    """Returns the file of a module, if there is one of this name."""
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None
    return Path(found.origin) if found and found.origin and found.origin.endswith(".py") else None
