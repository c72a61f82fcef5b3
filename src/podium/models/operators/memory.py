"""Lets the C library keep the memory that a training step frees, for the next step.

By default it returns large blocks to the system, which has to clear them again, page by page: this takes 5 to 20 % of a
training step on a CPU.
"""

import ctypes
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # names and values of glibc's malloc.h
KEEP = {M_TRIM_THRESHOLD: -1, M_TOP_PAD: 64 * 1024**2, M_MMAP_MAX: 0}
DEFAULT = {M_TRIM_THRESHOLD: 128 * 1024, M_TOP_PAD: 128 * 1024, M_MMAP_MAX: 65_536}


def keep_freed_memory() -> None:
    """From now on, the process keeps the memory of its largest step. Only glibc can do this."""
    _set(KEEP)


@contextmanager
def freed_memory_returned() -> Iterator[None]:
    """Within the block, memory is managed as in a program that does not call `keep_freed_memory`."""
    _set(DEFAULT)
    try:
        yield
    finally:
        keep_freed_memory()


def _set(options: Mapping[int, int]) -> None:
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt"):
        return
    for option, value in options.items():
        library.mallopt(option, value)
    if options is DEFAULT:
        library.malloc_trim(0)
