"""Searches the images that another competition's model has learned for copies of this competition's training images.

Each of these is held out by a fold, so `--weights SLUG/RUN` may start from a model that has seen it, with a label.
Copies that were saved again, resized or mirrored are found as the audit finds duplicates. recipe.json keeps the result.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import first_few, plural, say
from podium.competition.card import read_card
from podium.competition.load import Competition, load
from podium.images.audit import USUAL_SIZE
from podium.images.duplicates import find_duplicates, linked_groups
from podium.images.store import Store, open_store, stored_side
from podium.saved_runs.pretrained_backbones import MODEL
from podium.saved_runs.run_folder import Run

KEY = "weights_copies"  # in recipe.json
SHOWN = 5  # ids in recipe.json


def find_copies_in_weights(weights: Path, competition: Competition) -> dict[str, Any]:
    """Returns what recipe.json records of weights that are another competition's, and says it; else nothing."""
    if (owner := _owner(weights, competition.root)) is None or owner[0] == competition.slug:
        return {}
    slug, run, fold = owner
    name = f"{slug}/{run.name}"
    try:
        other = load(slug, competition.root)
        learned = other.train[~other.train["id"].isin(_held_out(run, fold))]
        stores = [open_store(one, stored_side(USUAL_SIZE), keep=None) for one in (competition, other)]
    except PodiumError as problem:
        say(
            f"podium: warning: the images of {slug} were not searched for copies of this competition's ({problem}):"
            f" the weights {name} may have seen images that folds hold out, and scores may be too good; bring"
            f" data/raw/{slug}"
        )
        return {KEY: {"of": name, "searched": 0, "problem": str(problem)}}
    finally:
        read_card(competition.slug, competition.root)  # the other's may have loaded other extensions
    copies = _copies(competition, stores[0], learned, stores[1])
    found = {"of": name, "searched": len(learned), "copies": len(copies), "first_ids": list(copies["id"].head(SHOWN))}
    searched = f"{plural(len(learned), 'image')} that {name} has learned"
    if not len(copies):
        say(f"podium: none of the {searched} is a copy of a training image here")
        return {KEY: found}
    say(
        f"podium: warning: {plural(len(copies), 'training image')} of {len(competition.train):,} here are among the"
        f" {searched}, or copies of them ({first_few(copies['id'])}; {copies['image'].iloc[0]} is"
        f" {other.folder / copies['copy'].iloc[0]}): the weights have seen what folds hold out, so the scores may be"
        " too good; compare with --weights pretrained, or train there without these images"
    )
    return {KEY: found}


def _owner(weights: Path, root: Path) -> tuple[str, Run, str] | None:
    """Returns the competition, the run and the folder of the fold whose model this file is."""
    folder = weights.resolve().parent
    run = folder.parent
    is_of_fold = weights.name == MODEL and runs_folder(run.parent.name, root).resolve() == run.parent
    return (run.parent.name, Run(run), folder.name) if is_of_fold else None


def _held_out(run: Run, fold: str) -> list[str]:
    """Returns the ids that the model of this fold has not learned; none of a model of all images."""
    number = fold.removeprefix("fold")
    return list(run.out_of_fold(int(number)).id) if number.isdecimal() and int(number) in run.finished() else []


def _copies(competition: Competition, store: Store, learned: pd.DataFrame, other: Store) -> pd.DataFrame:
    """Returns the ids and images that the other table has, too, each with one copy there."""
    rows, ours = _readable(competition.train, store)
    others, theirs = _readable(learned, other)
    if competition.copies == "exact":
        contents = [one.files[place].sha256 for one, places in ((store, ours), (other, theirs)) for place in places]
        leader = pd.factorize(np.array(contents))[0]
    else:
        thumbs = np.concatenate([store.thumbs[ours], other.thumbs[theirs]])
        sizes = [one.files[place] for one, places in ((store, ours), (other, theirs)) for place in places]
        pairs = find_duplicates(thumbs, np.array([file.width * file.height for file in sizes], np.int64))
        leader = linked_groups(pairs.first, pairs.second, len(thumbs))
    copy_of = dict(zip(leader[len(ours) :].tolist(), others["image"], strict=True))
    copies = [copy_of.get(group) for group in leader[: len(ours)].tolist()]
    return rows.assign(copy=copies).dropna(subset="copy")


def _readable(table: pd.DataFrame, store: Store) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    positions = store.positions(table["image"])
    is_good = ~store.bad(positions)
    return table[is_good], positions[is_good]
