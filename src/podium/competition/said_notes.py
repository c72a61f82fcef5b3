"""A note on a competition is said by the first command that meets it; after that, only `podium data` shows it.

data/prepared/<slug>/notes.txt has those that were said, a line each. It is written when a command has ended well: one
that is refused leaves no trace, and says its notes again.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from podium.basics import terminal
from podium.basics.disk import write_text


def say_new_notes(slug: str, root: Path, notes: Sequence[str]) -> None:
    """Prints the notes that no command has said before."""
    known = _read(_path(slug, root))
    new = [note for note in notes if note not in known]
    for note in new:
        terminal.say(f"podium: note: {note}")
    remember(slug, root, new)


def remember(slug: str, root: Path, notes: Sequence[str]) -> None:
    """Keeps that these notes were said, once the command has ended well."""
    if notes and not terminal.quiet:
        terminal.when_done.append(lambda: _write(_path(slug, root), notes))


def _path(slug: str, root: Path) -> Path:
    return root / "data" / "prepared" / slug / "notes.txt"


def _read(path: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").splitlines()
    return []


def _write(path: Path, notes: Sequence[str]) -> None:
    with suppress(OSError):  # a folder that may only be read: the notes are said once more
        known = _read(path)
        if not set(notes) <= set(known):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, "".join(f"{note}\n" for note in dict.fromkeys([*known, *notes])))
