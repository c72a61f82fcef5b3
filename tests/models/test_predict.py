"""From images to probabilities: what the model gets, and what the views of an image add."""

import numpy as np
import pytest
import torch

from podium.models.build import ModelSpec
from podium.models.normalise import Normaliser
from podium.models.predict import predict_proba, views_of
from podium.options.recipe_defaults import Backbone, fill_in_defaults
from podium.options.recipe_options import VIEWS

CPU = torch.device("cpu")


def spec_with(mean: tuple[float, ...], std: tuple[float, ...]) -> ModelSpec:
    return ModelSpec("test_vit", ("a", "b"), 48, 48, mean, std, "bicubic", 0.9, "crop", "none")


def view_count(views: str) -> int:
    return fill_in_defaults({"model": "m", "views": views}, {}, Backbone("", "batch norm", 64, 64)).view_count


def test_the_model_gets_images_with_its_own_mean_and_deviation() -> None:
    images = torch.randint(0, 256, (2, 5, 4, 3), dtype=torch.uint8)
    spec = spec_with((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
    inputs = Normaliser(spec, CPU)(images)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (spec.mean, spec.std))
    assert torch.allclose(inputs, (images.permute(0, 3, 1, 2) / 255 - mean) / std, atol=1e-5)
    assert inputs.is_contiguous(memory_format=torch.channels_last)


class LeftEdge(torch.nn.Module):
    """Knows the first class by a bright left edge."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images[:, 0, 0, :1] * torch.tensor([[8.0, 0.0]])


def test_probabilities_are_the_mean_of_the_views() -> None:
    image = torch.zeros(1, 4, 4, 3, dtype=torch.uint8)
    image[:, :, 0] = 255
    normalise = Normaliser(spec_with((0.0,) * 3, (1.0,) * 3), CPU)
    batches = [(image, torch.zeros(1))]
    plain = predict_proba(LeftEdge(), batches, normalise, torch.float32, "none")
    mirrored = predict_proba(LeftEdge(), batches, normalise, torch.float32, "mirror")
    assert plain[0, 0] > 0.99
    assert mirrored[0, 0] == pytest.approx((plain[0, 0] + 0.5) / 2)


def test_without_images_there_are_no_probabilities() -> None:
    probs = predict_proba(LeftEdge(), [], Normaliser(spec_with((0.0,) * 3, (1.0,) * 3), CPU), torch.float32, "none")
    assert probs.dtype == np.float32
    assert len(probs) == 0


def test_every_view_is_what_its_name_says_and_views_combine() -> None:
    images = torch.arange(2 * 3 * 32 * 32, dtype=torch.float32).reshape(2, 3, 32, 32)
    for name, view in VIEWS.items():
        assert len(views_of(images, name)) == view.images == view_count(name)
    assert torch.equal(views_of(images, "mirror")[1], images.flip(3))
    assert torch.equal(views_of(images, "flip")[1], images.flip(2))
    assert torch.equal(views_of(images, "turn")[2], images.flip(2, 3))
    zoomed = views_of(images, "zoom")[1]
    assert zoomed.shape == images.shape
    assert torch.allclose(zoomed.mean((2, 3)), images.mean((2, 3)), rtol=1e-4)  # the same centre,
    assert (zoomed.amax((2, 3)) < images.amax((2, 3))).all()  # without the edges
    combined = views_of(images, "mirror+flip+turn")
    assert len(combined) == view_count("mirror+flip+turn") == 16
    assert len({view.numpy().tobytes() for view in combined}) == 8  # a square has no more symmetries
    assert views_of(images, "none") == [images]
