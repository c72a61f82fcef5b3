"""Makes a run of predictions from elsewhere: of a team mate, a public notebook, or boosting on tables.

    podium import NAME --oof oof.csv --test test.csv [--note TEXT] [--same-folds]

Reads both tables (prediction_table.py) and folds.csv. Writes runs/<slug>/<name>/recipe.json and fold<k>/{oof.npz,
test.npz}: each fold keeps the out-of-fold predictions of its images, and all keep the same ones of the test images.
"""

import hashlib
import shutil
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.disk import check_name, rename_durably, sha256, write_json
from podium.basics.errors import PodiumError
from podium.basics.project_root import runs_folder
from podium.basics.terminal import command_for, plural, say, show
from podium.competition.load import Competition
from podium.folds.folds import Folds, Mask
from podium.folds.folds_csv import folds_path, read_folds
from podium.saved_runs.imported_runs import DECLARED, MODEL, OTHER, SAME, UNKNOWN, doubt_about_folds
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.prediction_table import PredictionTable, Source
from podium.saved_runs.run_folder import Run, package_versions, results_table
from podium.tasks.scored_labels import OWN_LABELS, ScoredLabels
from podium.tasks.task import ONE_LABEL, Targets

MADE_ON = "imported"  # where others have the device and the precision
UNFINISHED = ".import-"  # before the name of a folder that is renamed at the end


def import_predictions(
    competition: Competition,
    name: str,
    oof: Source,
    test: Source | None = None,
    note: str = "",
    same_folds: bool = False,
) -> Run:
    """Writes the run, unless it is there; refuses tables that do not fit the competition, and a name that is taken.

    `oof` has predictions of the training images, each by a model that has not seen it; `note` says where they come
    from; `same_folds`, that they were made on the folds of folds.csv, though no column says so.
    """
    check_name(name, "the name of a run")
    run = Run(runs_folder(competition.slug, competition.root) / name)
    if test is None and len(competition.test):
        raise PodiumError(f"{plural(len(competition.test), 'test image')} need predictions, too; give --test FILE.csv")
    folds = read_folds(competition)
    held_out, tested = _read_held_out(competition, folds, oof, same_folds), _read_tested(competition, test)
    digest = hashlib.sha256(f"{held_out.sha256} {tested.sha256}".encode()).hexdigest()
    facts = {"sha256": digest, "oof_sha256": held_out.sha256, "test_sha256": tested.sha256}
    recipe = {
        "model": MODEL,
        "competition": competition.slug,
        "metric": competition.metric,
        "folds": folds.count,
        "data_sha256": competition.train_hash,
        "versions": package_versions(),
        "imported": {**facts, "folds": held_out.state, "note": note},
    }
    if held_out.state in (SAME, DECLARED):
        recipe["folds_sha256"] = sha256(folds_path(competition.slug, competition.root))
    if run.path.exists():
        if all(run.recipe.get(key) == recipe.get(key) for key in ("imported", "data_sha256", "folds_sha256")):
            say(f"podium: {run.path} holds these predictions already")
            return run
        raise PodiumError(f"{run.path} exists already; choose another name, or delete that folder")
    unfinished = run.path.with_name(f"{UNFINISHED}{name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    for fold in range(folds.count):
        folder = unfinished / run.fold_folder(fold).name
        _of_fold(competition, folds, fold, held_out.probs, digest).save(folder / "oof.npz")
        _of_test(competition, tested.probs, digest).save(folder / "test.npz")
    write_json(unfinished / "recipe.json", recipe)
    rename_durably(unfinished, run.path)
    _say_result(competition, run, folds)
    return run


# --- the tables --------------------------------------------------------------------------------------


class HeldOut(NamedTuple):
    probs: NDArray[np.float32]  # of each training image; nan of those that no fold holds out
    state: str  # how its folds are known
    sha256: str  # of the file


class Tested(NamedTuple):
    probs: NDArray[np.float32]
    sha256: str


def _read_held_out(competition: Competition, folds: Folds, oof: Source, same_folds: bool) -> HeldOut:
    table, train = PredictionTable.read(oof, "oof"), competition.train
    is_held_out = folds.of_image >= 0
    ids = train["id"][is_held_out].tolist()
    rows = table.rows_of(competition, ids, set(competition.train_in_files["id"]), "training")
    probs = np.full((len(train), len(competition.classes)), np.nan, np.float32)
    probs[is_held_out] = table.probabilities(competition, rows)
    return HeldOut(probs, _state_of(folds, is_held_out, rows, table.where, same_folds), table.sha256)


def _read_tested(competition: Competition, source: Source | None) -> Tested:
    ids = competition.test["id"].tolist()
    if source is None:
        return Tested(np.empty((0, len(competition.classes)), np.float32), hashlib.sha256().hexdigest())
    table = PredictionTable.read(source, "test")
    return Tested(table.probabilities(competition, table.rows_of(competition, ids, set(ids), "test")), table.sha256)


def _state_of(folds: Folds, is_held_out: Mask, rows: pd.DataFrame, where: str, same_folds: bool) -> str:
    """Returns how the folds are known; the numbers of the same folds may be others, unless their order counts."""
    if "fold" not in rows:
        return DECLARED if same_folds else UNKNOWN
    ours, theirs = folds.of_image[is_held_out].astype(str), rows["fold"].to_numpy(str)
    pairs = set(zip(ours, theirs, strict=True))
    is_same = len(pairs) == len(set(ours)) == len(set(theirs))
    if folds.is_rolling:
        is_same = bool((ours == theirs).all())
    if same_folds and not is_same:
        raise PodiumError(
            f"{where}: its column fold is not that of folds.csv, so --same-folds is not true; leave out one of them"
        )
    return SAME if is_same else OTHER


# --- the files ---------------------------------------------------------------------------------------


def _of_fold(competition: Competition, folds: Folds, fold: int, probs: NDArray[np.float32], key: str) -> Predictions:
    """Returns the predictions of the images that a fold holds out, with the labels that score them."""
    train, rows, unknown = competition.train, folds.validates(fold), competition.unknown
    scored = OWN_LABELS
    if unknown:
        scored = ScoredLabels.after(train["target"][folds.trains(fold)], competition.classes, unknown.name)
    target = competition.task.encode(scored.of(train["target"][rows]), competition.classes)
    ids = train["id"].to_numpy(dtype=str)[rows]
    return Predictions(ids, probs[rows], target, competition.classes, key, MADE_ON, scored)


def _of_test(competition: Competition, probs: NDArray[np.float32], key: str) -> Predictions:
    ids = competition.test["id"].to_numpy(dtype=str)
    return Predictions(ids, probs, Targets(ONE_LABEL, np.full(len(ids), -1)), competition.classes, key, MADE_ON)


def _say_result(competition: Competition, run: Run, folds: Folds) -> None:
    show(results_table(run, folds.count, competition.metric, competition.classes))
    if doubt := doubt_about_folds(run):
        say(f"podium: warning: {doubt}")
        say(f"podium: a plain submission, and compete, leave {run.name} out; --runs takes it")
    say(f"podium: wrote {run.path}")
    say(f"next: {command_for('compare', competition.slug)}")
