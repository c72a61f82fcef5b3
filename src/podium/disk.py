"""Writes a file completely or not at all (to a temporary file, which is renamed at the end), and locks files."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from podium.errors import PodiumError

NAME_PATTERN = r"[A-Za-z0-9][\w.+=-]*"  # of a competition, a run or a submission
UMASK = os.umask(0)  # it can be read only by setting it
os.umask(UMASK)


def check_name(name: object, role: str) -> None:
    """Refuses what cannot be the name of a file or a folder."""
    if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
        raise PodiumError(f"{role} cannot be {name!r}; use letters, digits and . _ - + =")


def check_utf8(path: str, where: str) -> None:
    """Refuses a path that is not UTF-8: Python's stand-ins for its other bytes can be neither printed nor written."""
    if re.search("[\udc80-\udcff]", path):
        raise PodiumError(f"{where} {os.fsencode(path)!r} is not UTF-8; rename it")


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yields a temporary path, which is renamed to `path` if the block succeeds and deleted if it fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.tmp")
    _unfinished.add(temporary)
    try:
        with explain_full_disk(path):
            yield temporary
            os.chmod(temporary, 0o666 & ~UMASK)  # safetensors creates files that only their owner can read
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            rename_durably(temporary, path)
    except OSError as error:  # its own text would name the temporary file
        problem = error.strerror or error
        raise PodiumError(f"{path} cannot be written: {problem}; check the permissions of its folder") from None
    finally:
        with contextlib.suppress(OSError):  # the folder may be read-only
            temporary.unlink(missing_ok=True)
        _unfinished.discard(temporary)


_unfinished: set[Path] = set()


def delete_unfinished() -> None:
    """Deletes the temporary files of this process, for an end that comes between two instructions."""
    for temporary in list(_unfinished):
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def rename_durably(old: Path, new: Path) -> None:
    """Renames a file or folder such that a power cut cannot undo it."""
    old.replace(new)
    folder = os.open(new.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def explain_full_disk(path: Path, remedy: str = "free some space and run the same command again") -> Iterator[None]:
    """Replaces the error of a full disk by one sentence."""
    try:
        yield
    except Exception as error:  # torch and safetensors have errors of their own for a full disk
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if is_full or "No space left" in str(error):
            raise PodiumError(f"no space left to write {path}; {remedy}") from None
        raise


@contextlib.contextmanager
def locked(path: Path, waits: bool = False) -> Iterator[bool]:
    """Holds a lock file during the block; yields False if another process holds it, or waits until it does not.

    The system releases the lock of a process that ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            _held_locks.append(file)
            try:
                yield True
            finally:
                if file in _held_locks:  # not so in a child process
                    _held_locks.remove(file)


_held_locks: list[IO[str]] = []


def _close_locks_of_parent() -> None:
    """A loader process may outlive its parent by seconds; it must not hold the parent's locks."""
    for file in _held_locks:
        file.close()
    _held_locks.clear()


os.register_at_fork(after_in_child=_close_locks_of_parent)


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
