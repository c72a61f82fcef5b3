"""Prints what a user sees: results on standard output, progress and advice on standard error."""

import os
import re
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from operator import length_hint
from pathlib import Path
from shlex import quote
from shutil import which
from typing import IO, Any, Self

from podium.basics.project_root import DEFAULT_COMPETITION

MAKE_VARIABLES = {  # flag: variable of the Makefile
    **{"model": "MODEL", "folds": "FOLDS", "epochs": "EPOCHS", "lr": "LR", "batch-size": "BATCH", "image-size": "SIZE"},
    **{"seed": "SEED", "seeds": "SEEDS", "weights": "WEIGHTS", "name": "NAME", "processes": "GPUS", "budget": "BUDGET"},
    **{"k": "K", "runs": "RUNS", "except": "EXCEPT", "corrections": "CORRECTIONS"},
}

COLOURS = {"podium: error:": "31", "podium: warning:": "33", "next:": "36"}  # red, yellow, cyan

root = Path()  # --root as the user gave it, so that printed commands can be pasted
quiet = False  # true in all processes of a group except the first
brief = False  # true while a command tells its steps in its own words
said_once: set[str] = set()  # by this command
lines_said = 0  # by this command
last_line = ""  # of its progress and advice
STARTING, WORKING = "starting", "still at work"
doing = STARTING  # what this command does, for those who wait
has_said_next = False  # whether this command has said what comes after it
when_done: list[Callable[[], None]] = []  # what is written once this command has ended well


SAID_IN_BRIEF = re.compile("podium: (warning|error):|  fold |.* will take about ")


@contextmanager
def in_brief() -> Iterator[None]:
    """Leaves out what the parts of a command say, but for warnings, scores of folds, times and progress."""
    global brief
    brief = True
    try:
        yield
    finally:
        brief = False


class Aside:
    """Takes what the parts of a command say, and knows how far they are; the command shows that in its own way."""

    def __init__(self, file: IO[str]) -> None:
        self.file = file
        self.bar: LogLines | None = None  # the work in progress

    def write(self, text: str) -> None:
        self.file.write(printable(text) + "\n")
        self.file.flush()


_aside: Aside | None = None


@contextmanager
def aside(path: Path) -> Iterator[Aside]:
    """Appends to a file what the parts of a command say and show, instead of printing it."""
    global _aside
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        before, _aside = _aside, Aside(file)
        try:
            yield _aside
        finally:
            _aside = before


@contextmanager
def aloud() -> Iterator[None]:
    """Prints again what is said, within a block that speaks aside."""
    global _aside
    before, _aside = _aside, None
    try:
        yield
    finally:
        _aside = before


def show(text: str) -> None:
    """Prints a result."""
    global lines_said
    if _aside:
        _aside.write(text)
    elif not quiet and not brief:
        lines_said += 1
        print(printable(text))


def say(text: str) -> None:
    """Prints progress or advice, never into a result that another program reads."""
    if "PODIUM_GOES_ON" in os.environ and text.startswith("next: "):  # make runs the next command itself
        return
    if _aside:
        _aside.write(text)
    elif not quiet and (not brief or SAID_IN_BRIEF.match(text)):
        _write(text)


def _write(text: str) -> None:
    global has_said_next, lines_said, last_line
    from tqdm import tqdm

    lines_said, last_line = lines_said + 1, text
    has_said_next |= text.startswith("next: ") or "\nnext: " in text
    try:
        tqdm.write(coloured(printable(text)), file=sys.stderr)
    except BrokenPipeError:  # the reader has closed the pipe; continue without output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


@contextmanager
def busy_with(work: str) -> Iterator[None]:
    """Names what is being done, which is said if it takes more than a moment."""
    global doing
    before, doing = doing, work
    try:
        yield
    finally:
        doing = WORKING if before == STARTING else before


