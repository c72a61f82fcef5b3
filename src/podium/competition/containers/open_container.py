"""Opens a container of images, whatever its kind. A process opens each file once, and again if the file has changed."""

import os
import stat
import threading
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.beside import brought
from podium.basics.errors import PodiumError
from podium.competition.containers import parquet
from podium.competition.containers.image_place import Place
from podium.competition.containers.parquet import ParquetFile
from podium.competition.containers.pixel_table import PixelTable
from podium.competition.containers.radar_bands import RadarBands
from podium.competition.containers.spectrogram import Spectrogram, is_spectrogram

OPENING = threading.Lock()
Content = bytes | list[bytes] | NDArray[np.uint8]  # of an image file, of those of one thing, or pixels, grey or RGB


class Container(Protocol):
    names: list[str]  # of the images: their ids, or the numbers of their rows
    keys: list[str]  # by which they are read, in the same order
    has_ids: bool  # the names come from the file
    pixels: str  # "28 x 28 pixels, grey"; "" if it holds the bytes of image files

    @property
    def rows(self) -> pd.DataFrame:
        """The columns that are no pixels, as text. The index holds the line, or the number, of each row."""

    def read(self, key: str) -> Content:
        """Returns what the key stands for; raises a ValueError that says what is wrong."""


def _open_parquet(path: Path, shape: str) -> Container:
    return Spectrogram(path) if is_spectrogram(path) else ParquetFile(path, shape)


OPENERS: dict[str, Callable[[Path, str], Container]] = {
    **dict.fromkeys((".csv", ".tsv"), PixelTable),
    ".parquet": _open_parquet,
    ".json": RadarBands,
}


@cache
def all_openers() -> dict[str, Callable[[Path, str], Container]]:
    """Returns what opens containers, with what packages beside this one bring."""
    found = dict(OPENERS)
    for openers in brought("readers", "OPENERS"):
        found |= openers
    return found


def open_container(path: Path, shape: str = "") -> Container:
    """Opens a container; `shape` ("137x236", height x width) is that of its pixels, if the card gives it."""
    try:
        status = path.stat()
    except OSError as error:
        raise PodiumError(f"{path}: {error.strerror}; download it again") from None
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would block
        raise PodiumError(f"{path}: it is not a regular file; download it again")
    with OPENING:
        return _open(path, shape, status.st_size, status.st_mtime_ns, os.getpid())


@lru_cache(maxsize=64)
def _open(path: Path, shape: str, size: int, mtime: int, process: int) -> Container:
    """`process` is a part of the key because a forked process must not share an open file."""
    opener = all_openers().get(path.suffix.lower())
    if opener is None:
        raise PodiumError(f"{path}: podium_annex reads such files, and it is not installed; install all of podium")
    return opener(path, shape)


def read_place(place: Place) -> Content:
    """Returns what a container holds at this place; raises a ValueError that says what is wrong."""
    return open_container(Path(place.file), place.shape).read(place.key)


def close_containers() -> None:
    """Frees the memory of all open containers. They open again when they are read."""
    with OPENING:
        _open.cache_clear()
        parquet.read_group.cache_clear()
