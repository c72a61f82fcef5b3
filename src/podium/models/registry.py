"""Registers models of packages beside this one with timm, and reads their names without importing them."""

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from podium.basics.beside import modules_beside

REGISTERED = re.compile(r"^@register_model\ndef (\w+)\(", re.MULTILINE)


def names_in(folder: Path) -> frozenset[str]:
    """Returns the names that the files of a folder register; to import timm would take seconds."""
    return frozenset(name for file in folder.glob("*.py") for name in REGISTERED.findall(file.read_text("utf-8")))


@cache
def zoo_names() -> frozenset[str]:
    """Returns the names of the models that come with packages beside this one."""
    return frozenset(name for _, folder in _zoos() for name in names_in(folder))


def register_zoo() -> None:
    """Imports all files of the zoo: their decorators add the models to timm's registry."""
    for module, folder in _zoos():
        for file in sorted(folder.glob("[!_]*.py")):
            import_module(f"{module}.{file.stem}")


@cache
def _zoos() -> tuple[tuple[str, Path], ...]:
    specs = [(module, find_spec(module)) for module in modules_beside("zoo")]
    return tuple((module, Path(spec.origin).parent) for module, spec in specs if spec and spec.origin)
