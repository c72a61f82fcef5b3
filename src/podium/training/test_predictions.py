"""Predicts the test images with one fold's model, for a submission or for a run that learns from them.

Reads runs/<slug>/<run>/fold<k>/model.safetensors and the pixel store. Writes test.npz beside the model, so that each
fold model predicts only once.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from podium.competition.load import Competition
from podium.errors import PodiumError
from podium.extensions.own_parts import own_parts_digest
from podium.images.store import Store
from podium.machine import Machine
from podium.saved_runs.fold_names import fold_name
from podium.saved_runs.prediction_files import Predictions
from podium.saved_runs.run_folder import Run
from podium.tasks.task import ONE_LABEL, Targets
from podium.terminal import progress_bar, say


def predict_test(competition: Competition, store: Store, run: Run, fold: int, machine: Machine) -> Predictions:
    """Returns the fold model's probabilities for the test images: from test.npz if it still fits, else computed."""
    path = run.fold_folder(fold) / "test.npz"
    positions = store.positions(competition.test["image"])
    images = f"{competition.test_hash[:32]}{store.digest(positions)[:32]}"
    key = f"weights {run.check_weights(fold)} images {images} views {run.recipe['views']}"
    if own := own_parts_digest({"model": run.recipe.get("model"), "views": run.recipe["views"]}):
        key += f" own parts {own}"
    shape = len(competition.test), len(competition.classes)
    cached = _load_cached(path)
    if cached and cached.key == key and cached.probs.shape == shape:
        say(f"  {run.name} {fold_name(fold)}: already predicted")
        return cached.in_order_of(competition.classes)
    readable = np.flatnonzero(~store.bad(positions))
    ids, classes = competition.test["id"].to_numpy(dtype=str), run.out_of_fold(fold).classes
    probs = np.tile(class_frequencies(competition, classes), (len(ids), 1))  # stays so for images that cannot be read
    made_on = ""
    if len(readable):
        probs[readable], made_on = _compute(store, positions, readable, run, fold, machine)
    predictions = Predictions(ids, probs, Targets(ONE_LABEL, np.full(len(ids), -1)), classes, key, made_on)
    try:
        predictions.save(path)
    except PodiumError as error:
        say(f"podium: warning: {error}; the next submission predicts again")
    return predictions.in_order_of(competition.classes)


def _load_cached(path: Path) -> Predictions | None:
    if path.exists():
        try:
            return Predictions.load(path, "predicting again")
        except PodiumError as error:
            say(f"podium: warning: {error}")
    return None


def _compute(
    store: Store, positions: NDArray[np.int64], readable: NDArray[np.int64], run: Run, fold: int, machine: Machine
) -> tuple[NDArray[np.float32], str]:
    """Returns the probabilities of the readable images, and the device and the precision that computed them."""
    from podium.models.device import copied_ahead  # these import torch, which kept predictions do not need
    from podium.models.hardware_errors import explain_hardware_errors
    from podium.training.augment import TestView
    from podium.training.fold_model import FoldModel
    from podium.training.loader import ImageDataset, batches_in_order, load_batches, pick_workers

    count, description = len(readable), f"{run.name} {fold_name(fold)}"
    with explain_hardware_errors(), progress_bar(total=count, desc=description, unit="image") as progress:
        fold_model = FoldModel.load(run, fold, machine.device)
        view = TestView(fold_model.spec)
        dataset = ImageDataset(store.reader(positions[readable]), np.full(count, -1), view, readable)
        batches = batches_in_order(count, fold_model.batch_size)
        loader = load_batches(dataset, batches, pick_workers(machine.workers, fold_model.device))
        return fold_model.predict(copied_ahead(loader, fold_model.device), progress), fold_model.computed_on


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
