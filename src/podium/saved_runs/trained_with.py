"""What each fold was trained with: the options that its recipe.json had then, and the packages' versions.

    fold<k>/trained.json     {"weights_sha256": ..., "options": {...}, "rate_share": 1.0}

A recipe.json that is edited later no longer says what the weights learned by. Folds of older runs have no such file.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from podium.basics.disk import write_json
from podium.basics.errors import PodiumError
from podium.basics.terminal import first_few, say
from podium.options.recipe import differences, recipe_options, recorded_values
from podium.saved_runs.checkpoint import checkpoints
from podium.saved_runs.fold_names import fold_name
from podium.saved_runs.run_folder import Run, keep_of_fold, package_versions

RECORD = "trained.json"
OTHER_VERSIONS = "other_versions"  # in recipe.json, by fold: those that differ from the run's own `versions`


# --- options -----------------------------------------------------------------------------------------


def keep_options(run: Run, fold: int, weights_sha256: str, rate_share: float = 1.0) -> None:
    """Writes what the weights were trained with, before oof.npz marks the fold as finished.

    `rate_share` is the share of the recipe's learning rate that the fold was trained at.
    """
    options = {name: run.recipe[name] for name in recipe_options() if name in run.recipe}
    record = {"weights_sha256": weights_sha256, "options": options, "rate_share": rate_share}
    write_json(run.fold_folder(fold) / RECORD, record)


def kept_rate_share(run: Run, fold: int) -> float | None:
    """Returns the share of its learning rate that a finished fold was trained at; None if its record is older."""
    path = run.fold_folder(fold) / RECORD
    record = _read(path) if path.exists() else {}
    return float(record["rate_share"]) if isinstance(record.get("rate_share"), int | float) else None


def edited_options(run: Run) -> list[str]:
    """Lists how the recipe differs from what a fold was trained with: `lr was 0.1 and is 0.2`."""
    return list(dict.fromkeys(edit for fold in run.models() for edit in _edits(run, fold)))


def _edits(run: Run, fold: int) -> list[str]:
    path = run.fold_folder(fold) / RECORD
    if not path.exists():  # the run is older
        return []
    record = _read(path)
    if record["weights_sha256"] != run.out_of_fold(fold).key:
        raise PodiumError(f"{path} is of other weights than {path.parent}; {_remedy(path)}")
    return differences(record["options"], recorded_values(run.recipe, record["options"]))


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        options, _ = record["options"], record["weights_sha256"]
        if not isinstance(options, dict) or not options.keys() >= {"model", "image_size", "lr", "seed"}:
            raise ValueError("its options are incomplete")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise PodiumError(f"{path}: cannot be read ({error!r}); {_remedy(path)}") from None
    return dict(record)


def _remedy(path: Path) -> str:
    return f"restore it, or delete {path.parent} and train that fold again"


# --- versions ----------------------------------------------------------------------------------------


def keep_versions(run: Run, folds: Iterable[int], is_resumed: bool) -> None:
    """Records for these folds which packages have other versions than when the run began, and warns of it."""
    began = run.recipe.get("versions", {})
    others = {name: version for name, version in package_versions().items() if began.get(name, version) != version}
    others.pop("python", None)  # it computes nothing
    for fold in folds:
        recorded = _other_versions(run).get(str(fold), {})
        earlier = recorded if checkpoints(run.fold_folder(fold)) else {}  # else the fold begins anew
        if {**earlier, **others} != recorded:
            keep_of_fold(run, OTHER_VERSIONS, fold, {**earlier, **others})
    if others and is_resumed:
        say(
            f"podium: warning: {run.name} goes on with other versions than it began with:"
            f" {first_few(_changes(began, others))}. Its folds may differ by more than their images; install the"
            " versions it began with, or train it again under another --name"
        )


def mixed_versions(run: Run) -> str:
    """Returns which folds were trained with other versions than the run began with, for people; or nothing."""
    others, began = _other_versions(run), run.recipe.get("versions", {})
    folds = [fold for fold in run.models() if others.get(str(fold))]
    if not folds:
        return ""
    changes = dict.fromkeys(change for fold in folds for change in _changes(began, others[str(fold)]))
    names = first_few([fold_name(fold) for fold in folds])
    return (
        f"{names} of {run.name} was trained with other versions than the run began with: {first_few(changes)}; if that"
        " matters, train the run again under another name"
    )


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [f"{name} {before.get(name)} before, {version} then" for name, version in now.items()]


def _other_versions(run: Run) -> dict[str, dict[str, Any]]:
    """Returns the recorded versions by fold; anybody may have written the recipe."""
    recorded = run.recipe.get(OTHER_VERSIONS, {})
    return {fold: versions for fold, versions in recorded.items() if isinstance(versions, dict)}
