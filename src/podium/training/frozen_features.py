"""The features of images under a frozen model: once for all folds and runs, in training and in prediction, and kept.

Writes data/prepared/<slug>/features-<key>/<key of images and view>.npz, a block of images each. The first key stands
for the model without its head, and for all that is done to an image. Deleted features are computed again.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.basics.disk import atomic
from podium.basics.errors import PodiumError
from podium.basics.image_size import sides_of
from podium.basics.terminal import plural, progress_bar, say
from podium.competition.containers.image_place import split_part
from podium.images.examples import Examples
from podium.images.regions import WHOLE
from podium.images.store import Store
from podium.models.build import ModelSpec
from podium.models.cpu_threads import threads
from podium.models.device import CPU, autocast, copied_ahead
from podium.models.hardware_errors import explain_hardware_errors
from podium.models.normalise import Normaliser
from podium.models.predict import names_of_views, views_of
from podium.models.tensors import tensors_digest
from podium.options.extensions.own_parts import own_parts_digest
from podium.options.layers.heads import head_layers
from podium.options.layers.low_rank_layers import merged
from podium.options.moves.cleaning import Cleaning
from podium.options.recipe_options import LINEAR
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


class Backbone(NamedTuple):
    """A model that gives features, and all that these depend on beside the images."""

    model: nn.Module
    spec: ModelSpec
    normalise: Normaliser
    precision: torch.dtype
    views: str
    batch_size: int

    def key(self) -> str:
        """Hashes everything that features are computed from, except the images and the view. Heads give none."""
        model = merged(self.model)  # low-rank updates, which differ between folds, have not begun
        heads = [id(layer) for layer in head_layers(model)]
        prefixes = tuple(f"{name}." for name, module in model.named_modules() if id(module) in heads)
        tensors = {name: part.cpu() for name, part in model.state_dict().items() if not name.startswith(prefixes)}
        digest = tensors_digest(tensors, "")
        of_answers: dict[str, Any] = {
            "unknown": "",
            "unknown_share": 0.0,
            "unseen": (),
            "scales": (),
            "target_scale": "none",
            "curves": (),
            "neighbours": None,
        }
        spec = replace(self.spec, head=LINEAR, **of_answers)
        inputs: list[Any] = [spec.as_json(), digest, self.batch_size, str(self.precision)]
        own = own_parts_digest({"model": self.spec.architecture, "pool": self.spec.pool, "views": self.views})
        if own is not None:
            inputs.append(own)
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()

    def compute(self, batch: Tensor, chosen: Sequence[int]) -> Tensor:
        """Returns the features of a batch in the views of these numbers: [views, images, features]."""
        threads.take_for_batch(len(batch))
        with autocast(self.normalise.device, self.precision):
            views = views_of(self.normalise(batch), self.views)
            return torch.stack([features_of(self.model, views[number]).float() for number in chosen])

    @torch.inference_mode()
    def features(self, images: Tensor) -> NDArray[np.float32]:
        """Returns the features of uint8 images in all views: [views, images, features]."""
        views = range(len(names_of_views(self.views)))
        parts = [self.compute(part, views) for part in images.split(self.batch_size)]
        values: NDArray[np.float32] = torch.cat(parts, 1).cpu().numpy()
        return values


def features_of(model: Any, images: Tensor) -> Tensor:
    """Returns what the model's last layer gets."""
    features: Tensor = model.forward_head(model.forward_features(images), pre_logits=True)
    return features


@torch.inference_mode()
def compute_features(
    context: Context, model: nn.Module, spec: ModelSpec, normalise: Normaliser, most: int | None = None
) -> Features:
    """Returns the features of all training images, or of a sample of at most so many, and of the extra images.

    They are read from disk or computed. Images that cannot be read have none.
    """
    rows, extra = np.flatnonzero(context.images.folds.is_used), context.images.extra_rows
    if most is not None and len(rows) > most:
        rng, share = np.random.default_rng(0), most / len(rows)
        rows, extra = (np.sort(rng.choice(part, round(share * len(part)), replace=False)) for part in (rows, extra))
    blocks = [part[n : n + BLOCK] for part in (rows, extra) for n in range(0, len(part), BLOCK)]
    rows = np.append(rows, extra)
    recipe = context.recipe
    backbone = Backbone(model, spec, normalise, context.precision, recipe.views, recipe.part_size)
    examples = [context.images.examples(block) for block in blocks]
    images = context.images.shown(rows, TestView(spec))
    values = _KeptFeatures(backbone, context.images.store, context.workers).of(images, examples, context)
    return Features(rows, values, context.images.examples(rows).counts)


