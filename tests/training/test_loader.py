"""The order of the images: every epoch shows each once, and a resumed run continues in the same order."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from podium.training.loader import BatchSampler, batches_in_order
from podium.training.processes import Processes


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
