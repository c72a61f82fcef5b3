"""A worker process ends, as after SIGTERM, when the process that started it is gone, however that ended.

Both hold an end of a pipe. The system closes that of a process that is killed.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE = "PODIUM_LIFELINE"  # in the environment: the number of the pipe's end for reading


@contextmanager
def lifeline() -> Iterator[int]:
    """Yields the end for the workers; they end with the block at the latest."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def follow_parent() -> bool:
    """Returns whether another podium has started this process as a worker, and lets it end with that one."""
    number = os.environ.pop(VARIABLE, "")  # it is not for the processes that this one starts
    if number:
        threading.Thread(target=_wait_for_end, args=(int(number),), daemon=True).start()
    return bool(number)


def _wait_for_end(reading: int) -> None:
    os.read(reading, 1)  # nothing is written into it
    os.kill(os.getpid(), signal.SIGTERM)