def say_once(text: str) -> None:
    """Says a warning that several parts of a command come upon."""
    if text not in said_once:
        said_once.add(text)
        say(text)


def coloured(text: str) -> str:
    """Colours errors, warnings and the next command, in a terminal only and not if NO_COLOR is set (no-color.org)."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stderr.isatty()
    colour = next((code for start, code in COLOURS.items() if text.startswith(start)), None)
    return text if is_plain or colour is None else f"\033[{colour}m{text}\033[0m"


def printable(text: str) -> str:
    """Escapes control characters: a file name may contain commands for the terminal."""
    if text.replace("\n", "").isprintable():  # a long list is
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text)


def progress_bar(iterable: Iterable[Any] | None = None, in_log: bool = True, **options: Any) -> Any:
    """Shows a rate and the time left: as a bar in a terminal, and with `in_log` as few lines in a pipe or a log."""
    if _aside:
        _aside.bar = LogLines(iterable, **options)
        _aside.bar.is_silent = True
        return _aside.bar
    if in_log and not quiet and not sys.stderr.isatty():
        return LogLines(iterable, **options)
    from tqdm import tqdm

    return tqdm(iterable, disable=quiet or None, dynamic_ncols=True, leave=False, **options)


class LogLines:
    """Says now and then how far a long work is: after two seconds, and each time it has taken four times as long."""

    FIRST, GROWTH, LONGEST = 2.0, 4.0, 600.0  # seconds

    def __init__(
        self,
        iterable: Iterable[Any] | None = None,
        total: float | None = None,
        initial: float = 0,
        desc: str = "",
        unit: str = "it",
        unit_scale: bool = False,
        **only_in_a_terminal: Any,
    ) -> None:
        self.is_silent, self.disable = False, True  # tqdm's word for a bar that nobody sees
        self.iterable, self.desc, self.unit, self.bytes = iterable, desc, unit, unit_scale
        self.total = total if total is not None or iterable is None else length_hint(iterable) or None
        self.first, self.n = initial, initial
        self.started = time.monotonic()
        self.next, self.wait = self.started + self.FIRST, self.FIRST

    def update(self, count: float = 1) -> None:
        self.n += count
        now = time.monotonic()
        if not self.is_silent and now >= self.next and (self.total is None or self.n < self.total):
            self.wait = min(self.wait * self.GROWTH, self.LONGEST)
            self.next = now + self.wait
            _write(f"podium: {self._text(now - self.started)}")

    def _text(self, seconds: float) -> str:
        if self.bytes:
            done, of = f"{self.n / 1e6:,.0f}", "" if self.total is None else f" of {self.total / 1e6:,.0f}"
            text = f"{self.desc}: {done}{of} MB"
        else:
            of = "" if self.total is None else f" of {self.total:,.0f}"
            text = f"{self.desc}: {self.n:,.0f}{of} {self.unit}s"
        if self.total is None or self.n <= self.first:
            return f"{text} in {duration(seconds)}"
        return f"{text}; about {duration(seconds * (self.total - self.n) / (self.n - self.first))} left"

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable or ():
            yield item
            self.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.iterable = None


# --- formatting --------------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """Formats `95 s`, `12 min`, `3 h 05 min`: as exact as a user needs."""
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    if seconds >= 36_000:
        return f"{seconds / 3600:,.0f} h"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def seconds_of(text: str) -> float:
    """Returns the seconds of a time such as `8h`, `90m` or `1h30m`; 0 if the text is none."""
    units = {"s": 1, "m": 60, "min": 60, "h": 3600}
    if not re.fullmatch(r"( *\d+(\.\d+)? *(s|min|m|h))+ *", text):
        return 0.0
    return sum(float(number) * units[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?) *(s|min|m|h)", text))


def plural(count: int, noun: str) -> str:
    """Formats `1 image`, `1,200 images`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def first_few(names: Iterable[object], most: int = 5) -> str:
    """Lists the first names, and how many there are."""
    texts = [str(name).replace("\r", "\\r").replace("\n", "\\n") for name in names]
    return ", ".join(texts[:most]) + (f", ... ({len(texts)} in all)" if len(texts) > most else "")


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", most: int = 1) -> str:
    """Returns `did you mean train?`, or `otherwise` if no known word is similar."""
    near = get_close_matches(word, list(known), most)
    return f"did you mean {', '.join(near)}?" if near else otherwise


