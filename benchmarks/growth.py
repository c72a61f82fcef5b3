"""Measures how time and memory of each stage grow with the number of images.

    python docs/measure_growth.py FOLDER [100000 1000000]
    python docs/measure_growth.py FOLDER --load 5000x100xmirror 20000x5000xmirror

Writes competitions with the given numbers of made-up training images of 32 x 32 pixels, and a quarter as many test
images, into new folders below FOLDER (for a million: about 25 GB in all with what Podium prepares). Then each stage
runs as a command of its own. Prints a table: seconds, and the most memory that the command and its processes held at
once. Memory that several processes share counts for each of them. Files that are mapped into memory do not count,
because the system drops their pages when it needs the memory.

With --load, the competitions are named by images, classes and views, and the stages are those that hold a table of
images and classes: training of two folds for an epoch, submission, comparison and report.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from synthetic_competition import write_competition

STEPS = 100
FEWEST = 65_000  # four fifths of them are 100 batches of 512
SLUG = "growth"
# Without augmentation, so that an epoch of a million images takes minutes.
OPTIONS = (
    *("--model", "test_resnet", "--weights", "none", "--image-size", "32"),
    *("--batch-size", "512", "--epochs", "1", "--level", "none"),
)


def main(folder: Path, counts: list[int]) -> None:
    for count in counts:
        if count < FEWEST:
            sys.exit(f"{count} images are too few: {STEPS} steps need at least {FEWEST}")
        if (folder / f"{count}").exists():
            sys.exit(f"{folder / f'{count}'} exists already; name another folder or delete it")
    columns: list[dict[str, tuple[float, float]]] = []
    for count in counts:
        root = folder / f"{count}"
        write_competition(root, SLUG, count, count // 4, classes=100, size=(32, 32))
        columns.append({name: measure(words) for name, words in stages(root).items()})
    print(f"| stage | {' | '.join(f'{count:,} images' for count in counts)} | times as long |")
    print("| --- " * (len(counts) + 2) + "|")
    for name in columns[0]:
        cells = [f"{column[name][0]:.0f} s, {column[name][1]:.1f} GB" for column in columns]
        print(f"| {name} | {' | '.join(cells)} | {columns[-1][name][0] / columns[0][name][0]:.1f} |")


def measure_loads(folder: Path, loads: list[str]) -> None:
    """Prints a row for each competition: the seconds and the memory of each command."""
    names = ("train", "submit", "compare", "report")
    print(f"| images | classes | views | {' | '.join(f'`podium {name}`' for name in names)} |")
    print("| --- " * (len(names) + 3) + "|")
    for load in loads:
        images, classes, views = load.split("x")
        root = folder / load
        write_competition(root, SLUG, int(images), int(images) // 4, int(classes), size=(32, 32))
        options = ["-c", SLUG, "--runs", "run"]
        podium = [sys.executable, "-m", "podium", "--root", str(root)]
        measure([*podium, "folds", "-c", SLUG, "--k", "2"])
        train = ["-c", SLUG, "--name", "run", "--views", views, *OPTIONS]
        given = {"train": train, "submit": [*options, "--anyway"]}  # a model that has learned little is no mistake here
        words = {name: [*podium, name, *given.get(name, options)] for name in names}
        cells = ["{:.0f} s, {:.1f} GB".format(*measure(words[name])) for name in names]
        print(f"| {int(images):,} | {int(classes):,} | {views} | {' | '.join(cells)} |", flush=True)


def stages(root: Path) -> dict[str, list[str]]:
    """Returns the command of each stage."""
    podium = [sys.executable, "-m", "podium", "--root", str(root)]
    train = ["--root", str(root), "train", "-c", SLUG, "--folds", "0", "--name", "run", *OPTIONS]
    return {
        "read and check the tables (`podium data`)": [*podium, "data", "-c", SLUG],
        "check every image, find duplicates (`podium audit`)": [*podium, "audit", "-c", SLUG],
        "split into folds (`podium folds`)": [*podium, "folds", "-c", SLUG],
        f"the first {STEPS} steps (`podium train`)": [sys.executable, __file__, "first-steps", *train],
        "the rest of the epoch, and validation": [sys.executable, "-m", "podium", *train],
        "predict, check and write the submission (`podium submit`)": [*podium, "submit", "-c", SLUG, "--runs", "run"],
    }


def first_steps(words: list[str]) -> None:
    """Runs podium, and interrupts it after some steps as Ctrl-C does."""
    from podium.__main__ import main
    from podium.training.learner import Learner

    step = Learner.step

    def counted(learner: Learner, *batch):  # type: ignore[no-untyped-def]
        loss = step(learner, *batch)
        if learner.progress.step == STEPS:
            signal.raise_signal(signal.SIGINT)
        return loss

    Learner.step = counted  # type: ignore[method-assign]
    status = main(words)
    assert status == 75, status


# --- measuring ---------------------------------------------------------------------------------------


def measure(words: list[str]) -> tuple[float, float]:
    """Returns the seconds of a command, and the gigabytes that it and its processes held at most."""
    print("$", *words, file=sys.stderr)
    started = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    most = 0.0
    is_done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not is_done.wait(0.2):
            most = max(most, memory_of_tree(process.pid))

    watching = threading.Thread(target=watch)
    watching.start()
    status = process.wait()
    seconds = time.monotonic() - started
    is_done.set()
    watching.join()
    if status:
        sys.exit(f"status {status}: {' '.join(words)}")
    return seconds, most


def memory_of_tree(pid: int) -> float:
    """Returns the gigabytes of memory that a process and its children hold, without mapped files."""
    kilobytes, waiting = 0, [pid]
    while waiting:
        current = waiting.pop()
        with suppress(OSError):  # it has just ended
            status = Path(f"/proc/{current}/status").read_text()
            values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            kilobytes += sum(int(values[name].split()[0]) for name in ("RssAnon", "RssShmem") if name in values)
            for task in os.listdir(f"/proc/{current}/task"):
                waiting += map(int, Path(f"/proc/{current}/task/{task}/children").read_text().split())
    return kilobytes / 1e6


if __name__ == "__main__":
    if sys.argv[1:2] == ["first-steps"]:
        first_steps(sys.argv[2:])
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("folder", type=Path)
        parser.add_argument("--load", nargs="+", metavar="IMAGESxCLASSESxVIEWS", default=[])
        parser.add_argument("counts", type=int, nargs="*", default=[100_000, 1_000_000], help="default: %(default)s")
        given = parser.parse_args()
        if given.load:
            measure_loads(given.folder, given.load)
        else:
            main(given.folder, given.counts)
