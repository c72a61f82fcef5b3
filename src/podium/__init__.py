"""Podium takes a Kaggle image-classification competition from its files to a submission you can trust.

The rooms: basics, tasks, options, competition, images, folds, models, saved_runs, training, blending, submissions,
comparing, kaggle, competing, cli. Each imports only from those before it; docs/architecture.md shows the way through,
and podium_annex is beside them.
"""

import podium.basics.early_signals  # noqa: F401, I001  the first line that a command runs

from typing import TYPE_CHECKING, Any

from podium.basics.errors import PodiumError

if TYPE_CHECKING:
    from podium.library import Competition, Machine, Run, compare, compete, frame, load, runs, submit, train
    from podium.options.extensions import extend as extend

__version__ = "0.5.0"

# --- the library, imported when one of its names is used ----------------------------------------------

__all__ = ["Competition", "Machine", "PodiumError", "Run"]
__all__ += ["compare", "compete", "frame", "load", "runs", "submit", "train"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "extend":  # for files, and cells of notebooks, with a project's own parts
        import_module("podium.options.extensions.extension_files")
        return import_module("podium.options.extensions.extend")
    if name == "explain":  # as earlier versions had it
        try:
            return import_module("podium_annex.explain")
        except ModuleNotFoundError:
            raise AttributeError("podium.explain is podium_annex.explain, which is not installed") from None
    if name in __all__:
        return getattr(import_module("podium.library"), name)
    raise AttributeError(f"module 'podium' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
