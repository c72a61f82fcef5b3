"""The order of the images: every epoch shows each once, and a resumed run continues in the same order.

Without loader processes, a thread loads them.
"""

import threading
from contextlib import closing
from copy import deepcopy
from itertools import chain
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from podium.basics.errors import PodiumError
from podium.images.decode import Pixels
from podium.training.augment import TestView, TrainView
from podium.training.learner import Learner
from podium.training.loader import BatchSampler, batches_in_order, load_batches
from podium.training.processes import Processes
from second_round import first_of
from training.learners import context_of


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 4), st.integers(0, 3))
def test_an_epoch_shows_every_image_once_and_a_resumed_run_shows_the_same(
    images: int, batch_size: int, epochs: int, fold: int
) -> None:
    batches = list(BatchSampler(images, batch_size, epochs, seed_and_fold=(5, fold)))
    size = min(batch_size, images)
    assert all(len(batch) == size for batch in batches)
    assert len(batches) == epochs * (images // size)
    for number in range(epochs):
        shown = [image for batch in batches for epoch, image in batch if epoch == number]
        assert len(set(shown)) == len(shown) == images // size * size
    for start in {0, 1, len(batches) // 2, len(batches)}:
        resumed = BatchSampler(images, batch_size, epochs, seed_and_fold=(5, fold), start=start)
        assert list(resumed) == batches[start:]
        assert len(resumed) == len(batches) - start


def test_epochs_folds_and_seeds_have_different_orders() -> None:
    orders = [
        tuple(
            image for batch in BatchSampler(50, 10, 2, seed_and_fold=(seed, fold)) for at, image in batch if at == epoch
        )
        for seed, fold, epoch in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0))
    ]
    assert len(set(orders)) == 4


@given(st.integers(2, 64), st.integers(1, 8), st.integers(0, 5))
def test_the_shares_of_all_processes_are_the_batch_and_split_no_pair(batch_size: int, size: int, seed: int) -> None:
    batches = list(BatchSampler(70, batch_size, 2, seed_and_fold=(seed, 0)))
    samplers = [BatchSampler(70, batch_size, 2, (seed, 0), Processes(rank, size)) for rank in range(size)]
    assert [list(chain(*shares)) for shares in zip(*samplers, strict=True)] == batches
    assert all(sampler.share.start is None or sampler.share.start % 2 == 0 for sampler in samplers)


def test_prediction_shows_every_image_once_in_order() -> None:
    assert [image for batch in batches_in_order(7, 3) for _, image in batch] == list(range(7))


def test_no_thread_is_left_when_a_loader_is_closed_or_fails(tiny: Path) -> None:
    with context_of(tiny, model="test_vit") as context:
        images = context.images.of_rows(context.images.training_rows(0), TestView(Learner(context, 0).spec))
    threads = threading.active_count()
    with closing(load_batches(images, batches_in_order(12, 3), workers=0)) as batches:
        next(batches)
        assert threading.active_count() == threads + 1
    assert threading.active_count() == threads
    images.read = unreadable
    with pytest.raises(PodiumError, match="cannot be read"):
        list(load_batches(images, batches_in_order(12, 3), workers=0))
    assert threading.active_count() == threads


def unreadable(index: int) -> Pixels:
    raise PodiumError(f"image {index} cannot be read")


@pytest.mark.parametrize("workers", first_of([0, 2], range(5)))
def test_any_number_of_processes_and_workers_shows_the_same_images_in_the_same_order(tiny: Path, workers: int) -> None:
    with context_of(tiny, model="test_vit", batch_size=6) as context:
        images = context.images.of_rows(
            context.images.training_rows(0), TrainView(context.recipe, Learner(context, 0).spec)
        )
    count, expected = len(images.rows), []
    for keys in BatchSampler(count, 6, 2, (0, 0)):
        batch = images.load(keys)
        assert not isinstance(batch, PodiumError)
        expected.append(batch)
    for size in (1, 2, 3):
        samplers = [BatchSampler(count, 6, 2, (0, 0), Processes(rank, size)) for rank in range(size)]
        loaders = [load_batches(deepcopy(images), sampler, workers) for sampler in samplers]  # a process has its own
        steps = 0
        for batch, *shares in zip(expected, *loaders, strict=True):
            for whole, *parts in zip(batch, *shares, strict=True):
                assert torch.cat(parts).equal(whole)
            steps += 1
        assert steps == len(expected) > 2