@torch.inference_mode()
def features_of_examples(
    backbone: Backbone, store: Store, images: ImageDataset, examples: Examples, workers: int
) -> NDArray[np.float32]:
    """Returns the features of the images that the examples show, [views, examples, features], read or computed.

    The batches are those in which all images would be predicted.
    """
    length = max(1, BLOCK // backbone.batch_size) * backbone.batch_size
    positions = [examples.positions[start : start + length] for start in range(0, len(examples.positions), length)]
    blocks = [Examples(part, np.ones(len(part), np.int64)) for part in positions]
    return _KeptFeatures(backbone, store, workers).of(images, blocks)


class _KeptFeatures:
    """Reads the blocks that are kept, and computes and keeps the others."""

    def __init__(self, backbone: Backbone, store: Store, workers: int) -> None:
        self.backbone, self.store, self.workers, self.key = backbone, store, workers, backbone.key()
        self.folder = store.path.parent / f"features-{self.key[:16]}"
        self.views = names_of_views(backbone.views)

    def of(
        self, images: ImageDataset, blocks: Sequence[Examples], context: Context | None = None
    ) -> NDArray[np.float32]:
        """Returns the features of all images; `blocks` are the examples that they show, in the same order."""
        keys = [[self._key_of(block, view) for view in self.views] for block in blocks]
        values = [[self._read(key) for key in of_block] for of_block in keys]
        missing = {n: lacking for n, of_block in enumerate(values) if (lacking := _missing_in(of_block))}
        edges = np.append(0, np.cumsum([len(block.positions) for block in blocks]))
        ranges = [range(edges[number], edges[number + 1]) for number in missing]
        if missing:
            _announce(context, self.backbone.spec, sum(map(len, ranges)))
        for (number, views), computed in zip(
            missing.items(), self._compute(images, ranges, list(missing.values())), strict=True
        ):
            for view, features in zip(views, computed, strict=True):
                values[number][view] = features
                self._write(keys[number][view], features)
        return np.stack([np.concatenate([of_block[n] for of_block in values]) for n in range(len(self.views))])

    def _compute(
        self, images: ImageDataset, blocks: list[range], views: list[list[int]]
    ) -> Iterator[NDArray[np.float32]]:
        """Yields the features of the blocks of images in the views that each of them lacks."""
        backbone, device = self.backbone, self.backbone.normalise.device
        block_batches = [_batches_of(block, backbone.batch_size) for block in blocks]
        images_left = sum(len(batch) for batches in block_batches for batch in batches)
        loading = load_batches(images, [batch for batches in block_batches for batch in batches], self.workers)
        loading = copied_ahead(loading, device)
        count = len(images.rows)
        bar = progress_bar(total=count, initial=count - images_left, desc="features", unit="image")

        def try_batch(image_count: int) -> None:
            shape = image_count, *sides_of(backbone.spec.test_size), 3
            backbone.compute(torch.zeros(shape, dtype=torch.uint8, device=CPU), range(len(self.views)))

        with explain_hardware_errors(backbone.batch_size, try_batch), bar:
            for batches, chosen in zip(block_batches, views, strict=True):
                parts = []
                for batch, _ in islice(loading, len(batches)):
                    parts.append(backbone.compute(batch, chosen))
                    bar.update(len(batch))
                values: NDArray[np.float32] = torch.cat(parts, 1).cpu().numpy()
                if not np.isfinite(values).all():
                    model = backbone.spec.architecture
                    raise PodiumError(f"the features of {model} are not finite; try --precision float32")
                yield values

    # --- on disk ---

    def _key_of(self, block: Examples, view: str) -> str:
        inputs = [self.key, self.store.digest(block.first), view]
        if self.store.regions is not WHOLE:
            inputs += [split_part(name)[1] for name in self.store.names[block.positions].tolist()]
        return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()

    def _write(self, key: str, features: NDArray[np.float32]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with atomic(self.folder / f"{key[:16]}.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, features=features, key=np.array(key), sha256=np.array(_hash_of(features)))

    def _read(self, key: str) -> Any:
        """Reads a block; None if it is missing, damaged or computed from something else."""
        path = self.folder / f"{key[:16]}.npz"
        try:
            with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                if str(file["key"]) != key:
                    return None
                features = file["features"]
                if str(file["sha256"]) != _hash_of(features):
                    raise ValueError("the contents do not match their hash")
                return features
        except FileNotFoundError:
            return None
        except Exception as error:  # a damaged archive makes numpy and zipfile raise nearly anything
            say(f"podium: warning: {path}: cannot be read ({error}); its features are computed again")
            return None


def _hash_of(features: NDArray[np.float32]) -> str:
    return hashlib.sha256(f"{features.dtype} {features.shape}".encode() + features.tobytes()).hexdigest()


def _missing_in(of_block: Sequence[Any]) -> list[int]:
    return [number for number, values in enumerate(of_block) if values is None]


def _batches_of(images: range, batch_size: int) -> list[list[Key]]:
    return [[(0, image) for image in images[start : start + batch_size]] for start in range(0, len(images), batch_size)]


def _announce(context: Context | None, spec: ModelSpec, image_count: int) -> None:
    """Says what is computed; before the heads of training are fitted to it, also what may be wrong with it."""
    recipe, how_often = context.recipe if context else None, "once for all folds and runs"
    source = context.plan.start if context else None
    if recipe and source and not recipe.shares_features:
        how_often = f"with the fold's own model of {source.name}"
    elif recipe and recipe.weights == "none":
        consequence = "good enough for a trial, not for a submission"
        cleaning = Cleaning.of(recipe)
        if recipe.takes_steps and cleaning.is_on:
            consequence = f"the heads that judge labels for --clean {cleaning.clean} can hardly tell wrong ones by them"
        say(f"podium: warning: these are features of random weights: {consequence}")
    say(f"podium: computing the features of {plural(image_count, 'image')} at {spec.test_size} px, {how_often}")
