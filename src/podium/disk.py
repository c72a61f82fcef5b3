"""Files that are whole or not there: written beside their place, flushed, then renamed into it. And locks."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from podium import PodiumError

NAME_PATTERN = r"[A-Za-z0-9][\w.+=-]*"  # that a person may give to a run or a submission
UMASK = os.umask(0)
os.umask(UMASK)  # which can only be read by setting it


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it becomes `path` when the block ends well, and goes when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    try:
        with explain_full_disk(path):
            yield temporary
            os.chmod(temporary, 0o666 & ~UMASK)  # who writes for itself, as safetensors does, shuts others out
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            rename_durably(temporary, path)
    except OSError as error:  # which would name the temporary file
        raise PodiumError(f"{path} cannot be written: {error.strerror or error}; mend its folder's rights") from None
    finally:
        with contextlib.suppress(OSError):  # of a folder that nothing can be written to
            temporary.unlink(missing_ok=True)


def rename_durably(old: Path, new: Path) -> None:
    """In a way that survives a power cut."""
    old.replace(new)
    folder = os.open(new.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def explain_full_disk(path: Path, remedy: str = "free some and run the same command again") -> Iterator[None]:
    """A full disk, in one sentence."""
    try:
        yield
    except Exception as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or "No space left" in str(error):
            raise PodiumError(f"no space left to write {path}; {remedy}") from None
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Holds a lock file for as long as the block runs; False where another process holds it. However a process
    ends, the system lifts its locks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            _locks.append(file)
            try:
                yield True
            finally:
                if file in _locks:  # not in a child
                    _locks.remove(file)


def _let_go() -> None:
    """A child that outlives its parent, as a loader's process does by seconds, must not hold its locks."""
    for file in _locks:
        file.close()
    _locks.clear()


_locks: list[IO[str]] = []
os.register_at_fork(after_in_child=_let_go)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    with atomic(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
