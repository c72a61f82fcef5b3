"""A finished fold's model on a device, ready to predict images as the run's recipe says."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.basics.errors import PodiumError
from podium.basics.image_size import shorter_side, sides_of
from podium.images.cut import cut_out
from podium.images.decode import Pixels, shrink
from podium.images.store import stored_side
from podium.models.build import ModelSpec
from podium.models.device import CPU, autocast, device_name, pick_device, pick_precision, precision_name, prepare_device
from podium.models.model_file import load_model
from podium.models.normalise import Normaliser
from podium.models.place import place_model
from podium.models.predict import predict_proba, probs_of
from podium.options.layers.heads import head_layers
from podium.options.recipe import part_size_of
from podium.saved_runs.doubts import warn_of_edits
from podium.saved_runs.run_folder import Run, has_shared_backbone, recorded_threads
from podium.training.augment import TestView
from podium.training.frozen_features import Backbone, features_of


@dataclass(frozen=True)
class FoldModel:
    model: nn.Module
    spec: ModelSpec
    normalise: Normaliser
    precision: torch.dtype
    views: str
    batch_size: int
    is_one_of_many: bool = False  # whose backbones are the same: those of a run of heads

    @staticmethod
    def load(run: Run, fold: int, device_choice: str) -> "FoldModel":
        device = pick_device(device_choice)
        prepare_device(device, deterministic=False, recorded_threads=recorded_threads(run), follows_load=True)
        torch.backends.cudnn.benchmark = False  # kernels chosen by their speed could change the last digits
        model, spec = open_model(run, fold)
        precision = pick_precision(run.recipe["precision"], device)
        normalise = place_model(model, spec, device, precision)
        part_size = part_size_of(run.recipe)
        views, is_one_of_many = run.recipe["views"], has_shared_backbone(run)
        return FoldModel(model.eval(), spec, normalise, precision, views, part_size, is_one_of_many)

    @property
    def device(self) -> torch.device:
        return self.normalise.device

    @property
    def computed_on(self) -> str:
        return f"{device_name(self.device)}, {precision_name(self.precision)}"

    def predict_prepared(
        self, images: Tensor, computed: dict[str, NDArray[np.float32]] | None = None
    ) -> NDArray[np.float32]:
        """Returns a row of probabilities per image; `images` are uint8, as `prepare` returns them.

        `computed` keeps the features of these images for other models that have the same backbone.
        """
        if computed is None or not self.backbone_key:
            return self.predict((part, part) for part in images.split(self.batch_size))
        if self.backbone_key not in computed:
            computed[self.backbone_key] = self.backbone.features(images)
        return self.predict_features(computed[self.backbone_key])

    def predict(
        self,
        batches: Iterable[tuple[Tensor, Tensor]],
        progress: Any = None,
        columns: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """Returns a row of probabilities per image; `columns` are what the tables say of these."""
        return predict_proba(self.model, batches, self.normalise, self.precision, self.views, progress, columns)

    @property
    def backbone(self) -> Backbone:
        return Backbone(self.model, self.spec, self.normalise, self.precision, self.views, self.batch_size)

    @cached_property
    def backbone_key(self) -> str:
        """Returns the same for all models whose features of an image are the same; nothing if they are its own."""
        return self.backbone.key() if self.is_one_of_many and self.shared_head is not None else ""

    @cached_property
    def shared_head(self) -> nn.Module | None:
        """Returns the layer that makes the answers from features; None if the model has no such layer, or several.

        It is tried on two images whether the features make the same answers to the bit.
        """
        layers = head_layers(self.model)
        if len(layers) != 1 or not hasattr(self.model, "forward_head"):
            return None
        pixels = torch.randint(
            256, (2, *sides_of(self.spec.test_size), self.spec.channel_count), dtype=torch.uint8, device=CPU
        )
        try:
            with torch.inference_mode(), autocast(self.device, self.precision):
                images = self.normalise(pixels)
                answers = layers[0](features_of(self.model, images).float())
                return layers[0] if torch.equal(answers, self.model(images)) else None
        except (RuntimeError, TypeError, AttributeError):  # a family of timm whose parts fit in another way
            return None

    @torch.inference_mode()
    def predict_features(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns what `predict` returns of the images with these features, [views, images, features], to the bit."""
        assert self.shared_head is not None
        parts = []
        for start in range(0, features.shape[1], self.batch_size):
            batch = torch.from_numpy(features[:, start : start + self.batch_size]).to(self.device)
            with autocast(self.device, self.precision):
                logits = [self.shared_head(view) for view in batch]
            parts.append(torch.stack([probs_of(of_view, self.spec) for of_view in logits]).mean(0))
        probs: NDArray[np.float32] = torch.cat(parts).cpu().numpy()
        return probs

    @torch.inference_mode()
    def features(self, images: Tensor) -> NDArray[np.float32]:
        """Returns what the last layer gets, a row per image; `images` are uint8, as `prepare` returns them."""
        if not hasattr(self.model, "forward_head"):
            raise PodiumError(f"{self.spec.architecture} gives no features: it lacks timm's forward_head")
        rows = []
        for part in images.split(self.batch_size):
            with autocast(self.device, self.precision):
                rows.append(features_of(self.model, self.normalise(part)).float().cpu().numpy())
        return np.concatenate(rows)


def open_model(run: Run, fold: int) -> tuple[nn.Module, ModelSpec]:
    """Returns a fold's model as it was saved; warns if its code was edited since."""
    warn_of_edits(run)
    return load_model(run.weights_path(fold))


def prepare(pixels: Pixels, spec: ModelSpec) -> Pixels:
    """Returns an image as models of this spec see it in prediction; a store would have cut and shrunk it the same."""
    side = stored_side(shorter_side(spec.image_size, spec.test_size))
    return TestView(spec)(shrink(cut_out(pixels, spec.part or ""), side))
