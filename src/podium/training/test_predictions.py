"""Predicts the test images with one fold's model, for a submission or for a run that learns from them.

Reads runs/<slug>/<run>/fold<k>/model.safetensors and the pixel store. Writes test.npz beside the model, and
unlabelled.npz for the card's [[unlabelled]] images, so that each fold model predicts only once.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.errors import PodiumError
from podium.basics.light_torch import start_torch
from podium.basics.machine import Machine
from podium.basics.terminal import progress_bar, say
from podium.competition.load import Competition
from podium.images.examples import Examples
from podium.images.store import Store, open_store, side_of_run
from podium.options.extensions.own_parts import of_predictions, own_parts_digest
from podium.options.moves.joined_columns import joins_columns
from podium.saved_runs.fold_names import fold_name
from podium.saved_runs.imported_runs import source_sha256
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.regions_of_run import regions_of
from podium.saved_runs.run_folder import Run
from podium.tasks.pool import pool_parts, pooled
from podium.tasks.task import ONE_LABEL, Targets
from podium.training.columns import Columns, check_columns, columns_of_test
from podium.training.series import as_run_sees

if TYPE_CHECKING:
    from podium.training.fold_model import FoldModel
    from podium.training.loader import ImageDataset


class Asked(NamedTuple):
    """Images that a fold's model is asked about."""

    table: pd.DataFrame  # id, image
    sha256: str  # of the table
    file: str  # that keeps the answers
    columns: Columns | None = None  # what the tables say of each, for a model that gets it; others answer without


def _test_images(competition: Competition, run: Run) -> Asked:
    columns = columns_of_test(competition) if joins_columns(run.recipe) else None
    return Asked(competition.test, competition.test_hash, "test.npz", columns)


def open_stores(competition: Competition, runs: Iterable[Run], machine: Machine) -> dict[Run, Store]:
    """Opens what each run sees of the images; runs that see the same share a store, and imported ones need none."""
    facts = {}
    for run in runs:
        if run.imported:  # its predictions are there
            continue
        facts[run] = side_of_run(run.recipe["image_size"], run.recipe["test_size"]), regions_of(run)
    opened: dict[tuple[int, str, str], Store] = {}
    for side, regions in sorted(facts.values(), key=lambda fact: fact[0]):
        key = side, regions.part, regions.sha256
        opened[key] = opened.get(key) or open_store(competition, side, machine.keep_pixels, regions)
    return {
        run: as_run_sees(opened[side, regions.part, regions.sha256], competition, run.recipe)
        for run, (side, regions) in facts.items()
    }


def predict_test(competition: Competition, store: Store | None, run: Run, fold: int, machine: Machine) -> Predictions:
    """Returns the fold model's probabilities for the test images: from test.npz if it still fits, else computed.

    Without a store, they were imported.
    """
    if store is None:
        return _imported_predictions(competition, run, fold)
    return _kept_or_predicted(competition, _test_images(competition, run), store, run, fold, machine)


def predict_unlabelled(
    competition: Competition, images: pd.DataFrame, store: Store, run: Run, fold: int, machine: Machine
) -> Predictions:
    """Returns the same for images of the card's [[unlabelled]]: from unlabelled.npz if it still fits, else computed."""
    assert competition.unlabelled is not None
    asked = Asked(images, competition.unlabelled.sha256, "unlabelled.npz")
    return _kept_or_predicted(competition, asked, store, run, fold, machine)


def _kept_or_predicted(
    competition: Competition, asked: Asked, store: Store, run: Run, fold: int, machine: Machine
) -> Predictions:
    if kept := _kept(competition, asked, store, run, fold):
        say(f"  {run.name} {fold_name(fold)}: already predicted")
        return _as_pooled(kept, run, fold).in_order_of(competition.classes)
    predictions = _predict(competition, asked, store, run, fold, machine)
    try:
        predictions.save(_path(run, fold, asked.file))
    except PodiumError as error:
        say(f"podium: warning: {error}; the next command predicts again")
    return _as_pooled(predictions, run, fold).in_order_of(competition.classes)


