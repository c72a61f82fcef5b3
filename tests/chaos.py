"""Kills training at random moments, again and again, and compares what it ends with to an undisturbed run.

    make chaos [KILLS=25]          python tests/chaos.py [KILLS] [SEED]

On a small competition of coloured squares, in a temporary folder; with mixup, drop path, averaging, sharpness-aware
steps, growing images and another number of loader processes each time. Weights and predictions have to be the same to
the bit. Every fifth process begins with a Python of its own, so that some kills fall into its start; every fifth kill
waits for a checkpoint that is being written. A run that ends before all kills are made is compared, and another begun.
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

from forked_podium import begin, end_of
from podium.disk import sha256
from podium.training.run_folder import Run
from tiny import write_competition

WORKERS = (0, 1, 2, 8)
HOW = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
ENDS = (75, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
KNOBS = ("--weights", "none", "--image-size", "64", "--batch-size", "4", "--mix", "0.7", "--drop-path", "0.2")
MORE = ("--sam", "0.05", "--grow", "0.5", "--epochs", "50", "--folds", "0", "--device", "cpu")
START, LIFE = 5.0, 4.0  # seconds: what a Python of its own takes to begin, and the longest that training is left alone
Process = BaseProcess | subprocess.Popen[bytes]


def command(root: Path, name: str, workers: int) -> list[str]:
    words = ["train", "-c", "tiny", "--model", "test_resnet", "--name", name, "--workers", str(workers)]
    return ["--root", str(root), *words, *KNOBS, *MORE]


def own_python(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as said:
        return subprocess.Popen([sys.executable, "-m", "podium", *words], stdout=said, stderr=said)


def status_after(process: Process, seconds: float) -> int | None:
    """How the process has ended by then; None where it lives on."""
    if isinstance(process, BaseProcess):
        process.join(seconds)
        return process.exitcode
    with suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None


def half_written(run: Run, process: Process) -> bool:
    return any(run.fold(0).glob(f".checkpoint*.{process.pid}.tmp"))


def wait_for_a_save(run: Run, process: Process) -> None:
    until = time.monotonic() + LIFE
    while not half_written(run, process) and time.monotonic() < until and status_after(process, 0) is None:
        pass  # a save is a matter of milliseconds


def live(run: Run, root: Path, log: Path, draws: random.Random) -> tuple[int | None, str]:
    """How a process ended that trains the run, and what was done to it: nothing, if it ended by itself."""
    workers, how, own, aimed = draws.choice(WORKERS), draws.choice(HOW), draws.random() < 0.2, draws.random() < 0.2
    words = command(root, run.name, workers)
    process: Process = own_python(words, log) if own else begin(words, log)
    seconds = draws.uniform(0.1, LIFE + own * START)
    status = status_after(process, seconds)
    if status is None and aimed:
        wait_for_a_save(run, process)
        status = status_after(process, 0)
    if status is not None:
        return status, ""
    assert process.pid is not None
    os.kill(process.pid, how)
    status = status_after(process, 120)
    where = "amid a save" if half_written(run, process) else "in a Python of its own" if own else "amid training"
    return status, f"{how.name} after {seconds:.1f} s with {workers} workers, {where}, exit {status}"


def same(one: Run, other: Run) -> bool:
    weights = [sha256(run.fold(0) / "model.safetensors") for run in (one, other)]
    answers = [run.out_of_fold(0).probs.tobytes() for run in (one, other)]
    return weights[0] == weights[1] and answers[0] == answers[1]


def main(kills: int = 25, seed: int = 0) -> int:
    draws, done = random.Random(seed), 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root, log = Path(folder), Path(folder) / "log"
        runs = root / "runs" / "tiny"
        write_competition(root)
        began = time.monotonic()
        for words in (["--root", folder, "folds", "-c", "tiny", "--k", "2"], command(root, "undisturbed", 0)):
            if own_python(words, log).wait():
                print(log.read_text())
                return 1
        print(f"undisturbed: {time.monotonic() - began:.0f} s", flush=True)
        for nth in count(1):
            run = Run(runs / f"killed{nth}")
            while done < kills and not run.finished():
                status, what = live(run, root, log, draws)
                done += bool(what)
                print(f"{done}: {what or 'it ended by itself'}", flush=True)
                if status not in (0, *ENDS):
                    print(log.read_text()[-3000:])
                    return 1
            if end_of(begin(command(root, run.name, 0), log)) or not same(run, Run(runs / "undisturbed")):
                print(log.read_text()[-3000:])
                print(f"after {done} kills weights and predictions of run {nth} are NOT the same")
                return 1
            if done >= kills:
                break
        print(f"after {done} kills weights and predictions of {nth} runs are the same to the bit")
        return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
