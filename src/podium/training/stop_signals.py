"""Ctrl-C and SIGTERM while a model trains: they ask to stop after the step; a second Ctrl-C stops at once."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from podium.basics import terminal
from podium.basics.end_soon import Interrupt, is_importing
from podium.basics.torchrun import started_by_torchrun


class StopSignals:
    def __init__(self) -> None:
        self.stop_requested = False
        self.earlier: dict[signal.Signals, Any] = {}  # handlers; none outside the main thread

    def on_signal(self, number: int, frame: object) -> None:
        if self.stop_requested:
            if started_by_torchrun():  # which repeats the signal to all processes when one has ended
                return
            raise KeyboardInterrupt
        self.stop_requested = True
        if not terminal.quiet:
            hint = b"" if started_by_torchrun() else b" (press Ctrl-C again to stop now)"
            os.write(2, b"\npodium: stopping after this step" + hint + b"\n")  # print is not safe in a handler

    @contextmanager
    def interrupting(self, save: Callable[[], None]) -> Iterator[None]:
        """Lets a signal interrupt the block, which can be done again, with a KeyboardInterrupt.

        If the block does not hear it, because it computes in a library or catches everything, the thread in end_soon.py
        calls `save` and ends the process.
        """
        interrupt = Interrupt(save)
        if self.earlier:
            signal.signal(signal.SIGTERM, interrupt)
            signal.signal(signal.SIGINT, self._on_interrupt)
        try:
            if not self.stop_requested:
                yield
            if self.stop_requested or interrupt.was_raised:  # caught in the block, which may have computed anything
                raise KeyboardInterrupt
        finally:
            with interrupt.leaving:
                for number in self.earlier:
                    signal.signal(number, self.on_signal)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.stop_requested = True
        if not is_importing(frame):
            raise KeyboardInterrupt


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    signals = StopSignals()
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield signals
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    signals.earlier = {number: signal.signal(number, signals.on_signal) for number in numbers}
    try:
        if any(isinstance(handler, Interrupt) and handler.was_raised for handler in signals.earlier.values()):
            raise KeyboardInterrupt  # it came during an import, where nothing can be raised, or a library swallowed it
        yield signals
        if signals.stop_requested:  # it came after the last step had asked for it
            raise KeyboardInterrupt
    finally:
        for number, handler in signals.earlier.items():
            signal.signal(number, handler)
