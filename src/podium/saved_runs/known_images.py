"""Weights that have seen the labels of held-out images: those of a fold's model, given to another run as its start.

Such a run scores too well. So recipe.json records whose weights they are, and whatever shows the run's score says it.
A run that learns from such a run, or is averaged with it, has seen them, too. (Else, `--from` gives each fold its own
model; pretraining sees no labels.)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from podium.basics.disk import sha256
from podium.basics.project_root import runs_folder
from podium.basics.terminal import first_few, say
from podium.competition.load import Competition
from podium.folds.folds import Folds
from podium.folds.folds_csv import folds_path
from podium.models.model_file import classes_of_weights
from podium.saved_runs.fold_names import fold_name
from podium.saved_runs.run_folder import Run

KEY = "weights_have_seen"  # in recipe.json


def find_origin(weights: str, competition: Competition, folds: Folds) -> dict[str, Any]:
    """Returns what recipe.json records of weights that Podium trained on these classes, and warns; else nothing.

    The model of a fold has not seen the held-out images of its own fold and, in a split by time, of the later ones.
    """
    if classes_of_weights(weights) != competition.classes:
        return {}
    origin = _run_of(sha256(Path(weights)), competition.slug, competition.root)
    if origin is None:
        say(
            f"podium: warning: {weights} was trained by Podium on these classes; the scores will be too high on the"
            " held-out images that it has seen, and a plain submission leaves this run out"
        )
        return {KEY: {"run": None, "unseen_folds": []}}
    run, fold = origin
    has_same_folds = run.recipe.get("folds_sha256") == sha256(folds_path(competition.slug, competition.root))
    is_clean = has_same_folds and not folds_seen_before(run)
    unseen = [other for other in range(folds.count) if not (folds.trains(fold) & folds.validates(other)).any()]
    if is_clean and len(unseen) == folds.count:
        return {}
    seen = "all folds" if not is_clean else "the other folds" if unseen == [fold] else "earlier folds"
    say(
        f"podium: warning: {weights} is the model of {fold_name(fold)} of {run.name}, which has seen the held-out"
        f" images of {seen}: the scores there will be too high, and a plain submission leaves this run out; --from"
        f" {run.name} starts each fold from its own model"
    )
    return {KEY: {"run": run.name, "unseen_folds": unseen if is_clean else []}}


def inherited_origin(runs: Sequence[Run], own: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns what recipe.json records of a run that learns from these, fold by fold, and warns; else nothing.

    `own` is what the weights that the new run starts from have seen.
    """
    doubted = {run.name: set(_unseen_folds(run)) for run in runs if run.recipe.get(KEY) is not None}
    if not doubted:
        return dict(own or {})
    say(
        f"podium: warning: {first_few(doubted)} knew held-out images. What learns from that scores too well, too, and a"
        " plain submission leaves it out"
    )
    if own:
        doubted = {str(own[KEY]["run"]): set(own[KEY]["unseen_folds"]), **doubted}
    return {KEY: {"run": next(iter(doubted)), "unseen_folds": sorted(set.intersection(*doubted.values()))}}


def _run_of(weights_sha256: str, slug: str, root: Path) -> tuple[Run, int] | None:
    """Returns the run, and its fold, that these weights are the model of."""
    for path in sorted(runs_folder(slug, root).glob("*/recipe.json")):
        run = Run(path.parent)
        for fold in run.models():
            if run.out_of_fold(fold).key == weights_sha256:
                return run, fold
    return None


def folds_seen_before(run: Run) -> list[int]:
    """Returns the finished folds whose held-out images had been seen by the weights that the run started from."""
    return [fold for fold in run.finished() if run.recipe.get(KEY) is not None and fold not in _unseen_folds(run)]


def _unseen_folds(run: Run) -> list[int]:
    """Returns the folds that the recorded weights have not seen; anybody may have written the recipe."""
    origin = run.recipe.get(KEY)
    unseen = origin.get("unseen_folds") if isinstance(origin, dict) else []
    return [fold for fold in unseen if isinstance(fold, int)] if isinstance(unseen, list) else []


def doubt_about_score(run: Run) -> str:
    """Returns why the run's score is too good, for people; nothing if it is not."""
    seen = folds_seen_before(run)
    if not seen:
        return ""
    folds = f"fold{'s' if len(seen) > 1 else ''} {', '.join(map(str, seen))}"
    return f"what {run.name} learned from had seen the held-out images of {folds}: its score is too good"
