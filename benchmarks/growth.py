"""Measures how time and memory of commands grow with the number of images and of classes.

    python -m benchmarks.growth images FOLDER [--counts 100000 1000000]              each stage
    python -m benchmarks.growth classes FOLDER 5000x100xmirror 20000x5000xmirror     images, classes and views
    python -m benchmarks.growth cells FOLDER                                         cells of Ray, and the plain command
    python -m benchmarks.growth run ROOT SLUG [any flag of podium train]             what a run does beside training

Prints seconds, and the most memory that a command and its processes held at once. Memory that several processes share
counts for each of them; files that are mapped into memory do not count, because the system drops their pages when it
needs the memory. "A million images" (they take 25 GB), "Thousands of classes", "A whole run", "Cells on several
machines".
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchmarks.harness import Project, call, head, row
from benchmarks.sets import write_photographs
from podium.basics.disk import sha256
from podium.competition.handwritten_digits import write_digits

# Without augmentation, so that an epoch of a million images takes minutes.
OPTIONS = (
    *("--model", "test_resnet", "--weights", "none", "--image-size", "32", "--name", "run"),
    *("--batch-size", "512", "--epochs", "1", "--level", "none"),
)
OF_RUN = ("--runs", "run")
DIGITS = 120  # that are trained on
OF_CELLS = (
    *("--model", "test_vit", "test_resnet", "test_convnext", "--seeds", "0-1", "--folds", "0,1", "--weights", "none"),
    *("--image-size", "32", "--epochs", "1", "--device", "cpu", "--workers", "0", "--threads", "1"),
)
ON = {"plain": (), "ray": ("--on", "ray", "--at-once", "2")}


def images(folder: Path, counts: tuple[int, ...] = (100_000, 1_000_000)) -> None:
    """Measures each stage on made-up photographs of 32 x 32 pixels, and a quarter as many test images."""
    columns = []
    for count in counts:
        project = write_photographs(folder / f"{count}", "growth", count, count // 4, 100, (32, 32))
        stages = {
            "read and check the tables (`podium data`)": project.words("data"),
            "check every image, find duplicates (`podium audit`)": project.words("audit"),
            "split into folds (`podium folds`)": project.words("folds"),
            "an epoch of one fold, and validation (`podium train`)": project.words("train", "--folds", "0", *OPTIONS),
            "predict, check and write the submission (`podium submit`)": project.words("submit", *OF_RUN),
        }
        columns.append({name: measure(words) for name, words in stages.items()})
    head("stage", *(f"{count:,} images" for count in counts), "times as long")
    for name in columns[0]:
        cells = (f"{column[name][0]:.0f} s, {column[name][1]:.1f} GB" for column in columns)
        row(name, *cells, f"{columns[-1][name][0] / columns[0][name][0]:.1f}")


def classes(folder: Path, loads: list[str]) -> None:
    """Measures the commands that hold a table of images and classes, after an epoch of two folds."""
    head("images", "classes", "views", *(f"`podium {name}`" for name in ("train", "submit", "compare", "report")))
    for load in loads:
        count, number, views = load.split("x")
        size = (32, 32)
        project = write_photographs(folder / load, "growth", int(count), int(count) // 4, int(number), size)
        project.podium("folds", "--k", "2")
        taken = [
            measure(project.words("train", "--views", views, *OPTIONS)),
            measure(project.words("submit", *OF_RUN, "--anyway")),  # a model that has learned little is no mistake here
            measure(project.words("compare", *OF_RUN)),
            measure(project.words("report", *OF_RUN)),
        ]
        row(f"{int(count):,}", f"{int(number):,}", views, *(f"{used:.0f} s, {most:.1f} GB" for used, most in taken))


def cells(folder: Path) -> None:
    """Trains 120 digits by the plain command, and as cells of Ray, two at a time: all results must be the same."""
    found = {where: trained_digits(folder / where, words) for where, words in ON.items()}
    plain, by_ray = found.values()
    different = sorted(name for name in plain.keys() | by_ray.keys() if plain.get(name) != by_ray.get(name))
    print(f"{len(plain)} folds of the plain command, {len(by_ray)} of Ray, {len(different)} differ")
    if different or len(plain) != 12:
        sys.exit(f"not the same: {', '.join(different)}")


def trained_digits(root: Path, where: Sequence[str]) -> dict[str, tuple[str, bytes, float]]:
    """Trains three models with two seeds; returns weights, predictions and score of each fold."""
    root.mkdir(parents=True)
    project = Project(root, "sample")
    write_digits(root)
    files = root / "data" / "raw" / "sample"
    header, *rows = (files / "train.csv").read_text().splitlines()
    (files / "train.csv").write_text("\n".join([header, *rows[:DIGITS]]) + "\n")
    for line in rows[DIGITS:]:
        (files / "train_image" / f"{line.split(',')[0]}.png").unlink()
    project.podium("folds", "--k", "2")
    started = time.monotonic()
    project.podium("train", *OF_CELLS, *where)
    print(f"{' '.join(where) or 'plain'}: {time.monotonic() - started:.0f} s")
    scores = {row["run"]: row["score"] for row in json.loads(project.podium("compare", "--json"))}
    runs = {name: project.run(name) for name in scores}
    return {
        f"{name} fold {fold}": (sha256(run.weights_path(fold)), run.out_of_fold(fold).probs.tobytes(), scores[name])
        for name, run in runs.items()
        for fold in run.finished()
    }


def run(root: Path, slug: str, *flags: str) -> None:
    """Measures the time that a run needs beside training and validation, and its memory after each epoch."""
    project = Project(root, slug)
    seconds, _ = measure(project.words("train", "--name", "measured", *flags))
    measured = project.run("measured")
    histories = {fold: measured.history(fold) for fold in measured.finished()}
    known = sum(record.seconds + record.validation_seconds for history in histories.values() for record in history)
    print(f"{seconds:.0f} s in all, {100 * (1 - known / seconds):.1f} % of them neither training nor validation")
    for fold, history in histories.items():
        print(f"fold {fold}, MB after each epoch:", *(record.memory_mb for record in history))


# --- measuring ---------------------------------------------------------------------------------------


def measure(words: list[str]) -> tuple[float, float]:
    """Returns the seconds of a command, and the gigabytes that it and its processes held at most."""
    print("$", *words, file=sys.stderr)
    started, most = time.monotonic(), 0.0
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
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
    call(images, classes, cells, run)
