"""Kills training at random moments, again and again, and compares what it ends with to an undisturbed run.

    make chaos [KILLS=25]          python tests/chaos.py [KILLS] [SEED]

On a small competition of coloured squares, in a temporary folder; with mixup, drop path, averaging, growing images
and another number of loader processes each time. Weights and predictions have to be the same to the bit.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from subprocess import DEVNULL

from conftest import write_competition
from podium.disk import sha256
from podium.runs import Run

WORKERS = (0, 1, 2, 8)
KNOBS = ("--weights", "none", "--image-size", "64", "--batch-size", "8", "--mix", "0.7", "--drop-path", "0.2")
MORE = ("--grow", "0.5", "--folds", "0", "--device", "cpu")


def command(root: Path, name: str, workers: int, epochs: int) -> list[str]:
    words = ["train", "-c", "tiny", "--model", "test_resnet", "--name", name, "--workers", str(workers)]
    return [sys.executable, "-m", "podium", "--root", str(root), *words, "--epochs", str(epochs), *KNOBS, *MORE]


def quietly(words: list[str]) -> None:
    subprocess.run(words, check=True, stdout=DEVNULL, stderr=DEVNULL)


def main(kills: int = 25, seed: int = 0) -> int:
    draws = random.Random(seed)
    epochs = 60 * kills  # long enough for all kills to come in time
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_competition(root)
        quietly([sys.executable, "-m", "podium", "--root", folder, "folds", "-c", "tiny", "--k", "2"])
        began = time.monotonic()
        quietly(command(root, "undisturbed", 0, epochs))
        took = time.monotonic() - began
        print(f"undisturbed: {took:.0f} s", flush=True)
        done = 0
        while done < kills:
            workers = draws.choice(WORKERS)
            process = subprocess.Popen(command(root, "killed", workers, epochs), stdout=DEVNULL, stderr=DEVNULL)
            try:
                status = process.wait(draws.uniform(0, 6 + 2 * took / kills))
            except subprocess.TimeoutExpired:
                how = draws.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
                process.send_signal(how)
                status = process.wait(120)
                done += 1
                print(f"{done}: {how.name} with {workers} workers, exit {status}", flush=True)
            if status == 0:
                print(f"it ended after {done} kills", flush=True)
                break
            if status not in (75, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT):
                print(f"it failed with exit {status}", flush=True)
                return 1
        quietly(command(root, "killed", 0, epochs))
        one, other = (Run(root / "runs" / "tiny" / name) for name in ("undisturbed", "killed"))
        same = sha256(one.fold(0) / "model.safetensors") == sha256(other.fold(0) / "model.safetensors")
        same &= one.out_of_fold(0).probs.tobytes() == other.out_of_fold(0).probs.tobytes()
        print(f"after {done} kills weights and predictions are {'the same to the bit' if same else 'NOT the same'}")
        return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
