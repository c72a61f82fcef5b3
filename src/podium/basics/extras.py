"""Knows which packages Podium declares, and refuses a feature whose extra is not installed.

`[project.optional-dependencies]` in pyproject.toml is the one list of extras; installing Podium records it. On Kaggle's
machines Podium is unpacked and not installed: there a copy of the record lies beside src/ (pack_kernel.py).
"""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, uses_make

if TYPE_CHECKING:
    from packaging.requirements import Requirement

COPY = Path(__file__).parents[3] / "requirements.txt"  # of a kernel or a bundle


def declared_lines() -> list[str]:
    """Returns what Podium requires, as its metadata has it: a line with a marker for what only an extra brings."""
    try:
        return importlib.metadata.requires("podium") or []
    except importlib.metadata.PackageNotFoundError:
        return COPY.read_text().splitlines()


def requirements_of(*extras: str) -> "list[Requirement]":
    """Returns what running Podium needs, and what these extras bring."""
    from packaging.requirements import Requirement

    requirements = map(Requirement, declared_lines())
    wanted = [{"extra": extra} for extra in ("", *extras)]
    return [one for one in requirements if not one.marker or any(map(one.marker.evaluate, wanted))]


def remedy_of_extra(names: Sequence[str], extra: str) -> str:
    """Returns which command brings these packages."""
    command = f"make setup WITH={extra}" if uses_make() else f"pip install 'podium[{extra}]'"
    return f"the extra {extra} brings {first_few(names)}: {command}"


class MissingPackage(PodiumError):
    """A feature needs a package that only an extra brings."""

    def __init__(self, what: str, names: Sequence[str], extra: str) -> None:
        self.problem = f"{what} needs {first_few(names)}, not installed here"
        self.remedy = remedy_of_extra(["it"], extra)
        super().__init__(f"{self.problem}; {self.remedy}")


def refuse_without(extra: str, what: str) -> None:
    """Raises if a package of the extra is not installed; the error says which command brings it."""
    own = {requirement.name for requirement in requirements_of()}
    brought = [requirement.name for requirement in requirements_of(extra) if requirement.name not in own]
    if missing := [name for name in brought if importlib.util.find_spec(name.replace("-", "_")) is None]:
        raise MissingPackage(what, missing, extra)


def import_package(module: str, extra: str, what: str) -> Any:
    """Returns a module of a package that the extra brings."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingPackage(what, [module.split(".")[0]], extra) from None
