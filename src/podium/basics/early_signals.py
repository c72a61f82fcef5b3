"""Ends the command at SIGTERM and Ctrl-C while it starts: from Python's first line until end_soon.py takes over.

`podium` and `python -m podium` import this first. Nothing is computed or half written yet, so the process ends at once,
with the status of a stopped command. Who imports podium as a library keeps his own handlers.
"""

import os
import signal
import sys
from itertools import pairwise
from pathlib import Path
from types import FrameType

from podium.basics.errors import STOPPED

DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)


def end_at_once(number: int, frame: FrameType | None) -> None:
    if os.environ.get("RANK", "0") == "0":  # of several processes, the first speaks
        os.write(2, b"podium: stopped; run the same command again to resume\n")
    os._exit(STOPPED)


def is_command(words: list[str]) -> bool:
    """Returns whether this process runs the command line; `words` are those of the call, with Python's own."""
    return ("-m", "podium") in pairwise(words) or any(Path(word).name == "podium" for word in words[:2])


if is_command(sys.orig_argv):
    for each in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(each) in DEFAULTS:  # a shell starts background jobs with SIGINT ignored
            signal.signal(each, end_at_once)
