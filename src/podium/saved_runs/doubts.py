"""What speaks against a run: it knew held-out images (known_images.py), it was edited after its training, or it was
imported and nobody knows its folds (imported_runs.py).

Edited is the code of its own parts, or its recipe.json (trained_with.py).

The automatic blend leaves such a run out (blending/select_runs.py); whatever shows or uses it says why.
"""

from podium.basics.terminal import first_few, say_once
from podium.options.extensions.own_parts import edited_parts
from podium.saved_runs.imported_runs import doubt_about_folds
from podium.saved_runs.known_images import doubt_about_score
from podium.saved_runs.run_folder import Run
from podium.saved_runs.trained_with import edited_options, mixed_versions


def doubt_about(run: Run) -> str:
    """Returns all doubts about a run, for people; nothing if there are none."""
    doubts = (doubt_about_score(run), doubt_about_folds(run), doubt_about_code(run), doubt_about_recipe(run))
    return "; ".join(filter(None, doubts))


def doubt_about_code(run: Run) -> str:
    """Returns which own parts the run's weights were not trained with, and the remedy; nothing if there are none."""
    edited = edited_parts(run.recipe)
    if not edited:
        return ""
    return (
        f"{first_few(edited)} was edited after {run.name} was trained, so its weights do not belong to this code and"
        " its predictions may be wrong: restore that file, or train the run again under another name"
    )


def doubt_about_recipe(run: Run) -> str:
    """Returns which options of recipe.json are not those that the weights learned by; nothing if all are."""
    edits = edited_options(run)
    if not edits:
        return ""
    return (
        f"{run.path / 'recipe.json'} was edited after training, so it does not say how the weights came about:"
        f" {first_few(edits)}; restore it, or train the run again under another name"
    )


def warn_of_edits(run: Run) -> None:
    """Says which code and which options of the run were edited; once, because a command opens several of its models."""
    _warn(doubt_about_code(run))
    _warn(doubt_about_recipe(run))


def warn_of_doubts(run: Run) -> None:
    """Says all doubts about a run, those that this command has not yet said, and the versions of its folds."""
    _warn(doubt_about_score(run))
    warn_of_folds(run)
    warn_of_edits(run)
    warn_of_versions(run)


def warn_of_folds(run: Run) -> None:
    """Says that the folds of an imported run are not known to be these."""
    _warn(doubt_about_folds(run))


def warn_of_versions(run: Run) -> None:
    """Says which folds were trained with other versions of packages than the run began with."""
    _warn(mixed_versions(run))


def _warn(doubt: str) -> None:
    if doubt:
        say_once(f"podium: warning: {doubt}")
