"""Measures what many cells and a shared store of pixels cost.

    python docs/measure_cells.py jobs [--cells 10000]        how long `podium jobs` takes to list them
    python docs/measure_cells.py network [--workers 8]       how many images a second the loader reads over a link

The link is simulated: every read waits for an answer (0.5 ms), and then for its turn on the line, which all processes
share (1.1 GB/s, 10 Gb/s without what protocols take). The pixels come from this machine's memory.
"""

import argparse
import fcntl
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from podium.basics.project_root import runs_folder
from podium.images.decode import Pixels
from podium.training.loader import ImageDataset, load_batches
from podium_annex.fleet.cell_board import DONE, FOLDER, TAKEN, Board, Step
from podium_annex.fleet.cell_sweep import TRAIN, open_sweep

BATCH, IMAGES = 64, 2048  # images: of each process
WARM = 8  # batches of each process before the clock starts
SHAPES = {"photographs for 224 px": (384, 512), "images of 60x80 pixels": (60, 80)}


def measure_jobs(count: int) -> None:
    """Nine cells of ten are done; each of these has two steps."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        runs = {f"run-{number}": range(5) for number in range(count // 5)}
        sweep = open_sweep("sample", root, TRAIN, count, {}).with_runs(runs)
        board = Board(runs_folder("sample", root) / FOLDER)
        for cell in sweep.cells[: 9 * count // 10]:
            board.add(cell.name, Step(1, TAKEN, "machine:1"))
            board.add(cell.name, Step(2, DONE, "machine:1"))
        seconds = []
        command = [sys.executable, "-m", "podium", "--root", folder, "jobs", "-c", "sample"]
        for _ in range(5):
            started = time.monotonic()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds.append(time.monotonic() - started)
        files = len(os.listdir(board.folder))
        low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
        print(f"{len(sweep.cells):,} cells, {files:,} files: {middle:.1f} s ({low:.1f} to {high:.1f})")


@dataclass(frozen=True)
class OverALink:
    """Reads an image as if it came over a link."""

    pixels: Pixels
    line: str  # a file that stands for the line: who holds it, sends
    latency: float
    bandwidth: float

    def __call__(self, number: int) -> Pixels:
        time.sleep(self.latency)
        with open(self.line) as line:
            fcntl.flock(line, fcntl.LOCK_EX)
            time.sleep(self.pixels.nbytes / self.bandwidth)
        return self.pixels


class Corner:
    """A view that costs nothing."""

    nbytes = 48 * 48 * 3

    def __call__(self, pixels: Pixels, epoch: int = 0, row: int = 0) -> Pixels:
        return pixels[:48, :48]


def measure_network(workers: int, latency: float, bandwidth: float) -> None:
    print("| stored | bytes | images/s | as computed |\n| --- | ---: | ---: | ---: |")
    for name, (height, width) in SHAPES.items():
        pixels = np.zeros((height, width, 3), np.uint8)
        computed = min(workers / (latency + pixels.nbytes / bandwidth), bandwidth / pixels.nbytes)
        with tempfile.NamedTemporaryFile() as line:
            read = OverALink(pixels, line.name, latency, bandwidth)
            count = IMAGES * workers
            images = ImageDataset(read, np.zeros(count, np.int64), Corner(), np.arange(count))
            batches: Any = [
                [(0, index) for index in range(start, start + BATCH)] for start in range(0, count - BATCH + 1, BATCH)
            ]
            loader = load_batches(images, batches, workers)
            for _ in range(WARM * workers):  # the processes have started, and read ahead as far as they do
                next(loader)
            started = time.monotonic()
            read_images = BATCH * sum(1 for _ in loader)
            measured = read_images / (time.monotonic() - started)
        print(f"| {name} | {pixels.nbytes:,} | {measured:,.0f} | {computed:,.0f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("jobs", "network"))
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0.0005, help="seconds until a server answers")
    parser.add_argument("--bandwidth", type=float, default=1.1e9, help="bytes per second")
    given = parser.parse_args()
    if given.what == "jobs":
        measure_jobs(given.cells)
    else:
        measure_network(given.workers, given.latency, given.bandwidth)
