"""The features of training images and extra ones under a frozen model: once for all folds and runs, and kept.

Writes data/prepared/<slug>/features-<key>/<key of images>.npz, a block of images each. The first key stands for the
model and for all that is done to an image. Deleted features are computed again.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.containers.image_place import split_part
from podium.disk import atomic
from podium.errors import PodiumError
from podium.extensions.own_parts import own_parts_digest
from podium.image_size import sides_of
from podium.images.regions import WHOLE
from podium.models.build import ModelSpec
from podium.models.device import CPU, autocast, copied_ahead
from podium.models.hardware_errors import explain_hardware_errors
from podium.models.low_rank import merged
from podium.models.normalise import Normaliser
from podium.models.predict import views_of
from podium.models.tensors import tensors_digest
from podium.project_root import prepared_folder
from podium.terminal import plural, progress_bar, say
from podium.training.augment import TestView
from podium.training.context import Context
from podium.training.loader import ImageDataset, Key, load_batches

BLOCK = 1024  # images in a file: the most work that a killed process loses


@dataclass(frozen=True)
class Features:
    """The features of some training images, and of the extra ones."""

    rows: NDArray[np.int64]  # in ascending order
    values: NDArray[np.float32]  # [views, examples, features]: a row has one example, or one for each of its boxes
    counts: NDArray[np.int64]  # of the examples of each row

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the features of all examples of these rows."""
        starts = np.cumsum(self.counts) - self.counts
        first, counts = starts[np.searchsorted(self.rows, rows)], self.counts_of(rows)
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.values[:, np.repeat(first, counts) + within]

    def counts_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.counts[np.searchsorted(self.rows, rows)]

    def known_among(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows[np.isin(rows, self.rows, assume_unique=True)]


@torch.inference_mode()
def compute_features(
    context: Context, model: nn.Module, spec: ModelSpec, normalise: Normaliser, most: int | None = None
) -> Features:
    """Returns the features of all training images, or of a sample of at most so many, and of the extra images.

    They are read from disk or computed. Images that cannot be read have none.
    """
    rows, extra = np.flatnonzero(context.folds.is_used), context.extra_rows
    if most is not None and len(rows) > most:
        rng, share = np.random.default_rng(0), most / len(rows)
        rows, extra = (np.sort(rng.choice(part, round(share * len(part)), replace=False)) for part in (rows, extra))
    blocks = [part[n : n + BLOCK] for part in (rows, extra) for n in range(0, len(part), BLOCK)]
    rows = np.append(rows, extra)
    weights = merged(model).state_dict()  # low-rank updates, which differ between folds, have not begun
    key = _key(context, spec, tensors_digest({name: tensor.cpu() for name, tensor in weights.items()}, ""))
    keys = [_key_of_block(context, block, key) for block in blocks]
    folder = prepared_folder(context.competition.slug, context.plan.root) / f"features-{key[:16]}"
    paths = [folder / f"{block_key[:16]}.npz" for block_key in keys]
    kept = {number: _read(path, block_key) for number, (path, block_key) in enumerate(zip(paths, keys, strict=True))}
    by_block = {number: values for number, values in kept.items() if values is not None}
    missing = [number for number in range(len(blocks)) if number not in by_block]
    _announce(context, sum(len(blocks[number]) for number in missing))
    images, counts = context.shown_images(rows, TestView(spec)), context.examples(rows).counts
    edges = np.append(0, np.cumsum(counts))[np.append(0, np.cumsum([len(block) for block in blocks]))]
    ranges = [range(edges[number], edges[number + 1]) for number in missing]
    for number, values in zip(missing, _compute(context, model, normalise, images, ranges), strict=True):
        by_block[number] = values
        folder.mkdir(parents=True, exist_ok=True)
        with atomic(paths[number]) as temporary, temporary.open("wb") as file:
            np.savez(file, features=values, key=np.array(keys[number]))
    return Features(rows, np.concatenate([by_block[number] for number in range(len(blocks))], 1), counts)


def features_of(model: Any, images: Tensor) -> Tensor:
    """Returns what the model's last layer gets."""
    features: Tensor = model.forward_head(model.forward_features(images), pre_logits=True)
    return features


def _announce(context: Context, image_count: int) -> None:
    recipe, how_often = context.recipe, "once for all folds and runs"
    if recipe.linear and recipe.start:
        how_often = f"with the fold's own model of {recipe.start}"
    elif image_count and recipe.weights == "none":
        consequence = "good enough for a trial, not for a submission"
        if not recipe.linear and recipe.clean != "none":
            consequence = f"the heads that judge labels for --clean {recipe.clean} can hardly tell wrong ones by them"
        say(f"podium: warning: these are features of random weights: {consequence}")
    if image_count:
        say(f"podium: computing the features of {plural(image_count, 'image')}, {how_often}")


def _compute(
    context: Context, model: nn.Module, normalise: Normaliser, images: ImageDataset, blocks: list[range]
) -> Iterator[NDArray[np.float32]]:
    """Yields the features of the blocks of images."""
    recipe, count = context.recipe, len(images.rows)
    block_batches = [_batches_of(block, recipe.part_size) for block in blocks]
    images_left = sum(len(batch) for batches in block_batches for batch in batches)
    loading = load_batches(images, [batch for batches in block_batches for batch in batches], context.workers)
    loading = copied_ahead(loading, context.device)
    bar = progress_bar(total=count, initial=count - images_left, desc="features", unit="image")

    def compute(batch: Tensor) -> Tensor:
        with autocast(context.device, context.precision):
            views = views_of(normalise(batch), recipe.views)
            return torch.stack([features_of(model, view).float() for view in views])

    def try_batch(image_count: int) -> None:
        compute(torch.zeros(image_count, *sides_of(recipe.test_size), 3, dtype=torch.uint8, device=CPU))

    with explain_hardware_errors(recipe.batch_size, try_batch), bar:
        for batches in block_batches:
            parts = []
            for batch, _ in islice(loading, len(batches)):
                parts.append(compute(batch))
                bar.update(len(batch))
            values: NDArray[np.float32] = torch.cat(parts, 1).cpu().numpy()
            if not np.isfinite(values).all():
                raise PodiumError(f"the features of {recipe.model} are not finite; try --precision float32")
            yield values


def _batches_of(images: range, batch_size: int) -> list[list[Key]]:
    return [[(0, image) for image in images[start : start + batch_size]] for start in range(0, len(images), batch_size)]


def _key(context: Context, spec: ModelSpec, weights_digest: str) -> str:
    """Hashes everything that features are computed from, except the images."""
    recipe, spec = context.recipe, replace(spec, unknown="", unknown_share=0.0, unseen=())  # of the answers only
    inputs: list[Any] = [spec.as_json(), weights_digest, recipe.views, recipe.part_size, str(context.precision)]
    own = own_parts_digest({"model": recipe.model, "views": recipe.views})
    if own is not None:
        inputs.append(own)
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def _key_of_block(context: Context, rows: NDArray[np.int64], key: str) -> str:
    store, examples = context.store, context.examples(rows)
    inputs = [key, store.digest(examples.first)]
    if store.regions is not WHOLE:
        inputs += [split_part(name)[1] for name in store.names[examples.positions].tolist()]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()


def _read(path: Path, key: str) -> NDArray[np.float32] | None:
    """Reads a block; None if it is missing, damaged or computed from something else."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            values: NDArray[np.float32] = file["features"]
            return values if str(file["key"]) == key else None
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged archive makes numpy and zipfile raise nearly anything
        say(f"podium: warning: {path}: cannot be read ({error}); its features are computed again")
        return None
