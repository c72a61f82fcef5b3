"""What training and prediction see of an image, and how whole batches are mixed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from podium.basics.randomness import generator
from podium.models.build import ModelSpec
from podium.options.moves.mixing import mix_neighbours
from podium.options.recipe import Recipe
from podium.options.recipe_defaults import Backbone, fill_in_defaults
from podium.training.augment import TestView, TrainView
from podium.training.processes import Processes

SPEC = ModelSpec("test_vit", ("a", "b"), 48, 48, (0.5, 0.4, 0.3), (0.2, 0.2, 0.1), "bicubic", 0.9, "crop", "none")
SQUASHED = replace(SPEC, fit="squash")
STREAM = 9  # of random draws, which training does not use


def recipe(**options: object) -> Recipe:
    return fill_in_defaults(
        {"model": "convnext_small", "image_size": 48, **options}, {}, Backbone("convnext", "convnext", 224, 288)
    )


def noise(*size: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)


# --- training ----------------------------------------------------------------------------------------


def test_an_augmentation_depends_on_seed_epoch_and_image_only() -> None:
    image = noise(80, 60)
    view, same_view = TrainView(recipe(), SPEC), TrainView(recipe(), SPEC)
    keys = {}
    for epoch in range(3):
        for row in range(3):
            seen = view(image, epoch, row)
            assert seen.shape == (48, 48, 3)
            assert seen.dtype == np.uint8
            keys[seen.tobytes()] = (epoch, row)
    assert len(keys) == 9  # every epoch and image has its own augmentation
    for seen_bytes, (epoch, row) in reversed(keys.items()):  # another object, another order: the same
        assert same_view(image, epoch, row).tobytes() == seen_bytes
    assert TrainView(recipe(seed=1), SPEC)(image, 0, 0).tobytes() not in keys


@pytest.mark.parametrize("strength", [0.0, 0.65, 1.0])
def test_operations_depend_on_seed_epoch_and_image_only(strength: float) -> None:
    operations, image = recipe(level="none", ops=2, strength=strength, mirror=0.0), noise(80, 60)
    seen, again = ([TrainView(operations, SQUASHED)(image, epoch, 3) for epoch in range(30)] for _ in range(2))
    assert np.array_equal(seen, again)
    if strength:
        assert len({image_seen.tobytes() for image_seen in seen}) > 20


@pytest.mark.parametrize("size", [(1, 1), (2, 400), (400, 2), (48, 48), (300, 200)])
def test_an_image_of_any_shape_is_seen(size: tuple[int, int]) -> None:
    image = np.full((*size, 3), 77, dtype=np.uint8)
    for spec in (SPEC, SQUASHED):
        assert (TestView(spec)(image) == 77).all()
        assert (TrainView(recipe(colour=0.0, erase=0.0), spec)(image, 0, 0) == 77).all()
        for epoch in range(20):
            assert TrainView(recipe(level="strong"), spec)(image, epoch, 0).shape == (48, 48, 3)


def test_training_sees_a_growing_image_at_the_size_of_the_epoch() -> None:
    growing = recipe(image_size=80, epochs=10, grow=0.6)
    assert TrainView(growing, replace(SPEC, image_size=80))(noise(60, 80), 2, 0).shape == (48, 48, 3)


# --- prediction --------------------------------------------------------------------------------------


def test_prediction_sees_the_centre_that_the_model_asks_for() -> None:
    image = np.zeros((100, 60, 3), dtype=np.uint8)
    image[20 + 3 : 80 - 3, 3:57] = 200  # the inner nine tenths of the centre square
    assert (TestView(SPEC)(image) == 200).all()


def test_a_padded_image_is_seen_whole_and_in_its_shape() -> None:
    image = np.full((20, 60, 3), 255, np.uint8)
    padded = TestView(replace(SPEC, fit="pad", test_size=60))(image)
    assert (padded[20:40] == 255).all()
    borders = np.concatenate([padded[:20], padded[40:]])
    assert (borders == [round(255 * mean) for mean in SPEC.mean]).all()
    whole = recipe(crop=1.0, colour=0.0, erase=0.0, mirror=0.0, image_size=60)
    trained = TrainView(whole, replace(SPEC, fit="pad"))(image, 0, 0)
    assert np.array_equal(trained, padded)


def test_a_squashed_image_is_seen_whole() -> None:
    image = np.zeros((100, 60, 3), dtype=np.uint8)
    image[:50] = 200
    assert np.abs(TestView(SQUASHED)(image).astype(int).mean() - 100) < 3
    seen = TrainView(recipe(crop=1.0, colour=0.0, erase=0.0, mirror=0.0), SQUASHED)(image, 0, 0)
    assert np.abs(seen.astype(int).mean() - 100) < 12


# --- whole batches -----------------------------------------------------------------------------------


@given(st.integers(0, 200))
def test_a_mixed_target_is_the_share_of_each_image(seed: int) -> None:
    """Image i is filled with the value of its own target, so the mean of a mixture is its soft target."""
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    images = targets[:, 1].view(2, 1, 1, 1).expand(2, 3, 16, 12).contiguous()
    mixed, soft_targets = mix_neighbours(images, targets, generator(STREAM, seed))
    assert torch.allclose(soft_targets.sum(1), torch.ones(2))
    assert torch.allclose(mixed.mean((1, 2, 3)), soft_targets[:, 1], atol=1e-5)


@given(st.integers(2, 20), st.integers(1, 4), st.integers(0, 200))
def test_several_processes_mix_a_batch_as_one_does(count: int, size: int, seed: int) -> None:
    images, targets = torch.rand(count, 3, 8, 6, generator=torch.Generator().manual_seed(seed)), torch.eye(count)
    shares = [Processes(rank, size).share_of_batch(count) for rank in range(size)]
    parts = [
        mix_neighbours(images[share], targets[share], generator(STREAM, seed)) for share in shares if len(images[share])
    ]
    for mixed, tensors in zip(
        mix_neighbours(images, targets, generator(STREAM, seed)), zip(*parts, strict=True), strict=True
    ):
        assert torch.equal(torch.cat(tensors), mixed)
