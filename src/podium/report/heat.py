"""Draws where a model looks in the images of a report: the attention of its class token, or Grad-CAM.

Each image is explained by the model that has predicted it, which has not seen it.
"""

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from podium.errors import PodiumError
from podium.explain.attention import class_attention
from podium.explain.draw_pictures import highlight
from podium.explain.gradients import grad_cam
from podium.image_size import ImageSize, sides_of
from podium.images.decode import read_image
from podium.models.device import CPU
from podium.models.normalise import Normaliser
from podium.report.gallery import SIDE, ImageCard, jpeg_of, shrink_to
from podium.saved_runs.run_folder import Run
from podium.terminal import progress_bar, say
from podium.training.fold_model import open_model, prepare

MOST_IMAGES = 96  # with a large model, each takes most of a second on a CPU
BATCH = 8

Explainer = Callable[[Any, torch.Tensor], Any]


def add_heat(cards: Sequence[ImageCard], run: Run, folder: Path) -> str:
    """Adds a picture to the first mistakes and suspects; returns what it shows, or nothing if the model has none."""
    chosen = [
        card for card in cards if card.thumbnail and card.predicted and (card.suspect or card.label != card.predicted)
    ]
    chosen, description = chosen[:MOST_IMAGES], ""
    with progress_bar(total=len(chosen), desc="where it looks", unit="image") as bar:
        for fold in sorted({card.fold for card in chosen}):
            own = [card for card in chosen if card.fold == fold]
            try:
                model, spec = open_model(run, fold)
                explain, description = choose_explainer(model, spec.test_size)
            except PodiumError as problem:
                say(f"podium: the report shows no attention: {problem}")
                return ""
            normalise = Normaliser(spec, CPU)
            for start in range(0, len(own), BATCH):
                batch = own[start : start + BATCH]
                pixels = [prepare(read_image(folder / card.image, spec.value_range), spec) for card in batch]
                maps = explain(model, normalise(torch.from_numpy(np.stack(pixels))))
                for card, image, values in zip(batch, pixels, maps, strict=True):
                    picture = shrink_to(np.asarray(highlight(image, values), np.uint8), SIDE)
                    card.heat = base64.b64encode(jpeg_of(picture)).decode()
                bar.update(len(batch))
    return description


def choose_explainer(model: Any, size: ImageSize) -> tuple[Explainer, str]:
    """Returns the attention of the class token if the model has one, else Grad-CAM; raises if it has neither."""
    trial = torch.zeros(1, 3, *sides_of(size))
    try:
        class_attention(model, trial)
    except PodiumError:
        grad_cam(model, trial)
        return grad_cam, "where the model looks (Grad-CAM, most confident mistakes)"
    return _mean_attention, "where the model looks (attention of the class token, most confident mistakes)"


def _mean_attention(model: Any, images: torch.Tensor) -> Any:
    return class_attention(model, images).mean(1)
