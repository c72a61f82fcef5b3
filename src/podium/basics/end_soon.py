"""Ends a command soon after SIGTERM, whatever it is doing.

The signal raises KeyboardInterrupt, as Ctrl-C does, so that nothing is left half written. But Python does this between
two of its own instructions only: a long computation in a library comes first, and an open pool waits for its tasks. So
a thread ends the process if it is still there after PATIENCE seconds. A second Ctrl-C ends it in the same way. While a
module is imported, nothing is raised: torch's C++ code, which imports modules, knows no exception there and aborts.
Training has handlers of its own (training/stop_signals.py), which finish the step and save; the thread leaves them be,
and they ask when they come whether a signal was there before them. Until the handlers here are in place, those of
early_signals.py are.
"""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from podium.basics import disk, terminal
from podium.basics.early_signals import end_at_once
from podium.basics.errors import STOPPED

PATIENCE = 1.0  # seconds


def stop_line(reason: str = "") -> str:
    return f"podium: {reason or 'stopped'}; run the same command again to resume"


@contextmanager
def end_soon_after_sigterm() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield
        return
    numbers, wakeup = os.pipe()  # Python's handler in C writes the number of each signal into it, at once
    os.set_blocking(wakeup, False)
    has_ended = threading.Event()
    handlers = {signal.SIGTERM: signal.signal(signal.SIGTERM, Interrupt())}
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, end_at_once):
        handlers[signal.SIGINT] = signal.signal(signal.SIGINT, _on_ctrl_c)
    earlier_wakeup = signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(numbers, has_ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        has_ended.set()
        signal.set_wakeup_fd(earlier_wakeup)
        os.close(wakeup)  # the watcher reads the end, and returns
        watcher.join()
        os.close(numbers)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        atexit.unregister(_ignore_signals)
        atexit.register(_ignore_signals)  # the last one registered runs first


class Terminated(KeyboardInterrupt):
    """Ends like Ctrl-C. After a plain KeyboardInterrupt in code that was a text, Python kills itself at its end."""


class Interrupt:
    """A handler of SIGTERM that raises once: a second exception would interrupt the end.

    Where the exception is not heard, the thread calls `last_act` before it ends the process.
    """

    def __init__(self, last_act: Callable[[], None] = lambda: None) -> None:
        self.last_act, self.was_raised = last_act, False
        self.leaving = threading.Lock()  # whoever takes the handler away holds it: the last act is either's

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if not self.was_raised:
            self.was_raised = True
            if not is_importing(frame):
                raise Terminated


def _on_ctrl_c(number: int, frame: FrameType | None) -> None:
    if not is_importing(frame):
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGTERM)


def is_importing(frame: FrameType | None) -> bool:
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _watch(numbers: int, has_ended: threading.Event) -> None:
    interrupts = 0
    while received := os.read(numbers, 64):
        interrupts += received.count(signal.SIGINT)
        handler = signal.getsignal(signal.SIGTERM)
        is_meant = signal.SIGTERM in received or (signal.SIGINT in received and interrupts > 1)
        if is_meant and isinstance(handler, Interrupt) and not has_ended.wait(PATIENCE):
            _end_unless_left(handler)


def _end_unless_left(handler: Interrupt) -> None:
    with handler.leaving:
        is_installed = signal.getsignal(signal.SIGTERM) is handler
        if is_installed:
            with suppress(Exception):  # such as a full disk: what was saved before it is right, too
                handler.last_act()
            _end_now()


def _end_now() -> None:
    if not terminal.quiet:
        os.write(2, f"{stop_line()}\n".encode())  # print would wait for a lock that the main thread may hold
    exit_stopped()


def exit_stopped() -> NoReturn:
    """Ends this process and its pools, without a half-written file and without waiting for anything."""
    disk.delete_unfinished()
    multiprocessing = sys.modules.get("multiprocessing")
    for child in multiprocessing.active_children() if multiprocessing else ():
        child.kill()
    os._exit(STOPPED)


def _ignore_signals() -> None:
    """All is done, and libraries take down what they hold: a signal would only spoil the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _forget_in_child() -> None:
    """A signal to a forked process is no signal to its parent, whose watcher reads the pipe."""
    signal.set_wakeup_fd(-1)


os.register_at_fork(after_in_child=_forget_in_child)
