"""Loads the files of a project's own parts: `extend = "mine.py"` in podium.toml or in the competition's card.

Reads podium.toml and these files; writes nothing. extend.py holds the decorators that they use.
"""

import hashlib
import importlib.util
import re
import sys
import tomllib
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import did_you_mean
from podium.options.extensions.extend import CELLS, place_of, summary_of, when_a_cell_adds, withdraw_all
from podium.options.extensions.notebook_parts import source_of

PROJECT_FILE = "podium.toml"  # in the root
KEYS = ("extend",)
MODULE_PREFIX = "podium_extension_"


@dataclass(frozen=True)
class Extension:
    """One file. A process gets its source, not only its path: all processes of a run must use the same code."""

    name: str  # its path below the root, with /
    path: Path
    source: bytes
    is_cell: bool = False  # of a notebook: there is no such file

    @property
    def module(self) -> str:
        return MODULE_PREFIX + re.sub(r"\W", "_", self.name.removesuffix(".py"))

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.source).hexdigest()


_loaded: tuple[Extension, ...] = ()


def loaded_extensions() -> tuple[Extension, ...]:
    return _loaded


def load_extensions(root: Path, in_card: Any = (), card_path: Path | None = None) -> None:
    """Loads the files that podium.toml and the card name, unless they are loaded; they replace those of others."""
    names = [*_names(_read_project_file(root), root / PROJECT_FILE), *_names(in_card, card_path)]
    use_extensions([*(_read(root, name) for name in dict.fromkeys(names)), *_cells()])


def use_cells() -> None:
    """Loads what cells of the notebook define by now, beside the files."""
    use_extensions([*(extension for extension in _loaded if not extension.is_cell), *_cells()])


def _cells() -> list[Extension]:
    sources = {f"notebook_{name}.py": source_of(part, CELLS) for name, part in CELLS.items()}
    return [Extension(name, Path(name), source.encode(), is_cell=True) for name, source in sources.items()]


when_a_cell_adds.append(use_cells)


def use_extensions(extensions: Iterable[Extension]) -> None:
    """Makes these the loaded extensions; a loader process gets them from its parent."""
    global _loaded
    wanted = tuple(extensions)
    if wanted == _loaded:
        return
    withdraw_all()
    _loaded = ()
    try:
        for number, extension in enumerate(wanted):
            _execute(extension, wanted[:number])
    except PodiumError:
        withdraw_all()
        raise
    _loaded = wanted


def extension_models() -> set[str]:
    """Returns the names of the models that the loaded files have registered with timm; does not import timm."""
    timm: Any = sys.modules.get("timm")
    return {name for extension in _loaded for name in timm.list_models(module=extension.module)} if timm else set()


# --- reading -----------------------------------------------------------------------------------------


def _read_project_file(root: Path) -> Any:
    """Returns what podium.toml says of extensions."""
    path = root / PROJECT_FILE
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; delete it, or fix its permissions") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PodiumError(f"{path}: {error}; correct it or delete it") from None
    for key in settings:
        if key not in KEYS:
            hint = did_you_mean(key, KEYS, otherwise=f"the settings are {', '.join(KEYS)}")
            raise PodiumError(f"{path}: no setting '{key}'; {hint}")
    return settings.get("extend", ())


def _names(value: Any, where: Path | None) -> list[str]:
    """Returns the names of files that `extend` lists: one text, or several."""
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    for name in names:
        if not isinstance(name, str):
            raise PodiumError(f"{where}: extend must be the name of a file, or a list of names, not {value!r}")
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or path.suffix != ".py":
            raise PodiumError(f"{where}: extend must name .py files below the project's folder, not '{name}'")
    return [str(PurePosixPath(name)) for name in names]


def _read(root: Path, name: str) -> Extension:
    path = root / name
    try:
        return Extension(name, path, path.read_bytes())
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; `extend` names it: correct that, or bring the file") from None


# --- loading -----------------------------------------------------------------------------------------


def _execute(extension: Extension, earlier: Iterable[Extension]) -> None:
    """Runs the file as a module; timm finds the module of a model by its name."""
    file = str(extension.path)
    spec = importlib.util.spec_from_file_location(extension.module, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[extension.module] = module
    try:
        with warnings.catch_warnings():
            # timm only warns if a model replaces another. It may replace a model of files that are no longer loaded.
            warnings.filterwarnings("error", r"Overwriting \w+ in registry")
            for name in _forgotten_models(earlier):
                warnings.filterwarnings("ignore", f"Overwriting {name} in registry")
            exec(compile(extension.source, file, "exec"), vars(module))
    except PodiumError as error:
        raise PodiumError(f"{place_of(error, file)}: {error}") from None
    except (Exception, SystemExit) as error:
        raise PodiumError(f"{place_of(error, file)}: {summary_of(error)}; correct that file") from error


def _forgotten_models(loaded: Iterable[Extension]) -> set[str]:
    """Returns the models that timm still knows from files that are no longer loaded."""
    timm: Any = sys.modules.get("timm")
    modules = [name for name in timm.list_modules() if name.startswith(MODULE_PREFIX)] if timm else []
    current = {extension.module for extension in loaded}
    return {model for name in modules if name not in current for model in timm.list_models(module=name)}
