"""Packages that lie beside this one and whose names begin with `podium_`, as the annex: each may bring some modules.

    commands.py     commands of podium, in COMMANDS
    pictures.py     what is drawn of runs that were trained together, as AFTER_COMPARING
    readers.py      readers of formats, in READERS and OPENERS
    trackers.py     programs that follow a fold, in TRACKERS
    zoo/            models, registered with timm by its decorators

Entry points would say the same, but to read them takes a third of the time of `podium --help`, and a copy that is not
installed, as in a kernel, has none.
"""

import pkgutil
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PREFIX = "podium_"


@cache
def modules_beside(name: str) -> tuple[str, ...]:
    """Returns the modules of this name in the packages beside this one."""
    here = str(Path(__file__).parents[2])
    packages = [one.name for one in pkgutil.iter_modules([here]) if one.ispkg and one.name.startswith(PREFIX)]
    return tuple(f"{package}.{name}" for package in packages if find_spec(f"{package}.{name}"))


def brought(module: str, name: str) -> list[Any]:
    """Returns what has this name in the modules that packages beside this one bring."""
    modules = [import_module(found) for found in modules_beside(module)]
    return [getattr(found, name) for found in modules if hasattr(found, name)]  # another package may mean another thing
