"""Runs one command several times on this machine, each time as a worker that the others see.

    podium search ... --on here --at-once 4

The processes know nothing of cells: this one takes a cell for each of them, and beats. It passes its signals on to
them, and waits until they have saved. If it is killed, they end, too (lifeline.py).
"""

import itertools
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from podium.basics.errors import STOPPED, PodiumError
from podium_annex.fleet.cell_board import TAKEN, Board, Lease, Rhythm, Step, take
from podium_annex.fleet.lifeline import VARIABLE, lifeline
from podium_annex.fleet.visible_gpus import environment_with, visible_gpus
from podium_annex.fleet.work import run_taken

Process = subprocess.Popen[bytes]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_workers(
    board: Board, prefix: str, rhythm: Rhythm, words: Sequence[str], gpus: Sequence[str | None]
) -> dict[str, Step]:
    """Runs a process for each of `gpus`, one that it may use, or None: any. Returns the last step of each cell."""
    leases = [_take_free(board, prefix, rhythm) for _ in gpus]
    processes = list[Process]()
    with lifeline() as line, _signals_passed_on(processes) as arrived, ThreadPoolExecutor(len(leases)) as threads:
        for gpu in gpus:
            processes.append(_start(words, gpu, line))
            if arrived:  # while it started
                processes[-1].terminate()
        ends = [threads.submit(run_taken, *pair) for pair in zip(leases, map(_waiting_for, processes), strict=True)]
    return {lease.cell: end.result() for lease, end in zip(leases, ends, strict=True)}


def gpus_of_workers(count: int, device: str) -> list[str | None]:
    """Returns for each worker the GPU that it may use: the next one, if there are several and none is named."""
    from podium.models.device import is_any_gpu  # it imports torch

    if not is_any_gpu(device):
        return [None] * count
    names = visible_gpus()
    return [names[number % len(names)] if len(names) > 1 else None for number in range(count)]


def _take_free(board: Board, prefix: str, rhythm: Rhythm) -> Lease:
    """Takes the first cell of this machine that no worker has, and that none may have left without a word."""
    for number in itertools.count(1):
        cell = f"{prefix}{socket.gethostname()}-{number}"
        step = board.last_steps().get(cell, Step())
        lease = None if step.state == TAKEN else take(board, cell, step, rhythm)
        if lease is not None:
            return lease
    raise AssertionError  # the numbers have no end


def _start(words: Sequence[str], gpu: str | None, line: int) -> Process:
    environment = {**environment_with(None if gpu is None else [gpu]), VARIABLE: str(line)}
    command = [sys.executable, "-m", "podium", *words]
    # In a group of its own, Ctrl-C reaches it once only: from here. What it would show at its end, this command shows.
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, process_group=0, pass_fds=(line,))


def _waiting_for(process: Process) -> Callable[[str], None]:
    def wait(_: str) -> None:
        status = process.wait()
        if status == STOPPED:
            raise KeyboardInterrupt
        if status:
            raise PodiumError(f"its process ended with status {status}; the reason is above")

    return wait


@contextmanager
def _signals_passed_on(processes: Sequence[Process]) -> Iterator[list[int]]:
    """Yields the signals that have arrived; those that nohup has switched off stay so."""
    arrived = list[int]()

    def pass_on(number: int, _: object) -> None:
        arrived.append(number)
        for process in processes:
            process.terminate()

    heard = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in heard}
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
