"""Podium takes a Kaggle image-classification competition from its files to a submission you can trust.

The rooms, in the order of the flow: containers, competition, images, folds, zoo, operators, models, training, explain,
pretraining, submissions, report, kaggle, cli. Each imports only from those before it; docs/architecture.md shows the
way through them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from podium.library import Competition, Machine, Run, compare, load, runs, submit, train

__version__ = "0.1.0"
DEFAULT_COMPETITION = "boolart-image-classification"
STOPPED = 75  # exit status: a signal stopped the command, and the same command resumes


class PodiumError(Exception):
    """A mistake that the user can correct: one sentence with what happened, where, and what to do."""

    in_all_processes = False  # true: every process of a group raises it, and the first one reports it

    def _render_traceback_(self) -> list[str]:
        """Shows the sentence alone in a notebook: IPython asks for this."""
        return [f"PodiumError: {self}"]


# --- the library, imported when one of its names is used ----------------------------------------------

__all__ = ["Competition", "Machine", "PodiumError", "Run", "compare", "load", "runs", "submit", "train"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("podium.library"), name)
    raise AttributeError(f"module 'podium' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