def amount(count: float) -> str:
    """Formats a large number, of parameters or multiply-adds: `1.12 G` or `48.2 M`."""
    return f"{count / 1e9:,.2f} G" if count >= 1e9 else f"{count / 1e6:,.1f} M"


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its kind if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def table(header: Sequence[str], rows: Iterable[Sequence[object]], text_columns: int = 1) -> str:
    """Aligns columns: the first `text_columns` to the left, the others (numbers) to the right."""
    lines = [[printable(str(cell)).replace("\n", "\\n") for cell in row] for row in (header, *rows)]
    columns = [_aligned([line[column] for line in lines], column < text_columns) for column in range(len(header))]
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))


def _aligned(cells: Sequence[str], is_text: bool) -> list[str]:
    taken = [columns_of(cell) for cell in cells]
    width = max(taken)
    blanks = [" " * (width - count) for count in taken]
    return [cell + blank if is_text else blank + cell for cell, blank in zip(cells, blanks, strict=True)]


def columns_of(text: str) -> int:
    """Returns how many columns of a terminal a text takes: Chinese letters take two, combining accents none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


# --- commands ----------------------------------------------------------------------------------------


def command_for(name: str, slug: str, **variables: object) -> str:
    """Returns the text of a command as this user calls it: with `make` or with `podium`."""
    given = {key: value for key, value in variables.items() if value is not None}
    if uses_make():
        words = [f"COMP={slug}"] if slug != DEFAULT_COMPETITION else []
        words += [f"{key.upper()}={value}" for key, value in given.items()]
        return " ".join(["make", name, *words])
    words = [f"-c {slug}"] if slug != DEFAULT_COMPETITION else []
    words += [f"--{key.replace('_', '-')} {value}" for key, value in given.items()]
    return " ".join([podium_command(), name, *words])


def command_to_drop_bad(slug: str) -> str:
    """Returns the command that leaves out training images which cannot be read."""
    return f"{command_for('audit', slug)} {'ARGS=--drop-bad' if uses_make() else '--drop-bad'}"


def command_to_rebuild(lineage: Path) -> str:
    """Returns the command that makes a submission again from its lineage; with --upload it uploads it, too."""
    return f"{podium_command()} submit --from {quote(str(lineage))}"


def podium_command() -> str:
    """Returns how this user calls podium; for commands that have no make target too."""
    called = sys.argv[0]
    if uses_make():
        return quote(called)
    is_on_path = Path(called).name != "podium" or which("podium")
    name = "podium" if is_on_path else quote(called)
    return name if root == Path() else f"{name} --root {quote(str(root))}"


def flags_for_make(text: str) -> str:
    """Returns how make takes the flags that a text names: ` (with make: EPOCHS=...)`."""
    text = re.sub(r"no flag \S+|\(see [^)]*\)", "", text)  # what was wrong is no advice
    flags = dict.fromkeys(re.findall(r"(?<!\S)--([a-z][a-z-]*)", text))
    variables = [f"{MAKE_VARIABLES[flag]}=..." for flag in flags if flag in MAKE_VARIABLES]
    others = " ".join(f"--{flag} ..." for flag in flags if flag not in MAKE_VARIABLES)
    words = [*variables, *([f'ARGS="{others}"'] if others else [])]
    return f" (with make: {' '.join(words)})" if words else ""


def uses_make() -> bool:
    return os.environ.get("PODIUM_CALLED_BY") == "make"
