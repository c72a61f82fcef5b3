"""Makes the moving picture of the README: runs commands in a terminal, and draws what they write, and when.

    python docs/make_terminal.py "ls data/raw" "make compete BUDGET=5m" "head -n 4 submissions/signs/compete.csv"

Run it in a clone that has a competition's zip in data/raw/, while the machine does nothing else. Writes
docs/pictures/compete.svg, which moves without a script, and stands still where a reader's system asks for that.
"""

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from podium.basics.terminal import columns_of

COLUMNS, ROWS = 100, 20
BURST = 0.05  # seconds; what is written within them is one change
SPEED, PAUSE = 20, 24.0  # the picture is so many times as fast as the recording, whose pauses are cut to these seconds
TICK, READ, MOST, LAST = 0.5, 0.15, 2.5, 5.0  # seconds of a frame: at least, for a new row, for all rows, of the last
TITLE = "A terminal: from a competition's zip to a checked submission with one command"
LETTER, LINE, EDGE = 8.4, 19, 16  # pixels
INK = {"": "#e6edf3", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "36": "#76e3ea"}  # colours of the terminal
PAPER, FRAME = "#161b22", "#57606a"

Cell = tuple[str, str]  # a letter and its colour; none in the second column of a wide letter
Line = tuple[Cell, ...]
Recording = tuple[str, list[tuple[float, str]]]  # a command; after how many seconds it wrote what


class Frame(NamedTuple):
    """What a terminal shows from a second on, with the lines above its window."""

    second: float
    lines: tuple[Line, ...]


def main(commands: Sequence[str]) -> None:
    """Runs the commands and writes the picture."""
    path = Path(__file__).parent / "pictures" / "compete.svg"
    path.write_text(picture(shorten(frames([record(command) for command in commands]))), encoding="utf-8")
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def record(command: str) -> Recording:
    """Runs a command in a terminal of its own; returns what it wrote."""
    outer, inner = pty.openpty()
    termios.tcsetwinsize(inner, (ROWS, COLUMNS))
    environment = os.environ | {"TERM": "xterm-256color"}
    started = time.monotonic()
    process = subprocess.Popen(["sh", "-c", command], stdin=inner, stdout=inner, stderr=inner, env=environment)
    os.close(inner)
    written: list[tuple[float, bytes]] = []
    while True:
        is_burst = bool(select.select([outer], [], [], BURST)[0]) and bool(written)
        try:
            data = os.read(outer, 1 << 16)
        except OSError:  # Linux says so that nobody writes any more
            data = b""
        if not data:
            break
        second, before = written.pop() if is_burst else (time.monotonic() - started, b"")
        written.append((second, before + data))
    if process.wait():
        sys.exit(f"{command}: exit status {process.returncode}")
    return command, [(second, data.decode()) for second, data in written]


class Screen:
    """A terminal that keeps the lines above its window. It knows the sequences that Podium, tqdm and make write."""

    PIECE = re.compile(r"\x1b\[([\d;?]*)([A-Za-z])|.", re.DOTALL)

    def __init__(self, columns: int = COLUMNS, rows: int = ROWS) -> None:
        self.columns, self.rows = columns, rows
        self.cells: list[list[Cell]] = [[]]
        self.row = self.column = 0
        self.colour = ""

    def write(self, text: str) -> None:
        """Does what the text says."""
        for piece in self.PIECE.finditer(text):
            if piece[2]:
                self._obey(piece[2], piece[1])
            elif piece[0] == "\r":
                self.column = 0
            elif piece[0] == "\n":
                self._go_to(self.row + 1)
            elif piece[0].isprintable():
                self._put(piece[0])

    def lines(self) -> tuple[Line, ...]:
        """Returns all lines, without blanks at their ends and without empty lines at the end."""
        lines = [tuple(line) for line in self.cells]
        for row, line in enumerate(lines):
            while line and line[-1][0] == " ":
                line = line[:-1]
            lines[row] = line
        while lines and not lines[-1]:
            lines.pop()
        return tuple(lines)

    def _obey(self, code: str, number: str) -> None:
        line = self.cells[self.row]
        if code == "m":
            self.colour = number if number in INK else ""
        elif code in "AF":  # up; F goes to the start of the line as well
            self._go_to(max(self.row - int(number or 1), len(self.cells) - self.rows, 0))
            self.column = 0 if code == "F" else self.column
        elif code in "KJ" and not number:  # erase the rest of the line; J erases the lines below as well
            del line[self.column :]
            if code == "J":
                del self.cells[self.row + 1 :]
        else:
            raise ValueError(f"a sequence that this screen does not know: {number}{code}")

    def _go_to(self, row: int) -> None:
        self.cells += [[] for _ in range(row + 1 - len(self.cells))]
        self.row = row

    def _put(self, letter: str) -> None:
        width = columns_of(letter)
        if self.column + width > self.columns:
            self._go_to(self.row + 1)
            self.column = 0
        line = self.cells[self.row]
        line += [(" ", "")] * (self.column - len(line))
        if width:
            line[self.column : self.column + width] = [(letter, self.colour), ("", self.colour)][:width]
        elif line:
            line[self.column - 1] = (line[self.column - 1][0] + letter, self.colour)
        self.column += width


