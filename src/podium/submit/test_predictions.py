"""What a fold's model says of the test images: computed once, and kept beside it.

Reads runs/<slug>/<run>/fold<k>/model.safetensors and the store; writes test.npz there.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.load import Competition
from podium.images.store import Store
from podium.terminal import plural, progress_bar, say
from podium.training.predictions import Predictions
from podium.training.run_folder import Run


def predict_test(
    competition: Competition, store: Store, run: Run, fold: int, device: str, workers: int | None
) -> Predictions:
    """The fold model's probabilities for the test images, as they are kept or else computed."""
    kept = run.fold(fold) / "test.npz"
    positions = store.positions(competition.test["image"])
    images = f"{competition.test_hash[:32]}{store.digest(positions)[:32]}"
    key = f"weights {run.check_weights(fold)} images {images} views {run.recipe['views']}"
    if kept.exists():
        try:
            found = Predictions.load(kept, "predicting again")
        except PodiumError as error:
            say(f"podium: warning: {error}")
        else:
            if found.key == key and found.probs.shape == (len(competition.test), len(competition.classes)):
                say(f"  {run.name} fold {fold}: predicted already")
                return found.in_order_of(competition.classes)
    good = np.flatnonzero(~store.bad(positions))
    ids, classes = competition.test["id"].to_numpy(dtype=str), run.out_of_fold(fold).classes
    probs = np.tile(
        class_frequencies(competition, classes), (len(ids), 1)
    )  # all that is known of an image that cannot be read
    made_on = ""
    if len(good):
        probs[good], made_on = _computed(store, positions, good, run, fold, device, workers)
    found = Predictions(ids, probs, np.full(len(ids), -1), classes, key, made_on)
    try:
        found.save(kept)
    except PodiumError as error:
        say(f"podium: warning: {error}; the next submission predicts again")
    return found.in_order_of(competition.classes)


def _computed(
    store: Store,
    positions: NDArray[np.int64],
    good: NDArray[np.int64],
    run: Run,
    fold: int,
    device: str,
    workers: int | None,
) -> tuple[NDArray[np.float32], str]:
    """The probabilities of the images that can be read, and what computed them."""
    import torch

    from podium.models.device import device_name, pick_device, pick_precision, precision_name, prepare_device
    from podium.models.hardware_errors import explain_hardware_errors
    from podium.models.model_file import load_model
    from podium.models.normalise import Normaliser
    from podium.models.predict import predict_proba
    from podium.training.augment import TestView
    from podium.training.loader import ImageDataset, batches_in_order, load_batches, pick_workers

    on = pick_device(device)
    prepare_device(on, deterministic=False)
    torch.backends.cudnn.benchmark = False  # kernels chosen by the clock could give other last digits the next time
    model, spec = load_model(run.fold(fold) / "model.safetensors")
    unseen = ImageDataset(store.reader(positions[good]), np.full(len(good), -1), TestView(spec), good)
    in_turn = load_batches(unseen, batches_in_order(len(good), run.recipe["batch_size"]), pick_workers(workers, on))
    precision = pick_precision(run.recipe["precision"], on)
    with (
        explain_hardware_errors(),
        progress_bar(total=len(good), desc=f"{run.name} fold {fold}", unit="image") as progress,
    ):
        normalise = Normaliser(spec, on)
        model.to(on).to(memory_format=normalise.layout)
        return predict_proba(
            model, in_turn, normalise, precision, run.recipe["views"], progress
        ), f"{device_name(on)}, {precision_name(precision)}"


def class_frequencies(competition: Competition, classes: Sequence[str]) -> NDArray[np.float32]:
    """How frequent each class is in training."""
    counts = competition.train["target"].value_counts()
    shares: NDArray[np.float32] = (counts.reindex(list(classes), fill_value=0) / counts.sum()).to_numpy(np.float32)
    return shares


def warn_of_unreadable(competition: Competition, store: Store) -> None:
    positions = store.positions(competition.test["image"])
    bad = positions[store.bad(positions)]
    if len(bad):
        first = store.files[bad[0]]
        say(
            f"podium: warning: {plural(len(bad), 'test image')} CANNOT BE READ, {first.image} first ({first.reason});"
            " such rows answer with what is most frequent in training"
        )
