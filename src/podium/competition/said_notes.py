"""A note on a competition is said by the first command that meets it; after that, only `podium data` shows it.

data/prepared/<slug>/notes.txt has those that were said, a line each. It is written when a command has ended well, where
that folder is: a command that is refused leaves no trace, and says its notes again.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from podium.basics import terminal
from podium.basics.disk import write_text


def say_new_notes(slug: str, root: Path, notes: Sequence[str]) -> None:
    """Prints the notes that no command has said before."""
    path = root / "data" / "prepared" / slug / "notes.txt"
    new = [note for note in notes if note not in _read(path)]
    for note in new:
        terminal.say(f"podium: note: {note}")
    if new and not terminal.quiet:
        terminal.when_done.append(lambda: _remember(path, new))


def _read(path: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").splitlines()
    return []


def _remember(path: Path, notes: Sequence[str]) -> None:
    with suppress(OSError):  # a folder that may only be read: the notes are said once more
        if path.parent.is_dir():
            write_text(path, "".join(f"{note}\n" for note in dict.fromkeys([*_read(path), *notes])))
