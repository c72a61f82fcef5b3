"""Loads uint8 batches from the store, the same ones with any number of worker processes.

The order of a run is a list of (epoch, image) computed from the seed. A loader goes through it from any step on, across
epochs, so workers start once, and nothing has to be saved to resume. They fill memory that a GPU reads directly; it is
page-locked once and used again by the next loader, which saves more than a small model's step.
"""

import contextlib
import math
import signal
import sys
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from podium.basics.errors import PodiumError
from podium.basics.machine import usable_cores
from podium.basics.randomness import ORDER, generator
from podium.basics.torchrun import local_world_size
from podium.images.decode import Pixels
from podium.images.store import Reader
from podium.models.device import CPU, Batch, has_gpu, is_gpu, lock_memory, unlock_memory
from podium.models.hardware_errors import LOADER_DIED
from podium.options.extensions.extension_files import Extension, loaded_extensions, use_extensions
from podium.options.moves.move import Shown
from podium.training.augment import View
from podium.training.epoch_images import count_of, draw
from podium.training.processes import Processes

PREFETCHED = 2  # batches that a worker has ready
Key = tuple[int, int]  # epoch, index of an image


# --- the order of images -----------------------------------------------------------------------------


class BatchSampler(Sampler[list[Key]]):
    """The batches of a run from step `start` on. Every epoch has a new order and drops its last, smaller batch."""

    def __init__(
        self,
        images: Shown,
        batch_size: int,
        epochs: int,
        seed_and_fold: tuple[int, int],
        processes: Processes | None = None,
        start: int = 0,
    ) -> None:
        count = count_of(images)
        self.images, self.batch_size = images, min(batch_size, count)
        self.per_epoch = count // self.batch_size
        self.start, self.stop = start, epochs * self.per_epoch
        self.seed, self.fold = seed_and_fold
        self.share = (processes or Processes()).share_of_batch(self.batch_size)
        self._order = lru_cache(2)(self._draw_order)  # the loader is ahead of the step, perhaps in the next epoch

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[Key]]:
        for step in range(self.start, self.stop):
            epoch = step // self.per_epoch
            yield [(epoch, image) for image in self.images_of(step).tolist()]

    def images_of(self, step: int) -> NDArray[np.int64]:
        """Returns the numbers of the images of a step."""
        epoch, number = divmod(step, self.per_epoch)
        batch = self._order(epoch)[number * self.batch_size : (number + 1) * self.batch_size]
        return batch[self.share]

    def _draw_order(self, epoch: int) -> NDArray[np.int64]:
        return draw(self.images, generator(ORDER, self.seed, self.fold, epoch))


def batches_in_order(images: int, batch_size: int) -> list[list[Key]]:
    """Returns every image once, for prediction."""
    return [
        [(0, image) for image in range(start, min(start + batch_size, images))]
        for start in range(0, images, batch_size)
    ]


class ImageDataset(Dataset[Any]):
    """Reads a batch of images as a view shows them."""

    def __init__(self, read: Reader, targets: Any, view: View, rows: NDArray[np.int64]) -> None:
        self.read = read
        self.targets = targets  # an array, or what makes the rows of some numbers (lessons.py)
        self.view = view
        self.rows = rows  # of the training table: the augmentation's key of an image

    def __getitems__(self, keys: list[Key]) -> Batch | PodiumError:
        return self.load(keys)

    def pixels(self, epoch: int, index: int) -> Pixels:
        """Returns what this epoch sees of an image, before the view changes it."""
        return self.read(index)

    def load(self, keys: list[Key], memory: NDArray[np.uint8] | None = None) -> Batch | PodiumError:
        """Returns the images in this memory, if there is any, and their targets."""
        try:
            images = [self.view(self.pixels(epoch, index), epoch, int(self.rows[index])) for epoch, index in keys]
        except OSError as error:
            return PodiumError(f"{error.filename}: {error.strerror}; run the same command again")
        except PodiumError as error:
            return error  # load_batches raises it in the parent; here a worker would wrap it in a traceback
        shape = len(images), *images[0].shape
        pixels = np.stack(images, out=None if memory is None else memory[: math.prod(shape)].reshape(shape))
        return torch.from_numpy(pixels), torch.from_numpy(self.targets[[index for _, index in keys]])


class SharedBatches(Dataset[Any]):
    """Loads batches into slots of shared memory, in turn: a slot is filled again when all others were."""

    def __init__(self, images: ImageDataset, memory: Tensor, slots: int) -> None:
        self.images, self.memory, self.slots = images, memory, slots

    def __getitems__(self, numbered: tuple[int, list[Key]]) -> Any:
        """Returns the number of a batch, its shape and its targets; in a worker."""
        number, keys = numbered
        batch = self.images.load(keys, self.slot(number).numpy())
        return batch if isinstance(batch, PodiumError) else (number, batch[0].shape, batch[1].numpy())

    def slot(self, number: int) -> Tensor:
        size = len(self.memory) // self.slots
        start = number % self.slots * size
        return self.memory[start : start + size]

    def batch(self, loaded: Any) -> Batch:
        """Returns what a worker has loaded."""
        if isinstance(loaded, PodiumError):
            raise loaded
        number, shape, targets = loaded
        return self.slot(number)[: shape.numel()].view(shape), torch.from_numpy(targets)


# --- loading -----------------------------------------------------------------------------------------


