"""Memory that loader processes fill with images, and that a GPU reads directly.

It is page-locked for a GPU once and used again by the next loader: to allocate, lock and copy the memory of each batch
takes longer than a small model's step.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from podium.basics.errors import PodiumError
from podium.models.device import CPU, lock_memory, unlock_memory

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
