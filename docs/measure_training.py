"""What a whole run spends besides training and validation, and what it holds in memory from epoch to epoch.

    python docs/measure_training.py ROOT [any flag of podium train]

Runs `podium train` in ROOT, a folder whose competition is downloaded and folded, under the name `measured`, and reads
the run's metrics.jsonl. Delete runs/*/measured before the next.
"""

import subprocess
import sys
import time
from pathlib import Path

from podium.training.run_folder import Run


def main(root: Path, *flags: str) -> None:
    began = time.monotonic()
    words = [sys.executable, "-m", "podium", "--root", str(root), "train", "--name", "measured", *flags]
    subprocess.run(words, check=True)
    took = time.monotonic() - began
    (path,) = root.glob("runs/*/measured")
    run = Run(path)
    lines = [run.history(fold) for fold in run.finished()]
    spent = sum(line["seconds"] + line["validation_seconds"] for fold in lines for line in fold)
    print(f"{took:.0f} s in all, {100 * (1 - spent / took):.1f} % of them neither training nor validation")
    for fold, history in zip(run.finished(), lines, strict=True):
        print(f"fold {fold}, MB after each epoch:", *(line["memory_mb"] for line in history))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
