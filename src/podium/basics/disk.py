"""Writes a file completely or not at all (to a temporary file, which is renamed at the end), and locks files."""

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from podium.basics.errors import NoSpaceLeft, PodiumError

NAME_PATTERN = r"[A-Za-z0-9][\w.+=-]*"  # of a competition, a run or a submission
RETRY = 0.05  # seconds between two tries for a lock
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
    _delete_leftovers_of(path)
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


def _delete_leftovers_of(path: Path) -> None:
    """Deletes what processes of this machine that were killed have left of the same file."""
    for leftover in path.parent.glob(f"{glob.escape(f'.{path.name}.{socket.gethostname()}.')}*.tmp"):
        number = leftover.suffixes[-2].removeprefix(".") if len(leftover.suffixes) > 1 else ""
        if number.isdecimal() and not _lives(int(number)):
            leftover.unlink(missing_ok=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True


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
            raise NoSpaceLeft(f"no space left to write {path}; {remedy}") from None
        raise


@contextlib.contextmanager
def locked(path: Path, shared: bool = False, patience: float = 0.0) -> Iterator[bool]:
    """Holds a lock file during the block, with others if it is shared; yields False if another process holds it.

    It waits `patience` seconds for that one. The system releases the lock of a process that ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    while (file := _try_lock(path, shared)) is None and time.monotonic() < deadline:
        time.sleep(RETRY)
    if file is None:
        yield False
        return
    with file:
        _held_locks.append(file)
        try:
            yield True
        finally:
            if file in _held_locks:  # not so in a child process
                _held_locks.remove(file)


def _try_lock(path: Path, shared: bool) -> IO[str] | None:
    """Returns the locked file, or None if another process holds it."""
    while True:
        file = path.open("a+")  # on NFS, a shared lock must be of a file that can be read
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:  # between both questions
            pass
        except BlockingIOError:
            file.close()
            return None
        except OSError as error:
            file.close()
            raise PodiumError(
                f"{path} cannot be locked: {error.strerror}; mount that file system with locks (flock)"
            ) from None
        file.close()  # whoever held the lock has deleted the file


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
