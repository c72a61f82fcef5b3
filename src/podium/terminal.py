"""What a person at a terminal sees: results on standard output, progress and advice on standard error."""

import os
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from shlex import quote
from typing import Any

from podium import DEFAULT_COMPETITION

root = Path()  # as it was given, for advice that can be pasted
quiet = False  # of several processes that do the same, one speaks


def show(text: str) -> None:
    """A result."""
    if not quiet:
        print(printable(text))


def say(text: str) -> None:
    """Progress and advice; never mixed into a result that another program reads."""
    from tqdm import tqdm

    if quiet:
        return
    try:
        tqdm.write(printable(text), file=sys.stderr)
    except BrokenPipeError:  # whoever read it has gone, which is no reason to stop working
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def printable(text: str) -> str:
    """Names from a competition's files may hold anything, also what a terminal takes for a command."""
    return "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text)


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> Any:
    """A progress bar with a rate and the time left; nothing where nobody watches (a pipe, a log)."""
    from tqdm import tqdm

    return tqdm(iterable, disable=quiet or None, dynamic_ncols=True, leave=False, **options)


def duration(seconds: float) -> str:
    """`95 s`, `12 min`, `3 h 05 min`: as exact as a plan needs."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02d} min"


def plural(number: int, what: str) -> str:
    """`1 image`, `1,200 images`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def first_few(names: Iterable[object], most: int = 5) -> str:
    """Names for a message: the first, and how many there are."""
    texts = [str(name).replace("\r", "\\r").replace("\n", "\\n") for name in names]
    return ", ".join(texts[:most]) + (f", ... ({len(texts)} in all)" if len(texts) > most else "")


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "", most: int = 1) -> str:
    """`did you mean train?`, or the other hint where nothing is near."""
    near = get_close_matches(word, list(known), most)
    return f"did you mean {', '.join(near)}?" if near else otherwise


def table(header: Sequence[str], rows: Iterable[Sequence[object]], text: int = 1) -> str:
    """Columns that line up: the first ones, of text, to the left, numbers to the right."""
    lines = [[printable(str(cell)).replace("\n", "\\n") for cell in row] for row in (header, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < text else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def command_for(name: str, slug: str, **variables: object) -> str:
    """What to type for the command `name`, in the way this person types: `make` or `podium`."""
    given = {key: value for key, value in variables.items() if value is not None}
    if uses_make():
        words = [f"COMP={slug}"] if slug != DEFAULT_COMPETITION else []
        words += [f"{key.upper()}={value}" for key, value in given.items()]
        return " ".join(["make", name, *words])
    words = [f"-c {slug}"] if slug != DEFAULT_COMPETITION else []
    words += [f"--{key.replace('_', '-')} {value}" for key, value in given.items()]
    return " ".join([podium_command(), name, *words])


def podium_command() -> str:
    """How this person calls what make has no target for."""
    if uses_make():
        return quote(sys.argv[0])
    return "podium" if root == Path() else f"podium --root {quote(str(root))}"


def uses_make() -> bool:
    return os.environ.get("PODIUM_TYPED") == "make"
