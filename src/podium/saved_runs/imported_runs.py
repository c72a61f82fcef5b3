"""Predictions from elsewhere as a run: what its recipe.json records, and what can and cannot be done with it.

    "imported": {"sha256": ..., "oof_sha256": ..., "test_sha256": ..., "folds": "same", "note": ...}

import_predictions.py writes such a run. It has no weights, so all that needs them refuses it.
"""

import re
from collections.abc import Iterable

from podium.basics.errors import PodiumError
from podium.saved_runs.run_folder import Run, why_no_weights

MODEL = "import"  # in recipe.json, where others have the name of a model
# How its folds are known: its own column says that they are those of folds.csv, the user says so (--same-folds), the
# column says that they are others, or nobody says anything.
SAME, DECLARED, OTHER, UNKNOWN = "same", "declared", "other", "unknown"
REASONS = {OTHER: "other folds", UNKNOWN: "its folds are unknown"}  # why a blend leaves it out


def refuse_imported(runs: Iterable[Run], use: str) -> None:
    """Refuses runs without weights, for a use that needs them."""
    for run in runs:
        if problem := why_no_weights(run):
            raise PodiumError(f"{use}: {problem}")


def source_sha256(run: Run, fold: int) -> str:
    """Returns the hash of what a finished fold predicts with: its weights, or the files that were imported."""
    if not run.imported:
        return run.check_weights(fold)
    digest = str(run.imported.get("sha256"))
    if not re.fullmatch("[0-9a-f]{64}", digest) or run.out_of_fold(fold).key != digest:
        raise PodiumError(
            f"{run.fold_folder(fold)} and {run.path / 'recipe.json'} are of different imports; delete {run.path} and"
            " import the predictions again"
        )
    return digest


def why_untrusted(run: Run) -> str:
    """Returns why a blend leaves the run out: its predictions may have seen the labels that score them; or nothing."""
    return REASONS.get(str(run.imported.get("folds")), "")


def doubt_about_folds(run: Run) -> str:
    """Returns that doubt for people, and the remedy."""
    if not (reason := why_untrusted(run)):
        return ""
    return (
        f"{run.name} was imported ({reason}): what it predicts for an image may have been learned from that image's"
        " label, or from a duplicate's, so its score and its weight may be too good; import it with its column `fold`,"
        " or with --same-folds if it was made on these folds"
    )


def describe_import(run_name: str, imported: dict[str, object]) -> str:
    """Returns what a lineage shows of it."""
    hashes = ", ".join(f"{part} {str(imported.get(f'{part}_sha256'))[:16]}" for part in ("oof", "test"))
    note = f": {imported['note']}" if imported.get("note") else ""
    return f"{run_name} ({hashes}, folds {imported.get('folds')}){note}"
