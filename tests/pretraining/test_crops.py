"""The crops: their sizes, and that only seed, epoch, image and crop decide them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from podium.images.decode import Pixels
from podium.models.build import build_model
from podium.training.loader import BatchSampler, ImageDataset, load_batches
from podium_annex.pretraining.crops import CropSizes, MultiCropView, jitter, unpack
from tiny import recipe_of

SIZES = CropSizes(large=64, small=32, small_crops=3)


def an_image(seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (50, 70, 3), dtype=np.uint8)


def view_of(**options: Any) -> MultiCropView:
    recipe = recipe_of("test_vit", **options)
    return MultiCropView(recipe, build_model(recipe, ("a", "b"))[1], SIZES)


def test_a_row_holds_all_crops_and_is_taken_apart_again() -> None:
    view = view_of()
    rows = [view(an_image(seed), 0, seed) for seed in (0, 1)]
    assert [row.shape for row in rows] == [(2 * 64 * 64 * 3 + 3 * 32 * 32 * 3,)] * 2
    large, small = unpack(torch.from_numpy(np.stack(rows)), SIZES)
    assert (large.shape, small.shape) == ((4, 64, 64, 3), (6, 32, 32, 3))
    for seed in (0, 1):  # the first crop of both images, then the second
        assert np.array_equal(large[2 + seed].numpy(), view.crop(an_image(seed), 0, seed, 1))
        assert np.array_equal(small[4 + seed].numpy(), view.crop(an_image(seed), 0, seed, 4))


def test_no_small_crops_leave_the_large_ones() -> None:
    sizes = CropSizes(8, 4, 0)
    (large,) = unpack(torch.zeros(3, 2 * 8 * 8 * 3, dtype=torch.uint8), sizes)
    assert large.shape == (6, 8, 8, 3)


def test_seed_epoch_image_and_crop_decide_a_crop() -> None:
    view, image = view_of(), an_image()
    row = view(image, 1, 2)
    assert np.array_equal(row, view_of()(image, 1, 2))
    for other in (view(image, 0, 2), view(image, 1, 3), view_of(seed=1)(image, 1, 2)):
        assert not np.array_equal(row, other)
    assert not np.array_equal(view.crop(image, 1, 2, 2), view.crop(image, 1, 2, 3))


@pytest.mark.slow
def test_the_number_of_workers_does_not_change_the_crops() -> None:
    images = ImageDataset(an_image, np.zeros(6, np.int64), view_of(), np.arange(6))
    expected, loaded = (
        [rows.clone() for rows, _ in load_batches(images, BatchSampler(6, 2, 2, (0, 0)), workers)] for workers in (0, 2)
    )
    assert len(expected) == 6
    assert all(torch.equal(one, other) for one, other in zip(expected, loaded, strict=True))


def test_the_recipe_decides_about_mirrored_and_coloured_crops() -> None:
    grey = np.repeat(np.tile(np.arange(60, dtype=np.uint8), (60, 1))[..., None], 3, 2)  # brighter to the right
    plain = view_of(mirror=0.0, colour=0.0)
    crops = [plain.crop(grey, epoch, 0, 2).astype(int) for epoch in range(8)]
    assert all(crop[:, -1].mean() > crop[:, 0].mean() for crop in crops)
    assert all(np.ptp(crop, axis=2).max() == 0 for crop in crops)
    mirrored = view_of(mirror=1.0, colour=0.0).crop(grey, 0, 0, 2).astype(int)
    assert mirrored[:, -1].mean() < mirrored[:, 0].mean()


def test_colour_changes_keep_the_hue_of_grey() -> None:
    image = np.full((4, 4, 3), 100, np.uint8)
    changed = jitter(image, 0.4, np.random.default_rng(0))
    assert changed.dtype == np.uint8
    assert np.ptp(changed) == 0
    assert changed[0, 0, 0] != 100


def test_views_can_be_sent_to_worker_processes(tmp_path: Path) -> None:
    import pickle

    view = pickle.loads(pickle.dumps(view_of()))
    assert np.array_equal(view(an_image(), 0, 0), view_of()(an_image(), 0, 0))
