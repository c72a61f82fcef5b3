"""Measures the time that a run needs beside training and validation, and its memory after each epoch.

    python docs/measure_training.py ROOT [any flag of podium train]

ROOT holds a competition with folds. Runs `podium train` there under the name `measured` and reads its metrics.jsonl.
Delete runs/*/measured before the next measurement.
"""

import subprocess
import sys
import time
from pathlib import Path

from podium.saved_runs.run_folder import Run


def main(root: Path, *flags: str) -> None:
    started = time.monotonic()
    command = [sys.executable, "-m", "podium", "--root", str(root), "train", "--name", "measured", *flags]
    subprocess.run(command, check=True)
    seconds = time.monotonic() - started
    (path,) = root.glob("runs/*/measured")
    run = Run(path)
    histories = [run.history(fold) for fold in run.finished()]
    accounted = sum(record.seconds + record.validation_seconds for history in histories for record in history)
    print(f"{seconds:.0f} s in all, {100 * (1 - accounted / seconds):.1f} % of them neither training nor validation")
    for fold, history in zip(run.finished(), histories, strict=True):
        print(f"fold {fold}, MB after each epoch:", *(record.memory_mb for record in history))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
