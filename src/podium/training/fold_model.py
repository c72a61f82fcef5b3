"""A finished fold's model on a device, ready to predict images as the run's recipe says."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from podium.errors import PodiumError
from podium.image_size import shorter_side
from podium.images.cut import cut_out
from podium.images.decode import Pixels, shrink
from podium.images.store import stored_side
from podium.models.build import ModelSpec
from podium.models.device import autocast, device_name, pick_device, pick_precision, precision_name, prepare_device
from podium.models.model_file import load_model
from podium.models.normalise import Normaliser
from podium.models.place import place_model
from podium.models.predict import predict_proba
from podium.saved_runs.doubts import warn_of_code
from podium.saved_runs.run_folder import Run
from podium.training.augment import TestView
from podium.training.frozen_features import features_of


@dataclass(frozen=True)
class FoldModel:
    model: nn.Module
    spec: ModelSpec
    normalise: Normaliser
    precision: torch.dtype
    views: str
    batch_size: int

    @staticmethod
    def load(run: Run, fold: int, device_choice: str) -> "FoldModel":
        device = pick_device(device_choice)
        prepare_device(device, deterministic=False)
        torch.backends.cudnn.benchmark = False  # kernels chosen by their speed could change the last digits
        model, spec = open_model(run, fold)
        precision = pick_precision(run.recipe["precision"], device)
        normalise = place_model(model, spec, device, precision)
        part_size = math.ceil(run.recipe["batch_size"] / run.recipe.get("accumulate", 1))
        return FoldModel(model.eval(), spec, normalise, precision, run.recipe["views"], part_size)

    @property
    def device(self) -> torch.device:
        return self.normalise.device

    @property
    def computed_on(self) -> str:
        return f"{device_name(self.device)}, {precision_name(self.precision)}"

    def predict_prepared(self, images: Tensor) -> NDArray[np.float32]:
        """Returns a row of probabilities per image; `images` are uint8, as `prepare` returns them."""
        return self.predict((part, part) for part in images.split(self.batch_size))

    def predict(self, batches: Iterable[tuple[Tensor, Tensor]], progress: Any = None) -> NDArray[np.float32]:
        """Returns a row of probabilities per image."""
        return predict_proba(self.model, batches, self.normalise, self.precision, self.views, progress)

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
    warn_of_code(run)
    return load_model(run.weights_path(fold))


def prepare(pixels: Pixels, spec: ModelSpec) -> Pixels:
    """Returns an image as models of this spec see it in prediction; a store would have cut and shrunk it the same."""
    side = stored_side(shorter_side(spec.image_size, spec.test_size))
    return TestView(spec)(shrink(cut_out(pixels, spec.part or ""), side))
