"""The process of a cell: the command line of podium with --cell, which a task of Ray or a job of Slurm starts.

It ends with whoever has started it, however that ended: it reads its standard input, which the system then closes.
"""

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from podium import __version__
from podium.basics.errors import STOPPED

IS_CELL, SPENT = "PODIUM_IS_CELL", "PODIUM_SPENT"  # environment variables
LOOK = 1.0  # seconds between two looks at what the cells do
TIME_TO_SAVE, ENDLESS = 100.0, 1e9  # seconds between a signal and the end of a cell; of a cell
NUMBER = re.compile(r"\d+(\.\d+)?")
BEGINS, ERROR = "podium: cell ", "podium: error: "  # how lines of the log begin


class Stopped(Exception):
    """A signal from outside has stopped the cell: it goes on elsewhere, or later."""


@dataclass
class CellCommand:
    """Runs the command of one cell, and returns what went wrong, or nothing. Ray and submitit pickle it."""

    cell: str
    words: Sequence[str]
    log: Path
    spent: float = 0.0  # seconds of the budget, before this start
    folder: str = field(default_factory=os.getcwd)  # which file names in the words are relative to
    version: str = __version__
    started: float = 0.0  # on the clock of time.monotonic()
    process: "subprocess.Popen[bytes] | None" = None

    def run(self) -> str:
        here = socket.gethostname()
        if self.version != __version__:
            return f"{here} has Podium {__version__}, not {self.version}; install one version on all machines"
        command, self.started = [sys.executable, "-m", "podium", *self.words, "--cell", self.cell], time.monotonic()
        environment = {**os.environ, IS_CELL: "1", SPENT: f"{self.spent:.0f}"}
        with self.log.open("ab", buffering=0) as log:
            log.write(f"{BEGINS}{self.cell} on {here}, process {os.getpid()}\n".encode())
            # In a group of its own, Ctrl-C reaches it once only: from here.
            streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": log, "stderr": log, "process_group": 0}
            self.process = subprocess.Popen(command, cwd=self.folder, env=environment, **streams)
            try:
                status = self.process.wait(ENDLESS)  # Ray's cancel interrupts it only with a limit
            finally:
                self.stop()
        if status == STOPPED:
            raise Stopped
        last = (self.said(ERROR) or self.said(""))[-1].removeprefix(ERROR)
        return f"{last} (exit status {status}; {self.log} has all)" if status else ""

    def stop(self) -> None:
        """Ends the process after it has saved."""
        if self.process and self.process.stdin:
            self.process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(TIME_TO_SAVE)

    def said(self, start: str) -> list[str]:
        """Returns the lines of the log that begin so."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(start) and line.strip()]

    def __call__(self) -> str:
        """Runs as a job: submitit calls this."""
        import submitit

        try:
            return self.run()
        except Stopped:
            signal.raise_signal(submitit.JobEnvironment._usr_sig())  # submitit's handler queues the job again
            return "a signal has stopped it, and Slurm has not queued it again"

    def checkpoint(self) -> Any:
        """Stops the process, and returns the job that resumes it: submitit calls this."""
        import submitit

        self.stop()
        spent = self.spent + time.monotonic() - self.started
        return submitit.helpers.DelayedSubmission(replace(self, spent=spent, process=None))


def follow_parent() -> None:
    """Lets the process of a cell end, as after SIGTERM, when the one that has started it is gone."""

    def wait_for_end() -> None:
        os.read(0, 1)  # nothing is written into it
        os.kill(os.getpid(), signal.SIGTERM)

    if os.environ.pop(IS_CELL, ""):  # it is not for the processes that this one starts
        threading.Thread(target=wait_for_end, daemon=True).start()


def job_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns what --job says."""
    pairs = [word.partition("=")[::2] for word in args.job or ()]
    numbers = {name: float(text) if "." in text else int(text) for name, text in pairs if NUMBER.fullmatch(text)}
    return {**dict(pairs), **numbers}
