"""What speaks against a run: it knew held-out images (known_images.py), or its code was edited after its training.

The automatic blend leaves such a run out (blending/select_runs.py); whatever shows or uses it says why.
"""

from podium.extensions.own_parts import edited_parts
from podium.saved_runs.known_images import doubt_about_score
from podium.saved_runs.run_folder import Run
from podium.terminal import first_few, say_once


def doubt_about(run: Run) -> str:
    """Returns all doubts about a run, for people; nothing if there are none."""
    return "; ".join(filter(None, (doubt_about_score(run), doubt_about_code(run))))


def doubt_about_code(run: Run) -> str:
    """Returns which own parts the run's weights were not trained with, and the remedy; nothing if there are none."""
    edited = edited_parts(run.recipe)
    if not edited:
        return ""
    return (
        f"{first_few(edited)} was edited after {run.name} was trained, so its weights do not belong to this code and"
        " its predictions may be wrong: restore that file, or train the run again under another name"
    )


def warn_of_code(run: Run) -> None:
    """Says the doubt about the run's code; once, because a command opens several of its models."""
    _warn(doubt_about_code(run))


def warn_of_doubts(run: Run) -> None:
    """Says all doubts about a run, those that this command has not yet said."""
    _warn(doubt_about_score(run))
    _warn(doubt_about_code(run))


def _warn(doubt: str) -> None:
    if doubt:
        say_once(f"podium: warning: {doubt}")
