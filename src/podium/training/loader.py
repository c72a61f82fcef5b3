"""uint8 batches from the store, the same whatever the number of workers.

The order of a run is a list of (epoch, image) computed from the seed; a loader goes through it from any
step on, across epochs, so workers start once and nothing has to be saved to resume.
"""

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, get_worker_info

from podium import PodiumError
from podium.images.store import Reader
from podium.models.device import LOADER_DIED
from podium.training.augment import ORDER, View, generator
from podium.training.processes import Processes

PREFETCHED = 4  # batches a worker has ready
Key = tuple[int, int]  # epoch, image


class ImageDataset(Dataset[Any]):
    """Batches of (uint8 images [n, height, width, 3], targets [n])."""

    def __init__(self, read: Reader, targets: NDArray[np.int64], view: View, rows: NDArray[np.int64]) -> None:
        self.read = read
        self.targets = targets
        self.view = view
        self.rows = rows  # what an augmentation knows an image by

    def __getitems__(self, keys: list[Key]) -> tuple[Tensor, Tensor] | PodiumError:
        try:
            images = [self.view(self.read(i), epoch, int(self.rows[i])) for epoch, i in keys]
        except OSError as error:
            return PodiumError(f"{error.filename}: {error.strerror}; run the same command again")
        except PodiumError as error:
            return error  # raised by `batches`, in the parent: a worker would wrap it in a traceback
        return _shared(torch.from_numpy(np.stack(images)), torch.from_numpy(self.targets[[i for _, i in keys]]))


class BatchSampler(Sampler[list[Key]]):
    """The batches of a training run from step `start` on; every epoch a new order, its last odd batch left out.

    Of several processes each has its share of every batch, in pairs of images, since pairs are what is mixed.
    """

    def __init__(
        self,
        images: int,
        batch_size: int,
        epochs: int,
        seed: int,
        fold: int,
        group: Processes | None = None,
        start: int = 0,
    ) -> None:
        self.images, self.batch_size = images, min(batch_size, images)
        self.per_epoch = images // self.batch_size
        self.start, self.stop = start, epochs * self.per_epoch
        self.key = seed, fold
        places = np.arange(0, self.batch_size, 2)
        pairs = (group or Processes()).share(places)
        self.mine = slice(pairs[0], pairs[-1] + 2) if len(pairs) else slice(0)

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[list[Key]]:
        order = np.empty(0, dtype=np.int64)
        for step in range(self.start, self.stop):
            epoch, nth = divmod(step, self.per_epoch)
            if nth == 0 or step == self.start:
                order = generator(ORDER, *self.key, epoch).permutation(self.images)
            batch = order[nth * self.batch_size : (nth + 1) * self.batch_size]
            yield [(epoch, int(i)) for i in batch[self.mine]]


def batches_in_order(images: int, batch_size: int) -> list[list[Key]]:
    """Every image once, for prediction."""
    return [[(0, i) for i in range(at, min(at + batch_size, images))] for at in range(0, images, batch_size)]


def load_batches(
    images: ImageDataset, steps: Sampler[list[Key]] | list[list[Key]], workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of more processes than cores: whoever asks for them knows
            loader = DataLoader(
                images,
                batch_sampler=steps,
                num_workers=workers,
                collate_fn=_as_is,
                worker_init_fn=_start_worker,
                pin_memory=torch.cuda.is_available(),
                prefetch_factor=PREFETCHED if workers else None,
            )
            loading = iter(loader)
    except OSError as error:
        for process in torch.multiprocessing.active_children():
            process.kill()  # else those that did start would be waited for at the end, for ever
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None  # torch trips over its own half-made loader
        reason, error.__traceback__ = error.strerror, None
        sys.unraisablehook = hook
        raise PodiumError(f"cannot start {workers} loader processes ({reason}); use --workers 0") from None
    try:
        for batch in loading:
            if isinstance(batch, PodiumError):
                raise batch
            yield batch
    except (ConnectionError, EOFError, FileNotFoundError):  # it had this batch ready, and nobody can ask it for it
        raise PodiumError(LOADER_DIED) from None
    finally:
        _end(loading)


def pick_workers(workers: int | None, device: torch.device) -> int:
    """Processes that decode. On a CPU they would take the cores that train."""
    if workers is not None:
        return workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # processes of this machine that train
    return min(8, max(1, cores // beside)) if device.type == "cuda" else 0


def _shared(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor] | PodiumError:
    """A batch in the memory that a worker shares with its parent. Torch would move it there later, in a thread whose
    errors nobody hears: a full /dev/shm would lose the batch, and training wait for it for ever."""
    if get_worker_info() is not None:
        try:
            images.share_memory_(), targets.share_memory_()
        except (RuntimeError, OSError) as error:
            reason = str(error).rpartition(">: ")[2]
            remedy = "run the same command again with --workers 0, or give it more (docker run --shm-size=8g)"
            return PodiumError(f"/dev/shm, by which loader processes hand over images, fails ({reason}); {remedy}")
    return images, targets


def _end(loading: Any) -> None:
    """Ends the loader's processes now: an error keeps its loader alive, and Python would wait for them at its exit,
    for ever, since they hear no SIGTERM."""
    if hasattr(loading, "_shutdown_workers"):  # it has processes
        loading._shutdown_workers()
        for process in loading._workers:
            process.kill()  # nothing to those that have ended


def _as_is(batch: Any) -> Any:
    return batch


def _start_worker(worker: int) -> None:
    # A signal to the whole group, Ctrl-C or a scheduler's, reaches the workers too; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
