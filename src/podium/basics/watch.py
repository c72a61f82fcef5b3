"""Breaks the silence of a command: says what it is doing, and lets the bars show that time goes on."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from podium.basics import terminal

PATIENCE = 1.0  # seconds of silence
GROWTH = 4.0  # each line waits so many times as long as the one before
EVERY = 0.25  # seconds


@contextmanager
def watched() -> Iterator[None]:
    """Speaks beside a command that says nothing."""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(over,), daemon=True, name="watch")
    terminal.heard_at = time.monotonic()
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(over: threading.Event) -> None:
    silent_since, wait = terminal.heard_at, PATIENCE
    while not over.wait(EVERY):
        if terminal.heard_at > silent_since:
            silent_since, wait = terminal.heard_at, PATIENCE
        if _bars_are_seen():
            silent_since, wait = time.monotonic(), PATIENCE
        silence = time.monotonic() - silent_since
        if silence >= wait:
            terminal.say(f"podium: {terminal.doing}{f', {silence:.0f} s' if wait > PATIENCE else ''}")
            wait *= GROWTH if wait > PATIENCE else 2 * GROWTH
            terminal.heard_at = silent_since  # this line is no news


def _bars_are_seen() -> bool:
    """Moves the clocks of the bars in a terminal, which stand still while one of their items takes long."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    bars = [bar for bar in list(getattr(tqdm, "_instances", ())) if not bar.disable]
    for bar in bars:
        bar.refresh()
    return bool(bars)