def frames(recordings: Sequence[Recording]) -> list[Frame]:
    """Returns a frame for every change. A command stands after its prompt for a second of the picture first."""
    screen, made, start = Screen(), [], 0.0
    for command, written in recordings:
        for second, text in [(0.0, f"\x1b[32m$ \x1b[m{command}\n\r"), *((SPEED + at, text) for at, text in written)]:
            screen.write(text)
            made.append(Frame(start + second, screen.lines()))
        start = made[-1].second + SPEED
    return made


def shorten(made: Sequence[Frame]) -> list[Frame]:
    """Returns the frames at their seconds of the picture, without those that come too soon and add no row."""
    kept: list[Frame] = []
    clock = due = 0.0
    for frame, following in pairwise([*made, made[-1]]):
        before = kept[-1].lines if kept else ()
        if clock >= due or len(frame.lines) > len(before) or frame is made[-1]:
            clock = max(clock, due)
            kept.append(Frame(clock, frame.lines))
            due = clock + min(max(TICK, READ * len(set(frame.lines) - set(before))), MOST)
        clock += min(following.second - frame.second, PAUSE) / SPEED
    return kept


def picture(made: Sequence[Frame]) -> str:
    """Returns the SVG: rows, in a group for those that come and go together; all of them go up as the terminal does."""
    length = made[-1].second + LAST
    at = [f"{100 * frame.second / length:.2f}%" for frame in made]
    tops = [LINE * max(len(frame.lines) - ROWS, 0) for frame in made]
    ups = [f"{at[0]}{{transform:none}}"]
    ups += [f"{at[i]}{{transform:translateY(-{b}px)}}" for i, (a, b) in enumerate(pairwise(tops), 1) if a != b]
    rules, groups = [f"@keyframes up{{{''.join(ups)}}}.up{{animation-name:up}}"], []
    for number, ((first, after), rows) in enumerate(rows_together(made).items()):
        steps = ["0%{opacity:0}"] * bool(first) + [at[first] + "{opacity:1}"]
        steps += [at[after] + "{opacity:0}"] if after < len(made) else []
        rules.append(f"@keyframes k{number}{{{''.join(steps)}}}.k{number}{{animation-name:k{number}}}")
        groups.append(f'<g class="k{number}{" gone" if after < len(made) else ""}">{"".join(rows)}</g>')
    width, height = round(COLUMNS * LETTER) + 2 * EDGE, ROWS * LINE + 2 * EDGE
    inks = "".join(f".c{name}{{fill:{ink}}}" for name, ink in INK.items() if name)
    told = "\n".join("".join(letter for letter, _ in line) for line in made[-1].lines)
    newline = "\n"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-labelledby="title desc"
 width="{width}" height="{height}" viewBox="0 0 {width} {height}">
<title id="title">{TITLE}</title>
<desc id="desc">A recording, {SPEED} times as fast, without its long pauses. It ends with these lines:
{escape(told, quote=False)}</desc>
<style>
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:{INK[""]}}}{inks}
.gone{{opacity:0}}
@media(prefers-reduced-motion:no-preference){{
g{{animation:{length:.1f}s step-end infinite}}
{newline.join(rules)}
}}
</style>
<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{PAPER}" stroke="{FRAME}"/>
<svg y="{EDGE}" width="{width}" height="{ROWS * LINE}">
<g class="up" transform="translate(0 -{tops[-1]})">
{newline.join(groups)}
</g>
</svg>
</svg>
"""


def rows_together(made: Sequence[Frame]) -> dict[tuple[int, int], list[str]]:
    """Returns rows as SVG, by the frame that they come with and the frame that they are gone in."""
    together: dict[tuple[int, int], list[str]] = {}
    for row in range(max(len(frame.lines) for frame in made)):
        first = 0
        for line, same in groupby(frame.lines[row] if row < len(frame.lines) else () for frame in made):
            after = first + len(list(same))
            if line:
                together.setdefault((first, after), []).append(row_as_svg(row, line))
            first = after
    return together


def row_as_svg(row: int, line: Line) -> str:
    """Returns the text of a row, as wide as its columns in any font."""
    indent = next(column for column, (letter, _) in enumerate(line) if letter != " ")
    parts = []
    for colour, cells in groupby(line[indent:], key=lambda cell: cell[1]):
        text = escape("".join(letter for letter, _ in cells), quote=False).replace(" ", "\u00a0")  # SVG joins blanks
        parts.append(f'<tspan class="c{colour}">{text}</tspan>' if colour else text)
    place = f'x="{EDGE + indent * LETTER:g}" y="{row * LINE + 14}" textLength="{(len(line) - indent) * LETTER:g}"'
    return f"<text {place}>{''.join(parts)}</text>"


if __name__ == "__main__":
    main(sys.argv[1:])
