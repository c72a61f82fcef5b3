"""Trains a model on every fold but one, and predicts the images of that one; fold after fold.

    podium train --model convnext_small [-c SLUG] [--folds 0,1] [--name RUN] [one flag per knob of the recipe]

Reads the competition's files and data/prepared/<slug>/folds.csv. Writes runs/<slug>/<run>/, see runs.py.
The same command goes on where it was stopped: a finished fold is kept, an unfinished one resumes from its
last checkpoint, and what it then computes is what it would have computed undisturbed.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition import Competition
from podium.console import command, counted, say, show
from podium.device import device_name, pick_device, pick_precision
from podium.disk import sha256
from podium.fold import Fold
from podium.folds import path_of, read_folds, warn_unless_certified
from podium.linear import train_head
from podium.loader import pick_workers
from podium.models import check_name, check_weights, family_and_size
from podium.recipe import check, expand, resolve
from podium.runs import Run, folder_of
from podium.setting import LEFT_OUT, Setting
from podium.store import Store, open_store, side_for


def train(
    competition: Competition,
    root: Path,
    given: dict[str, Any],
    chosen: Sequence[int] | None = None,
    name: str | None = None,
    device: str = "auto",
    workers: int | None = None,
    keep: bool = True,
) -> Run:
    """Trains the chosen folds (default: all) of a run; `given` are the knobs of the recipe that are not defaults;
    without `keep` the decoded pixels are not kept on disk."""
    on = pick_device(device)
    given = expand(given, on.type)
    check(given)
    check_name(given.get("model"))
    check_weights(given["model"], {**competition.recipe, **given}.get("weights", "pretrained"))
    folds = read_folds(competition, root)
    count = int(folds.max()) + 1
    wrong = [fold for fold in chosen or () if not 0 <= fold < count]
    if wrong:
        raise PodiumError(f"there is no fold {wrong[0]}; the folds of {competition.slug} are 0 to {count - 1}")
    chosen = sorted(set(chosen)) if chosen else list(range(count))

    recipe = resolve(given, competition.recipe, *family_and_size(given["model"]))
    precision = pick_precision(recipe.precision, on)
    run = Run(folder_of(competition.slug, root) / (name or recipe.model))
    index = {label: i for i, label in enumerate(competition.classes)}
    targets = np.array([index[label] for label in competition.train["target"]])
    with run.lock():
        store = open_store(competition, root, side_for(recipe.image_size), keep)
        positions = store.positions(competition.train["image"])
        folds = _without_bad(competition, store, positions, folds, recipe.skip_bad)
        setting = Setting(run, recipe, competition, store, folds, targets, on, precision, pick_workers(workers, on))
        run.begin(
            {
                **asdict(recipe),
                "competition": competition.slug,
                "folds_sha256": sha256(path_of(competition.slug, root)),
                "data_sha256": f"{competition.train_hash[:32]}{store.digest(positions)[:32]}",
            },
            {
                "folds": count,
                "metric": competition.metric,
                "device": device_name(on),
                "computed_in": str(precision)[6:],
            },
        )
        left = [fold for fold in chosen if fold not in run.finished()]
        if left:
            warn_unless_certified(competition, root)
            say(f"podium: {recipe.model} at {recipe.image_size} px, {str(precision)[6:]}, on {device_name(on)}")
        for fold in chosen:
            if fold in left and recipe.linear:
                train_head(setting, fold)
            elif fold in left:
                Fold(setting, fold, folds_left=len(left) - left.index(fold)).train()
            else:
                run.check_weights(fold)
                say(f"podium: fold {fold} is trained already")
    show(run.results(count, competition.metric))
    say(f"podium: wrote {run.path}")
    rest = [str(fold) for fold in range(count) if fold not in run.finished()]
    more = f"the same command for the folds {','.join(rest)}, or " if rest else ""
    say(f"next: {more}{command('submit', competition.slug)}")
    return run


def _without_bad(
    competition: Competition, store: Store, positions: NDArray[np.int64], folds: NDArray[np.int64], skip: bool
) -> NDArray[np.int64]:
    """The folds, with images that cannot be read left out of all, if that is wanted."""
    bad = store.bad(positions)
    if not bad.any():
        return folds
    first = store.files[positions[bad][0]]
    unread = f"{counted(int(bad.sum()), 'training image')} cannot be read"
    what = f"{unread}, {competition.folder / first.image} first ({first.reason})"
    if not skip:
        remedy = f"{command('audit', competition.slug)} lists them: replace them, or leave them out with --skip-bad"
        raise PodiumError(f"{what}; {remedy}")
    say(f"podium: warning: {what}; they are left out")
    left = np.where(bad, LEFT_OUT, folds)
    for fold in range(folds.max() + 1):
        if not (left == fold).any():
            raise PodiumError(f"without them no image is left in fold {fold}; {command('folds', competition.slug)}")
    return left
