"""A worker of stub cells, in a process that tests kill: python worker.py FOLDER CELLS BEAT SECONDS.

A cell appends a line to `log` beside the board: first that it began, then that it ended.
"""

import os
import sys
import time
from pathlib import Path

from podium.basics.disk import write_text
from podium_annex.fleet.cell_board import Board, Rhythm
from podium_annex.fleet.work import work


def main(folder: Path, cells: int, beat: float, seconds: float) -> None:
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def run(cell: str) -> None:
        os.write(log, f"{cell} begins {os.getpid()}\n".encode())
        time.sleep(seconds)
        write_text(folder / "results" / cell, "done")
        os.write(log, f"{cell} ends {os.getpid()}\n".encode())

    work(Board(folder / ".cells"), [f"run{number}@fold0" for number in range(cells)], run, Rhythm(beat))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
