"""The features of all images of a competition, training and test, under one frozen model; no fold and no run is needed.

`podium folds --by-site` clusters them, `podium audit --shift` compares them. They are kept on disk with those of heads
on frozen models (frozen_features.py), so the second command that asks for them reads them.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.light_torch import start_torch
from podium.basics.machine import Machine
from podium.competition.load import Competition
from podium.folds.certificate import fold_groups, readable_train_images
from podium.folds.sites import Sites, cluster_sites, sites_in_column
from podium.images.audit import load_audit
from podium.images.store import Store, open_store, stored_side
from podium.options.recipe_defaults import AUTO_PRETRAINED

SIDE = 160  # pixels: more cost time, and cameras and classes are told apart at this size
STORED_FOR = 224  # the usual size of the audit's images, so that both read one store


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    model: str
    train: NDArray[np.float32]  # a row for each training image; of one that cannot be read, not a number
    test: NDArray[np.float32]


def features_of_images(
    competition: Competition,
    model: str = AUTO_PRETRAINED,
    weights: str = "pretrained",
    side: int = SIDE,
    machine: Machine | None = None,
    with_test: bool = True,
) -> ImageFeatures:
    """Returns what the last layer of a frozen model gets of each training and test image, kept or computed.

    Not `with_test`, the test images have none.
    """
    store = open_store(competition, stored_side(max(side, STORED_FOR)), (machine or Machine()).keep_pixels)
    start_torch()
    train, test = _compute(
        store,
        [competition.train, competition.test[: None if with_test else 0]],
        model,
        weights,
        side,
        machine or Machine(),
    )
    return ImageFeatures(model, train, test)


def _compute(
    store: Store, tables: list[pd.DataFrame], model_name: str, weights: str, side: int, machine: Machine
) -> list[NDArray[np.float32]]:
    from podium.models.build import build_model, resolve_recipe
    from podium.models.device import pick_device, pick_precision, prepare_device
    from podium.models.place import place_model
    from podium.training.augment import TestView
    from podium.training.frozen_features import Backbone, features_of_examples
    from podium.training.loader import ImageDataset, pick_workers

    given = {"model": model_name, "weights": weights, "image_size": side, "test_size": side}
    recipe, device = resolve_recipe(given, {}), pick_device(machine.device)
    prepare_device(device, machine.deterministic)
    precision = pick_precision(recipe.precision, device)
    model, spec = build_model(recipe, [])
    normalise = place_model(model.eval(), spec, device, precision)
    backbone = Backbone(model, spec, normalise, precision, "none", recipe.part_size)
    parts = []
    for table in tables:
        is_good = ~store.bad(store.examples(table).first) if len(table) else np.zeros(0, np.bool_)
        values = np.full((len(table), 0), np.nan, np.float32)
        if is_good.any():
            examples = store.examples(table[is_good])
            count = len(examples.positions)
            images = ImageDataset(
                store.reader(examples.positions), np.full(count, -1), TestView(spec), np.arange(count)
            )
            workers = pick_workers(machine.workers, device)
            computed = features_of_examples(backbone, store, images, examples, workers)[0]
            values = np.full((len(table), computed.shape[1]), np.nan, np.float32)
            values[is_good] = computed
        parts.append(values)
    return parts


def sites_of(competition: Competition, column: str | None, k: int, seed: int, model: str | None = None) -> Sites:
    """Returns the sites that a column of the training table names; without one, clusters of the training images."""
    if column:
        return sites_in_column(competition, column)
    train, _ = readable_train_images(competition, load_audit(competition))
    features = features_of_images(competition, model or AUTO_PRETRAINED, with_test=False)
    return cluster_sites(competition, features.train, fold_groups(competition, train), k, seed, features.model)