def load_batches(images: ImageDataset, batches: Sampler[list[Key]] | list[list[Key]], workers: int) -> Generator[Batch]:
    """Yields the batches in order; ends its worker processes when it is closed.

    The images of a batch may be overwritten once the next batch is asked for, and its copy to a GPU is done.
    """
    return _load_in_processes(images, batches, workers) if workers else _load_beside(images, batches)


def _load_beside(images: ImageDataset, batches: Sampler[list[Key]] | list[list[Key]]) -> Generator[Batch]:
    """Loads the next batch in a thread, beside the step: numpy, OpenCV and torch let other threads run."""
    loader = _start_loader(images, batches, 0)
    with ThreadPoolExecutor(1, "loader") as thread:
        following = thread.submit(next, loader, None)
        while (batch := following.result()) is not None:
            if isinstance(batch, PodiumError):
                raise batch
            following = thread.submit(next, loader, None)
            yield batch


def _load_in_processes(
    images: ImageDataset, batches: Sampler[list[Key]] | list[list[Key]], workers: int
) -> Generator[Batch]:
    """The workers load ahead into some slots; two more hold the batch of this step and that of the step before.

    A GPU takes a third, from which the batch of the next step is copied (device.copied_ahead).
    """
    most = batches.batch_size if isinstance(batches, BatchSampler) else max(map(len, batches), default=0)
    slots = workers * PREFETCHED + (3 if has_gpu() else 2)
    with shared_memory(slots * most * images.view.nbytes) as memory, _copies() as wait_for_copies:
        shared = SharedBatches(images, memory, slots)
        loader = _start_loader(shared, enumerate(batches), workers)
        try:
            for loaded in loader:
                yield shared.batch(loaded)
                wait_for_copies()
        except (ConnectionError, EOFError, FileNotFoundError):  # the worker that loads this batch is dead
            raise PodiumError(LOADER_DIED) from None
        finally:
            _end_workers(loader)


@contextmanager
def _copies() -> Iterator[Callable[[], None]]:
    """Yields a function that waits until a GPU has copied the batch before this one; at the end, it has copied all."""
    if not torch.accelerator.is_available():
        yield lambda: None
        return
    copied = torch.Event(), torch.Event()
    step = count()

    def wait() -> None:
        number = next(step)
        copied[number % 2].record()
        copied[1 - number % 2].synchronize()  # returns at once if it was never recorded

    try:
        yield wait
    finally:
        copied[0].record()
        copied[0].synchronize()


def pick_workers(workers: int | None, device: torch.device) -> int:
    """Returns the number of loader processes. On a CPU they would take the cores that train."""
    if workers is not None:
        return workers
    return min(8, max(1, usable_cores() // local_world_size())) if is_gpu(device) else 0


def _start_loader(dataset: Dataset[Any], batches: Any, workers: int) -> Any:
    try:
        with warnings.catch_warnings(action="ignore"):  # of more processes than cores: the user asked for them
            return iter(
                DataLoader(
                    dataset,
                    batch_sampler=batches,
                    num_workers=workers,
                    collate_fn=_unchanged,
                    worker_init_fn=partial(_start_worker, loaded_extensions()),
                    pin_memory=not workers and has_gpu(),
                    prefetch_factor=PREFETCHED if workers else None,
                )
            )
    except OSError as error:
        _discard_half_built_loader(error)
        raise PodiumError(f"cannot start {workers} loader processes ({error.strerror}); use --workers 0") from None


def _discard_half_built_loader(error: OSError) -> None:
    """Deletes the loader, and kills the workers that did start: Python would wait for them at its exit."""
    for process in torch.multiprocessing.active_children():
        process.kill()
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # torch's loader raises when it is deleted half built
    error.__traceback__ = None  # the last reference to the loader
    sys.unraisablehook = hook


def _end_workers(loader: Any) -> None:
    """Kills the workers. They ignore SIGTERM, and a loader that an error keeps alive would wait for them forever."""
    loader._shutdown_workers()
    for process in loader._workers:
        process.kill()  # no effect on those that have ended


def _unchanged(batch: Any) -> Any:
    return batch


def _start_worker(extensions: tuple[Extension, ...], worker: int) -> None:
    """Ctrl-C and a scheduler's signal reach the whole process group; the parent decides what they mean.

    A worker that was not forked has none of the parent's extensions yet.
    """
    use_extensions(extensions)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


# --- memory that loader processes share --------------------------------------------------------------

_free: list[Tensor] = []  # of loaders that have ended


@contextlib.contextmanager
def shared_memory(size: int) -> Iterator[Tensor]:
    """Lends at least `size` bytes that this process and those that it starts share."""
    memory = next((_free.pop(number) for number, free in enumerate(_free) if len(free) >= size), None)
    if memory is None:
        _discard_free()  # they are too small
        memory = _allocate(size)
    try:
        yield memory
    finally:
        _free.append(memory)


def _allocate(size: int) -> Tensor:
    try:
        memory: Tensor = torch.empty(size, dtype=torch.uint8, device=CPU).share_memory_()
    except (RuntimeError, OSError) as error:
        reason = str(error).rpartition(">: ")[2]
        remedy = "run the same command again with --workers 0, or enlarge it (docker run --shm-size=8g)"
        raise PodiumError(f"/dev/shm, through which loader processes pass images, fails ({reason}); {remedy}") from None
    lock_memory(memory)
    return memory


def _discard_free() -> None:
    while _free:
        unlock_memory(_free.pop())
