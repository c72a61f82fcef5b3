"""Processes that run podium and may be killed. Each begins in a moment: it is forked from one that has imported all of
it and computed nothing yet."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["podium.training.train", "forked_podium"])


def begin(words: Sequence[object], log: Path, first: Callable[[], None] | None = None) -> BaseProcess:
    """A process that calls `first` and then podium with these words; what it says goes to the end of `log`."""
    process = SERVER.Process(target=_live, args=([str(word) for word in words], log, first))
    process.start()
    return process


def end_of(process: BaseProcess) -> int:
    """How the process ended: its exit status, or the signal's number below zero."""
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def _live(words: list[str], log: Path, first: Callable[[], None] | None) -> None:
    from podium.__main__ import main

    multiprocessing.set_start_method(None, force=True)  # the loader's processes are to begin as they do elsewhere
    with log.open("ab") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    if first:
        first()
    sys.exit(main(words))