def _as_pooled(predictions: Predictions, run: Run, fold: int) -> Predictions:
    """Returns the answers of images of which the model has seen several parts, pooled as other folds say."""
    if not predictions.pooled:
        return predictions
    way = run.pooling_of(fold)
    if way in predictions.pooled:
        say(f"  {run.name} {fold_name(fold)}: {way.replace('_', ' ')} of the parts of an image, as other folds say")
    return predictions.pooled_by(way)


def keep_predictions(competition: Competition, store: Store, run: Run, fold: int, machine: Machine) -> None:
    """Writes the test.npz of a fold's model if there is none that fits; whoever submits finds it."""
    if not kept_predictions(competition, store, run, fold):
        asked = _test_images(competition, run)
        _predict(competition, asked, store, run, fold, machine).save(_path(run, fold, asked.file))


def kept_predictions(competition: Competition, store: Store, run: Run, fold: int) -> Predictions | None:
    """Returns what test.npz holds; None if there is none, or one of other weights, images or views."""
    return _kept(competition, _test_images(competition, run), store, run, fold)


def _kept(competition: Competition, asked: Asked, store: Store, run: Run, fold: int) -> Predictions | None:
    kept = _load_cached(_path(run, fold, asked.file))
    if kept is None or kept.key != _key_of(asked, store, run, fold):
        return None
    return kept if kept.probs.shape == (len(asked.table), len(competition.classes)) else None


def last_predictions(competition: Competition, run: Run, fold: int) -> Predictions | None:
    """Returns what the fold's model has predicted for these test images, whatever their pixels are now."""
    if run.imported:
        return _imported_predictions(competition, run, fold)
    kept = _load_cached(_path(run, fold))
    made_from = f"weights {run.out_of_fold(fold).key} images {competition.test_hash[:32]}"
    if kept is None or not kept.key.startswith(made_from) or len(kept.id) != len(competition.test):
        return None
    return _as_pooled(kept, run, fold).in_order_if_same(competition.classes)


def _imported_predictions(competition: Competition, run: Run, fold: int) -> Predictions:
    """Returns what was imported, in the order of the test images of today."""
    again = f"delete {run.path} and import the predictions again"
    kept = Predictions.load(_path(run, fold), again)
    if kept.key != source_sha256(run, fold):
        raise PodiumError(f"{_path(run, fold)} is of another import than {run.path / 'recipe.json'}; {again}")
    place = {str(image_id): row for row, image_id in enumerate(kept.id)}
    ids = competition.test["id"].to_numpy(dtype=str)
    if missing := [str(image_id) for image_id in ids if image_id not in place]:
        raise PodiumError(f"{_path(run, fold)}: no prediction for the test image '{missing[0]}'; {again}")
    rows = np.array([place[str(image_id)] for image_id in ids], np.int64)
    own = replace(kept, id=ids, probs=kept.probs[rows], target=kept.target[rows])
    return own.in_order_of(competition.classes)


def _path(run: Run, fold: int, file: str = "test.npz") -> Path:
    return run.fold_folder(fold) / file


def _key_of(asked: Asked, store: Store, run: Run, fold: int) -> str:
    """Returns all that the predictions depend on."""
    images = f"{asked.sha256[:32]}{store.digest(store.examples(asked.table).first)[:32]}"
    key = f"weights {run.check_weights(fold)} images {images} views {run.recipe['views']}"
    if own := own_parts_digest(of_predictions(run.recipe)):
        key += f" own parts {own}"
    if asked.columns is not None:
        key += f" columns {hashlib.sha256(asked.columns.tobytes()).hexdigest()[:32]}"
    return key


def _predict(
    competition: Competition, asked: Asked, store: Store, run: Run, fold: int, machine: Machine
) -> Predictions:
    key, examples = _key_of(asked, store, run, fold), store.examples(asked.table)
    readable = ~store.bad(examples.first)
    ids, classes = asked.table["id"].to_numpy(dtype=str), run.out_of_fold(fold).classes
    probs = np.tile(class_frequencies(competition, classes), (len(ids), 1))  # stays so for images that cannot be read
    made_on, pooled = "", dict[str, NDArray[np.float32]]()
    if readable.any():
        shown = store.examples(asked.table[readable])
        columns = None if asked.columns is None else asked.columns[readable]
        predicted, made_on = _compute(store, shown, run, fold, machine, columns)
        answers = pool_parts(predicted, shown.counts, competition.task)
        pooled = {way: probs.copy() for way in answers.pooled}
        probs[readable] = answers.probs
        for way, own in answers.pooled.items():
            pooled[way][readable] = own
    return Predictions(ids, probs, Targets(ONE_LABEL, np.full(len(ids), -1)), classes, key, made_on, pooled=pooled)


