"""The features of the training images under a frozen model: computed once for all folds of a run, and kept.

Writes runs/<slug>/<run>/features/<n>.npz, a block of images each.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from podium import PodiumError
from podium.disk import atomic
from podium.extension_files import extensions_digest
from podium.image_size import sides_of
from podium.models.build import ModelSpec
from podium.models.device import autocast
from podium.models.hardware_errors import explain_hardware_errors
from podium.models.normalise import Normaliser
from podium.models.predict import views_of
from podium.models.tensors import tensors_digest
from podium.terminal import plural, progress_bar, say
from podium.training.augment import TestView
from podium.training.context import LEFT_OUT, Context
from podium.training.loader import ImageDataset, Key, load_batches

BLOCK = 1024  # images in a file: the most work that a killed process loses

Features = NDArray[np.float32]  # [views, images, features]


@torch.inference_mode()
def all_features(context: Context, model: nn.Module, spec: ModelSpec, normalise: Normaliser) -> Features:
    """Returns the features of all training images, from disk or computed; NaN for images that cannot be read."""
    rows = np.flatnonzero(context.fold_of_image != LEFT_OUT)
    blocks = [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]
    weights_digest = tensors_digest({name: tensor.cpu() for name, tensor in model.state_dict().items()}, "")
    keys = [_key(context, block, spec, weights_digest) for block in blocks]
    paths = [context.run.path / "features" / f"{number}.npz" for number in range(len(blocks))]
    kept = {number: _read(path, key) for number, (path, key) in enumerate(zip(paths, keys, strict=True))}
    by_block = {number: features for number, features in kept.items() if features is not None}
    missing = [number for number in range(len(blocks)) if number not in by_block]
    _announce(context, sum(len(blocks[number]) for number in missing))
    images = context.images(rows, TestView(spec))
    for number, features in zip(missing, _compute(context, model, normalise, images, missing), strict=True):
        by_block[number] = features
        with atomic(paths[number]) as temporary, temporary.open("wb") as file:
            np.savez(file, features=features, key=np.array(keys[number]))
    view_count, _, size = by_block[0].shape
    features = np.full((view_count, len(context.fold_of_image), size), np.nan, np.float32)
    for number, block in enumerate(blocks):
        features[:, block] = by_block.pop(number)
    return features


def features_of(model: Any, images: Tensor) -> Tensor:
    """Returns what the model's last layer gets."""
    features: Tensor = model.forward_head(model.forward_features(images), pre_logits=True)
    return features


def _announce(context: Context, image_count: int) -> None:
    if image_count and context.recipe.weights == "none":
        say("podium: warning: these are features of random weights: good enough for a trial, not for a submission")
    if image_count:
        say(f"podium: computing the features of {plural(image_count, 'image')}, once for all folds")


def _compute(
    context: Context, model: nn.Module, normalise: Normaliser, images: ImageDataset, blocks: list[int]
) -> Iterator[Features]:
    """Yields the features of the blocks."""
    recipe, count = context.recipe, len(images.rows)
    block_batches = [_batches_of(range(n * BLOCK, min((n + 1) * BLOCK, count)), recipe.part_size) for n in blocks]
    images_left = sum(len(batch) for batches in block_batches for batch in batches)
    loading = load_batches(images, [batch for batches in block_batches for batch in batches], context.workers)
    bar = progress_bar(total=count, initial=count - images_left, desc="features", unit="image")

    def compute(batch: Tensor) -> Tensor:
        with autocast(context.device, context.precision):
            views = views_of(normalise(batch), recipe.views)
            return torch.stack([features_of(model, view).float() for view in views])

    def try_batch(image_count: int) -> None:
        compute(torch.zeros(image_count, *sides_of(recipe.test_size), 3, dtype=torch.uint8))

    with explain_hardware_errors(recipe.batch_size, try_batch), bar:
        for batches in block_batches:
            parts = []
            for batch, _ in islice(loading, len(batches)):
                parts.append(compute(batch))
                bar.update(len(batch))
            features: Features = torch.cat(parts, 1).cpu().numpy()
            if not np.isfinite(features).all():
                raise PodiumError(f"the features of {recipe.model} are not finite; try --precision float32")
            yield features


def _batches_of(images: range, batch_size: int) -> list[list[Key]]:
    return [[(0, image) for image in images[start : start + batch_size]] for start in range(0, len(images), batch_size)]


def _key(context: Context, rows: NDArray[np.int64], spec: ModelSpec, weights_digest: str) -> str:
    """Hashes everything that a block's features are computed from."""
    recipe = context.recipe
    positions = context.store.positions(context.competition.train["image"].iloc[rows])
    images = context.store.digest(positions)
    inputs: list[Any] = [asdict(spec), weights_digest, images, recipe.views, recipe.part_size, str(context.precision)]
    if extensions_digest() is not None:  # a view or the model may be the project's own
        inputs.append(extensions_digest())
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def _read(path: Path, key: str) -> Features | None:
    """Reads a block; None if it is missing, damaged or computed from something else."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            features: Features = file["features"]
            return features if str(file["key"]) == key else None
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged archive makes numpy and zipfile raise nearly anything
        say(f"podium: warning: {path}: cannot be read ({error}); its features are computed again")
        return None
