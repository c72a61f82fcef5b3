"""What a run is made from beyond the data of its competition: earlier runs, with their weights, licences and images.

A licence, or a source of images, binds whatever learns from it. So recipe.json records for every run the licence of its
pretrained weights, and for one that learns from others (a start, teachers, pseudo-labels, the parts of a soup, the
weights of another competition's run or of a pretraining) what those were made from, and those before them.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from podium.basics.errors import PodiumError
from podium.basics.terminal import plural
from podium.saved_runs.pretrained_backbones import PRETRAINING
from podium.saved_runs.run_folder import Run

KEY = "made_from"  # in recipe.json
LICENCE = "weights_licence"  # in recipe.json, of weights of the hub


def made_from(runs: Sequence[Run], backbone: Path | None = None) -> dict[str, Any]:
    """Returns what recipe.json records of these runs, and of the run or pretraining that holds these weights."""
    recipes = [(run, run.recipe) for run in runs]
    if backbone is not None:
        recipes.append(_owner(backbone))
    entries = [entry for run, recipe in recipes for entry in (*_recorded(recipe), _entry(run, recipe))]
    return {KEY: _without_repetition(entries)} if entries else {}


def images_from_elsewhere(recipes: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the sources of the images beyond the competitions from which these runs, and those before, learned."""
    sources = [
        source for recipe in recipes for own in (recipe, *_recorded(recipe)) for source in own.get("extra") or ()
    ]
    return _without_repetition([source for source in sources if isinstance(source, dict)])


def describe_images(recipes: Iterable[dict[str, Any]]) -> list[str]:
    """Returns these sources in words: how many images of which folder, and their licence."""
    return [
        f"{plural(int(source.get('images', 0)), 'image')} of {source.get('folder')}"
        f" ({source.get('licence') or 'licence unknown'})"
        for source in images_from_elsewhere(recipes)
    ]


def licences_of(recipe: dict[str, Any]) -> list[str]:
    """Returns the licences of the weights that a run, and those before it, started from, each with its source."""
    found = [
        f"{own.get('weights_source') or own.get('model')} ({own[LICENCE]})"
        for own in (recipe, *_recorded(recipe))
        if own.get(LICENCE)
    ]
    return list(dict.fromkeys(found))


def runs_before(recipe: dict[str, Any]) -> list[str]:
    """Returns the names of the runs that a run learned from, those before them first."""
    return [str(entry.get("run")) for entry in _recorded(recipe)]


def _recorded(recipe: dict[str, Any]) -> list[dict[str, Any]]:
    entries = recipe.get(KEY) or []
    return [entry for entry in entries if isinstance(entry, dict)]  # anybody may have written the recipe


def _owner(backbone: Path) -> tuple[Run, dict[str, Any]]:
    """Returns the pretraining that the file is of, or the run that it is a fold's model of, and its recipe."""
    if (backbone.parent / PRETRAINING).is_file():
        path = backbone.parent / PRETRAINING
        try:
            return Run(backbone.parent), dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise PodiumError(f"{path}: cannot be read ({error}); restore it, or pretrain again") from None
    run = Run(backbone.parents[1])
    return run, run.recipe


def _entry(run: Run, recipe: dict[str, Any]) -> dict[str, Any]:
    names = ("model", "weights_source", LICENCE, "data_sha256", "images_sha256", "extra", "weights_copies")
    competition = recipe.get("competition") or run.path.resolve().parent.name
    return {"run": f"{competition}/{run.name}", **{name: recipe[name] for name in names if recipe.get(name)}}


def _without_repetition(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry for number, entry in enumerate(entries) if entry not in entries[:number]]
