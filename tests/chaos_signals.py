"""Sends SIGTERM or SIGINT at random moments of commands, and counts those that do not end soon with status 75.

    python tests/chaos_signals.py [TRIES of train] [TRIES of submit, and of folds] [SEED]

It works on a small competition of coloured squares, in a temporary folder. A command must end within three seconds, and
the moments are those of its whole life, most of which are imports. Before Python runs its first line, in its first
hundredth of a second, the system ends it with the status of the signal; these are counted apart.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from shutil import rmtree

from tiny import FAST, write_competition

LONGEST = 3.0  # seconds from the signal to the end
PYTHON_START = 0.1  # seconds until Python surely runs its first line, on a busy machine
OWN = {**os.environ, "OMP_NUM_THREADS": "1"}
TRAIN = ("train", *FAST, "--model", "test_vit", "--device", "cpu", "--folds", "0")
COMMANDS = {  # and the seconds in which the signal comes; none: the life of the command
    "train": ((*TRAIN, "--name", "endless", "--epochs", "100000"), 4.0),
    "submit": (("submit", "-c", "tiny", "--anyway", "--runs", "trained", "--name", "sent"), None),
    "folds": (("folds", "-c", "tiny", "--k", "2", "--force"), None),
}


def start(root: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "podium", "--root", str(root), *words]
    return subprocess.Popen(command, env=OWN, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def clean(root: Path) -> None:
    rmtree(root / "runs" / "tiny" / "endless", ignore_errors=True)
    rmtree(root / "submissions", ignore_errors=True)
    for path in root.glob("runs/tiny/*/*/test.npz"):
        path.unlink()


def outcome_of(root: Path, words: tuple[str, ...], wait: float, number: signal.Signals) -> str:
    """Starts the command, signals it after so many seconds, and says how it ended."""
    clean(root)
    process = start(root, *words)
    time.sleep(wait)
    process.send_signal(number)
    signalled = time.monotonic()
    try:
        error = process.communicate(timeout=20)[1].decode()
    except subprocess.TimeoutExpired:
        process.kill()
        return f"LOST: {process.communicate()[1].decode()[-300:]}"
    seconds = time.monotonic() - signalled
    if process.returncode == -number and wait < PYTHON_START:
        return "ended before Python's first line"
    if process.returncode not in (0, 75) or "Traceback" in error:
        return f"STATUS {process.returncode}: {error[-300:]}"
    if process.returncode == 75 and seconds > LONGEST:
        return f"SLOW, {seconds:.1f} s: {error[-300:]}"
    return "ended with 75" if process.returncode else "was done"


def main(tries_of_train: int = 200, tries_of_others: int = 50, seed: int = 0) -> int:
    rng, failures = random.Random(seed), 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        write_competition(root)
        for words in (COMMANDS["folds"][0], (*TRAIN, "--folds", "0,1", "--name", "trained", "--epochs", "1")):
            if start(root, *words).wait():
                return 1
        for name, (words, longest) in COMMANDS.items():
            started = time.monotonic()
            if longest is None and start(root, *words).wait():
                return 1
            longest = longest or time.monotonic() - started
            outcomes = Counter[str]()
            for _ in range(tries_of_train if name == "train" else tries_of_others):
                wait, number = rng.uniform(0, longest), rng.choice((signal.SIGTERM, signal.SIGTERM, signal.SIGINT))
                outcome = outcome_of(root, words, wait, number)
                outcomes[outcome.partition(":")[0].partition(",")[0]] += 1
                if outcome[:2].isupper():
                    failures += 1
                    print(f"{name}: {number.name} after {wait:.2f} s: {outcome}", flush=True)
            print(f"{name}: {dict(outcomes)}", flush=True)
    print(f"{failures} failures")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
