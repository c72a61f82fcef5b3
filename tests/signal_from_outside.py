"""Ends pytest at a SIGTERM from outside, also while a command runs in it, which takes the signal for its own."""

import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from podium.basics.end_soon import Interrupt
from podium.training.stop_signals import StopSignals

_heard, _sent = list[int](), list[int]()


def _count_what_is_heard(kind: type, name: str) -> None:
    handler: Callable[[Any, int, FrameType | None], None] = getattr(kind, name)

    def counted(self: Any, number: int, frame: FrameType | None) -> None:
        _heard.append(number)
        handler(self, number, frame)

    setattr(kind, name, counted)


def _count_what_tests_send() -> None:
    raise_signal, kill = signal.raise_signal, os.kill

    def counted_raise(number: int) -> None:
        _sent.append(number)
        raise_signal(number)

    def counted_kill(process: int, number: int) -> None:
        if process == os.getpid():
            _sent.append(number)
        kill(process, number)

    signal.raise_signal, os.kill = counted_raise, counted_kill


_count_what_is_heard(Interrupt, "__call__")
_count_what_is_heard(StopSignals, "on_signal")
_count_what_tests_send()


@pytest.fixture(autouse=True)
def _end_at_sigterm() -> Iterator[None]:
    _heard.clear()
    _sent.clear()
    yield
    if _heard.count(signal.SIGTERM) > _sent.count(signal.SIGTERM):
        pytest.exit("stopped by SIGTERM", returncode=128 + signal.SIGTERM)