def _load_cached(path: Path) -> Predictions | None:
    if path.exists():
        try:
            return Predictions.load(path, "predicting again")
        except PodiumError as error:
            say(f"podium: warning: {error}")
    return None


def _compute(
    store: Store, examples: Examples, run: Run, fold: int, machine: Machine, columns: Columns | None = None
) -> tuple[NDArray[np.float32], str]:
    """Returns the probabilities of each of these parts of images, and the device and precision that computed them."""
    start_torch()  # which kept predictions do not need
    from podium.models.hardware_errors import explain_hardware_errors
    from podium.training.fold_model import FoldModel

    count, description = len(examples.positions), f"{run.name} {fold_name(fold)}"
    with explain_hardware_errors():
        fold_model = FoldModel.load(run, fold, machine.device)
        if fold_model.backbone_key:
            probs = _predict_from_features(store, examples, fold_model, machine)
        else:
            with progress_bar(total=count, desc=description, unit="image") as progress:
                probs = predict_parts(store, examples, fold_model, machine, progress, columns)
    return probs, fold_model.computed_on


def _predict_from_features(
    store: Store, examples: Examples, fold_model: "FoldModel", machine: Machine
) -> NDArray[np.float32]:
    """Returns the same probabilities; all folds and runs with this backbone share what takes time."""
    return fold_model.predict_features(read_features(store, examples, fold_model, machine))


def read_features(store: Store, examples: Examples, fold_model: "FoldModel", machine: Machine) -> NDArray[np.float32]:
    """Returns the features of each example in all views, [views, examples, features], kept ones or computed."""
    from podium.training.frozen_features import features_of_examples

    dataset, workers = _images_of(store, examples, fold_model, machine)
    return features_of_examples(fold_model.backbone, store, dataset, examples, workers)


def predict_examples(
    store: Store, examples: Examples, fold_model: "FoldModel", machine: Machine
) -> NDArray[np.float32]:
    """Returns the probabilities of the rows that the examples show: the means of their parts."""
    return pooled(predict_parts(store, examples, fold_model, machine), examples.counts)


def predict_parts(
    store: Store,
    examples: Examples,
    fold_model: "FoldModel",
    machine: Machine,
    progress: Any = None,
    columns: Columns | None = None,
) -> NDArray[np.float32]:
    """Returns the probabilities of each example; `columns` are what the tables say of each row."""
    from podium.models.device import copied_ahead
    from podium.training.loader import batches_in_order, load_batches

    dataset, workers = _images_of(store, examples, fold_model, machine)
    loader = load_batches(dataset, batches_in_order(len(dataset.rows), fold_model.batch_size), workers)
    batches = copied_ahead(loader, fold_model.device)
    if columns is not None:
        check_columns(fold_model.spec, columns)
        columns = columns[examples.owners]
    return fold_model.predict(batches, progress, columns)


def _images_of(
    store: Store, examples: Examples, fold_model: "FoldModel", machine: Machine
) -> "tuple[ImageDataset, int]":
    """Returns the images as the model sees them, and how many processes load them."""
    from podium.training.augment import TestView
    from podium.training.loader import ImageDataset, pick_workers

    count = len(examples.positions)
    read, view = store.reader(examples.positions), TestView(fold_model.spec)
    images = ImageDataset(read, np.full(count, -1), view, np.arange(count))
    return images, pick_workers(machine.workers, fold_model.device)


def class_frequencies(competition: Competition, classes: Sequence[str]) -> NDArray[np.float32]:
    """Returns the share of the training images that have each class, or the mean of each number."""
    if competition.task is not ONE_LABEL:
        values = competition.task.encode(competition.train["target"], classes).values
        if competition.task.are_labels:
            return np.asarray(values.astype(np.float32).mean(0))
        return np.asarray(np.nanmean(values, 0))
    counts = competition.train["target"].value_counts()
    shares: NDArray[np.float32] = (counts.reindex(list(classes), fill_value=0) / counts.sum()).to_numpy(np.float32)
    return shares
