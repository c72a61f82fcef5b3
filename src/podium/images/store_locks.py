"""Keeps a store from being deleted while a process reads it: each reader holds a shared lock on its manifest.json."""

import fcntl
import os
from pathlib import Path

_descriptors: dict[Path, int] = {}  # the open manifest of each store that this process reads


def lock_for_reading(path: Path) -> bool:
    """Locks a store until this process ends; returns False if the store has just been deleted."""
    manifest = path / "manifest.json"
    try:
        if path not in _descriptors:
            _descriptors[path] = os.open(manifest, os.O_RDONLY)
            fcntl.flock(_descriptors[path], fcntl.LOCK_SH)
        return manifest.exists()
    except OSError:
        return False


def unlock(path: Path) -> None:
    """Gives up this process's own lock on a store."""
    if path in _descriptors:
        os.close(_descriptors.pop(path))


def is_locked(path: Path) -> bool:
    try:
        with (path / "manifest.json").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # a folder without a manifest is not a store, so no process has opened it
    return False
