"""Registers the zoo's models with timm, and reads the names of models from source files, without importing them."""

import re
from importlib import import_module
from pathlib import Path

ZOO = Path(__file__).parent
REGISTERED = re.compile(r"^@register_model\ndef (\w+)\(", re.MULTILINE)


def names_in(folder: Path) -> frozenset[str]:
    """Returns the names that the files of a folder register; to import timm would take seconds."""
    return frozenset(name for file in folder.glob("*.py") for name in REGISTERED.findall(file.read_text("utf-8")))


def register_zoo() -> None:
    """Imports all files of the zoo: their decorators add the models to timm's registry."""
    for file in sorted(ZOO.glob("[!_]*.py")):
        import_module(f"podium.zoo.{file.stem}")
