"""Processes that run podium, alone or as a group that trains together, and that tests may kill.

Each starts in a moment: it is forked from a server process that has imported all of podium and computed nothing.
"""

import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from podium.basics import disk

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["podium.training.train", "forked_podium"])


def start_podium(
    words: Sequence[object],
    log: Path,
    before: Callable[[], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> BaseProcess:
    """Starts a process that calls `before` and then podium with these words; it appends its output to `log`."""
    process = SERVER.Process(target=_run, args=([str(word) for word in words], log, before, dict(environment or {})))
    process.start()
    return process


def die_at_file(count: int) -> None:
    """Kills this process when it is about to rename its file of this number: what is written is not yet in place."""
    rename, done = disk.rename_durably, list[Path]()

    def rename_or_die(old: Path, new: Path) -> None:
        done.append(new)
        if len(done) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(old, new)

    disk.rename_durably = rename_or_die


def exit_status(process: BaseProcess) -> int:
    """Waits for the end of a process; returns its exit status, or the number of its signal as a negative number."""
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def run_group(size: int, words: Sequence[object], log: Path) -> list[int]:
    """Runs podium in a group of processes that train together, as torchrun would; returns their exit statuses.

    When one fails, the others are ended, as torchrun does.
    """
    processes = [start_podium(words, log, environment=environment) for environment in group_environments(size)]
    until = time.monotonic() + 120
    while any(process.is_alive() for process in processes) and time.monotonic() < until:
        wait([process.sentinel for process in processes if process.is_alive()], 1)
        if any(process.exitcode for process in processes):
            for process in processes:
                process.terminate()
    return [exit_status(process) for process in processes]


def group_environments(size: int) -> list[dict[str, str]]:
    """Returns what torchrun gives to each process of a group."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    group = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        {key: str(value) for key, value in {**group, "RANK": rank, "LOCAL_RANK": rank}.items()} for rank in range(size)
    ]


def redirect_output(file_number: int) -> None:
    """Redirects the output of this process and of those that it will start."""
    for name, number in (("stdout", 1), ("stderr", 2)):
        os.dup2(file_number, number)
        setattr(sys, name, open(number, "w", buffering=1, closefd=False))  # noqa: SIM115


def _run(words: list[str], log: Path, before: Callable[[], None] | None, environment: dict[str, str]) -> None:
    from podium.__main__ import main

    multiprocessing.set_start_method(None, force=True)  # loader processes start as they do elsewhere
    os.environ.update(environment)
    with log.open("ab") as output:
        redirect_output(output.fileno())
    if before:
        before()
    sys.exit(main(words))
