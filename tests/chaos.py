"""Kills training at random moments, again and again, and compares the result with that of an undisturbed run.

    make chaos [KILLS=25]          python tests/chaos.py [KILLS] [SEED]

It trains on a small competition of coloured squares, in a temporary folder, with mixup, drop path, averaging,
sharpness-aware steps, growing images and another number of loader processes each time. Weights and predictions must be
the same to the bit. Every fifth process starts a Python of its own, so that some kills fall into its start. Every fifth
kill waits until a checkpoint is being written. A run that ends before all kills are made is compared, and a new run
starts.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path

from forked_podium import exit_status, start_podium
from podium.saved_runs.run_folder import Run
from tiny import assert_same_fold, run_of, write_competition

WORKERS = (0, 1, 2, 8)
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
EXPECTED_STATUS = (0, 75, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
OPTIONS = (
    *("--weights", "none", "--image-size", "64", "--batch-size", "4", "--mix", "0.7", "--drop-path", "0.2"),
    *("--sam", "0.05", "--grow", "0.5", "--epochs", "50", "--folds", "0", "--device", "cpu"),
)
PYTHON_START = 5.0  # seconds that a Python of its own takes to start
LONGEST_LIFE = 4.0  # seconds that training is left alone at most
Process = BaseProcess | subprocess.Popen[bytes]


def train_command(root: Path, name: str, workers: int) -> list[str]:
    words = ["train", "-c", "tiny", "--model", "test_resnet", "--name", name, "--workers", str(workers)]
    return ["--root", str(root), *words, *OPTIONS]


def start_python(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen([sys.executable, "-m", "podium", *words], stdout=output, stderr=output)


def status_after(process: Process, seconds: float) -> int | None:
    """Returns how the process has ended by then; None if it still runs."""
    if isinstance(process, BaseProcess):
        process.join(seconds)
        return process.exitcode
    with suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None


def is_writing(run: Run, process: Process) -> bool:
    return any(run.fold_folder(0).glob(f".checkpoint*.{process.pid}.tmp"))


def wait_for_writing(run: Run, process: Process) -> None:
    until = time.monotonic() + LONGEST_LIFE
    while not is_writing(run, process) and time.monotonic() < until and status_after(process, 0) is None:
        pass  # a checkpoint is written within milliseconds


def train_and_kill(run: Run, root: Path, log: Path, rng: random.Random) -> tuple[int | None, str]:
    """Trains the run until a signal; returns the exit status and what was done, nothing if it ended by itself."""
    workers, number = rng.choice(WORKERS), rng.choice(SIGNALS)
    own_python, amid_writing = rng.random() < 0.2, rng.random() < 0.2
    words = train_command(root, run.name, workers)
    process: Process = start_python(words, log) if own_python else start_podium(words, log)
    seconds = rng.uniform(0.1, LONGEST_LIFE + own_python * PYTHON_START)
    status = status_after(process, seconds)
    if status is None and amid_writing:
        wait_for_writing(run, process)
        status = status_after(process, 0)
    if status is not None:
        return status, ""
    assert process.pid is not None
    os.kill(process.pid, number)
    status = status_after(process, 120)
    moment = "amid a checkpoint" if is_writing(run, process) else "amid training"
    if own_python:
        moment += ", in a Python of its own"
    return status, f"{number.name} after {seconds:.1f} s with {workers} workers, {moment}, exit {status}"


def is_same(first: Run, second: Run) -> bool:
    with suppress(AssertionError):
        assert_same_fold(first, second)
        return True
    return False


def train_undisturbed(root: Path, log: Path) -> bool:
    started = time.monotonic()
    folds = ["--root", str(root), "folds", "-c", "tiny", "--k", "2"]
    for words in (folds, train_command(root, "undisturbed", workers=0)):
        if start_python(words, log).wait():
            return False
    print(f"undisturbed: {time.monotonic() - started:.0f} s", flush=True)
    return True


def main(kills: int = 25, seed: int = 0) -> int:
    rng, done = random.Random(seed), 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root, log = Path(folder), Path(folder) / "log"
        write_competition(root)
        if not train_undisturbed(root, log):
            print(log.read_text())
            return 1
        for number in count(1):
            run = run_of(root, f"killed{number}")
            while done < kills and not run.finished():
                status, kill = train_and_kill(run, root, log, rng)
                done += bool(kill)
                print(f"{done}: {kill or 'it ended by itself'}", flush=True)
                if status not in EXPECTED_STATUS:
                    print(log.read_text()[-3000:])
                    return 1
            status = exit_status(start_podium(train_command(root, run.name, workers=0), log))
            if status or not is_same(run, run_of(root, "undisturbed")):
                print(log.read_text()[-3000:])
                print(f"after {done} kills weights and predictions of run {number} are NOT the same")
                return 1
            if done >= kills:
                break
        print(f"after {done} kills weights and predictions of {number} runs are the same to the bit")
        return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
