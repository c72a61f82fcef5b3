"""Breaks the silence of a command: says what it is doing, and lets the bars show that time goes on."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from podium.basics import terminal

PATIENCE = 1.0  # seconds of silence that somebody at a terminal waits
IN_A_LOG = 10.0  # the same where nobody waits
GROWTH = 4.0  # each line waits so many times as long as the one before
EVERY = 0.25  # seconds


@contextmanager
def watched() -> Iterator[None]:
    """Speaks beside a command that says nothing."""
    over = threading.Event()
    thread = threading.Thread(target=_watch, args=(over,), daemon=True, name="watch")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _watch(over: threading.Event) -> None:
    patience = PATIENCE if sys.stderr.isatty() else max(PATIENCE, IN_A_LOG)
    heard, silent_since, wait = terminal.lines_said, time.monotonic(), patience
    told: set[str] = set()
    while not over.wait(EVERY):
        if terminal.lines_said > heard or _bars_are_seen():
            heard, silent_since, wait = terminal.lines_said, time.monotonic(), patience
        silence = time.monotonic() - silent_since
        if silence >= wait:
            line = f"podium: {terminal.doing}"
            is_new = line not in (terminal.last_line, *told)
            told.add(line)
            waits = wait == patience and not is_new  # it was said before: only its seconds would be news
            if not waits:
                terminal.say(line if is_new else f"{line}, {silence:.0f} s")
            heard = terminal.lines_said  # this line is no news
            wait *= 2 if waits else GROWTH


def _bars_are_seen() -> bool:
    """Moves the clocks of the bars in a terminal, which stand still while one of their items takes long."""
    tqdm = getattr(sys.modules.get("tqdm"), "tqdm", None)
    with suppress(RuntimeError, AttributeError, ValueError):  # a bar may begin or end at this moment
        bars = [bar for bar in list(getattr(tqdm, "_instances", ())) if not bar.disable]
        for bar in bars:
            bar.refresh()
        return bool(bars)
    return True
