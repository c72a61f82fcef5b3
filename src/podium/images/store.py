"""Opens the store: all decoded images of a competition, in files that every run and process maps into memory.

The store of a competition is the folder data/prepared/<slug>/pixels-<key>/; store_format.py lists its files. The key
depends on the decoder's policy, on the card's range of values, on the name, size and times of every image file, and on
the side that images are shrunk to. So a changed file gives another key: the store is built again (store_builder.py) and
the old one is deleted. A store of parts of the images (regions.py) is another one: its key has a second half.

With `keep=False` the store holds no pixels, and reading decodes the image file again: the same pixels, more slowly.
"""

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from podium.basics.disk import locked, sha256
from podium.basics.errors import PodiumError
from podium.basics.image_size import ImageSize, shorter_side
from podium.basics.terminal import say
from podium.competition.containers.image_place import files_of
from podium.competition.find.image_names import further_kinds
from podium.competition.load import Competition
from podium.competition.value_range import ValueRange
from podium.images.adjacent import Adjacent
from podium.images.decode import POLICY, Pixels, read_image, shrink
from podium.images.examples import Examples
from podium.images.regions import WHOLE, Regions
from podium.images.store_builder import Decoding, build_store
from podium.images.store_format import STORED, THUMB, FileRecord, read_manifest

Reader = Callable[[int], Pixels]


@dataclass(frozen=True)
class Store:
    """All images of a competition, or the parts of them that a run sees. A position is an index into `names`."""

    path: Path
    folder: Path  # of the image files
    names: NDArray[np.str_]  # places of the images in `folder` (image_place.py), sorted
    side: int
    kept: bool  # the pixels are stored and are read from there
    value_range: ValueRange | None = None  # the card's
    regions: Regions = WHOLE
    channels: int = 3  # of an image: those that the card names, else red, green and blue
    adjacent: Adjacent | None = None  # what is seen with each image, if anything is

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return dict(json.loads((self.path / "manifest.json").read_text(encoding="utf-8")))

    @property
    def files_key(self) -> str:
        """Returns the part of the key that changes with any of the image files."""
        return _files_key_in_name(self.path)

    @cached_property
    def index(self) -> NDArray[np.int64]:
        index: NDArray[np.int64] = np.load(self.path / "index.npy")
        return index

    @cached_property
    def files(self) -> list[FileRecord]:
        path = self.path / "files.jsonl"
        try:
            with path.open(encoding="utf-8") as lines:
                return [FileRecord(*json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise PodiumError(f"{path} is damaged ({error}); delete {self.path}, then it is built again") from None

    @cached_property
    def thumbs(self) -> NDArray[np.uint8]:
        return np.memmap(self.path / "thumbs.bin", np.uint8, "r", shape=(len(self.names), THUMB, THUMB, 3))

    def positions(self, images: Sequence[str]) -> NDArray[np.int64]:
        return np.searchsorted(self.names, np.array(images))

    def of_fold(self, fold: int) -> "Store":
        """Returns the store as this fold's model sees it."""
        return replace(self, regions=self.regions.of_fold(fold))

    def examples(self, rows: pd.DataFrame) -> Examples:
        """Returns the images that show each row of a table."""
        places = self.regions.places(rows)
        counts = np.array([len(of_row) for of_row in places], np.int64)
        return Examples(self.positions([place for of_row in places for place in of_row]), counts)

    def bad(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns a mask of the images that cannot be read."""
        is_bad: NDArray[np.bool_] = self.index[positions, 1] == 0
        return is_bad

    def digest(self, positions: NDArray[np.int64]) -> str:
        """Returns a hash of the contents of these image files, in this order, and of the range of their values."""
        seen = positions if self.adjacent is None else self.adjacent.of(positions)
        contents = "".join(self.files[position].sha256 for position in seen)
        return hashlib.sha256(f"{contents}{_in_key(self.value_range)}".encode()).hexdigest()

    def reader(self, positions: NDArray[np.int64]) -> Reader:
        """Returns a function from an index into `positions` to the pixels of that image.

        With `adjacent`, they are the pixels of all that is seen with it: [images, height, width, 3].
        """
        if self.adjacent is not None:
            return self.adjacent.reader(replace(self, adjacent=None).reader(self.adjacent.of(positions)))
        if self.kept:
            return MappedReader(self.path / "pixels.bin", self.index[positions], self.channels)
        return DecodingReader(self.folder, self.names[positions], self.side, self.value_range)


@dataclass(frozen=True)
class MappedReader:
    """Reads stored pixels. Pickling sends the path only; the other process maps the file itself."""

    path: Path
    index: NDArray[np.int64]
    channels: int = 3

    @cached_property
    def pixels(self) -> NDArray[np.uint8]:
        return np.memmap(self.path, np.uint8, "r")

    def __call__(self, number: int) -> Pixels:
        start, height, width = self.index[number].tolist()
        return self.pixels[start : start + height * width * self.channels].reshape(height, width, self.channels)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "index": self.index, "channels": self.channels}


@dataclass(frozen=True)
class DecodingReader:
    """Decodes the image file at every call."""

    folder: Path
    names: NDArray[np.str_]
    side: int
    value_range: ValueRange | None

    def __call__(self, number: int) -> Pixels:
        return shrink(read_image(self.folder / str(self.names[number]), self.value_range), self.side)


def stored_side(image_size: int) -> int:
    """Returns the shorter side that images are stored at, for training at `image_size`.

    It leaves room for a crop that removes a third, or for tests at a larger size. It is rounded up to a multiple of
    128, so that runs of similar sizes share a store.
    """
    return -(-image_size * 3 // 2 // 128) * 128


def side_of_run(image_size: ImageSize, test_size: ImageSize) -> int:
    """Returns the shorter side that a run's images are stored at."""
    return stored_side(shorter_side(image_size, test_size))


# --- opening -----------------------------------------------------------------------------------------


def open_store(competition: Competition, side: int, keep: bool | None = True, regions: Regions = WHOLE) -> Store:
    """Returns the store of the competition's images, or of these parts of them; builds it if it does not exist.

    `keep=None` is for callers that read no pixels: they get any store of these files.
    """
    prepared = competition.root / "data" / "prepared" / competition.slug
    # With the images that corrections drop: to drop an image, or to take it back, decodes nothing again.
    tables = [competition.train_in_files, competition.test, *competition.from_elsewhere]
    names = np.unique(np.concatenate([rows["image"] for rows in tables]).astype(str))
    decoding = Decoding(competition.folder, side, competition.card.value_range, competition.channel_count)
    files_key = _compute_files_key(decoding, names)
    if regions is not WHOLE:
        parts = (regions.places(rows) for rows in tables)
        names = np.unique([place for of_rows in parts for places in of_rows for place in places])
        files_key += f".{hashlib.sha256(chr(0).join(names).encode()).hexdigest()[:16]}"
    path = prepared / f"pixels-{files_key}-{0 if keep is False else side}"
    has_announced_wait = False
    while True:
        existing = _find_store(prepared, files_key, side, bool(keep))
        if existing and lock_for_reading(existing):
            facts = names, side, bool(keep), decoding.value_range, regions, decoding.channels
            return Store(existing, competition.folder, *facts)
        with locked(prepared / ".store.lock") as is_builder:
            if is_builder and not _find_store(prepared, files_key, side, bool(keep)):  # else it was built meanwhile
                _delete_outdated(prepared, files_key, path)
                build_store(path, names, decoding, keep is not False)
        if not is_builder:
            if not has_announced_wait:
                say("podium: another process is decoding the images; waiting for it")
            has_announced_wait = True
            time.sleep(0.5)


def open_verified_store(
    competition: Competition, side: int, keep: bool | None = True, verify: Sequence[str] = STORED
) -> Store:
    """Opens the store like `open_store` and compares the files in `verify` with their hashes.

    A damaged store is deleted and built again.
    """
    store = open_store(competition, side, keep)
    for name in verify:
        if sha256(store.path / name) != store.manifest["sha256"][name]:
            say(f"podium: warning: {store.path / name} is damaged; the store is built again")
            unlock(store.path)
            shutil.rmtree(store.path)
            return open_store(competition, side, keep)
    return store


def _in_key(value_range: ValueRange | None) -> str:
    return f", range {value_range}" if value_range else ""


def _compute_files_key(decoding: Decoding, names: NDArray[np.str_]) -> str:
    kinds = "".join(f", {kind}" for kind in further_kinds())  # what could not be read may be readable now
    digest = hashlib.sha256(f"policy {POLICY}, thumbs {THUMB}{kinds}{_in_key(decoding.value_range)}\n".encode())
    for name in names:
        stamps = []
        for file in files_of(name):
            try:
                status = os.stat(f"{decoding.folder}/{file}")
                stamps.append(f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}")
            except OSError:
                stamps.append("none")
        digest.update(f"{name}\0{' '.join(stamps)}\n".encode())
    return digest.hexdigest()[:16]


def _files_key_in_name(path: Path) -> str:
    """Returns the files' key in the name of a store, or of the hidden folder of an unfinished one."""
    return _files_part(path.name.split("-")[1])


def _files_part(key: str) -> str:
    """Returns the part of a key that stands for the image files, without that of their parts."""
    return key.partition(".")[0]


def _find_store(prepared: Path, files_key: str, side: int, keep: bool) -> Path | None:
    """Returns a store of these files with the pixels that are needed.

    A store of another side has the same pixels if neither of the two sides shrinks an image.
    """
    for path in sorted(prepared.glob(f"pixels-{files_key}-*")):
        manifest = read_manifest(path)
        if manifest:
            same_pixels = manifest["side"] == side or manifest["largest"] <= min(side, manifest["side"])
            if not keep or (manifest["kept"] and same_pixels):
                return path
    return None


def _delete_outdated(prepared: Path, files_key: str, wanted: Path) -> None:
    """Deletes damaged stores, and stores of image files that have changed unless another process reads them.

    Also deletes unfinished stores of changed files, and all but the wanted one if that holds no pixels: without pixels
    it is built to save space.
    """
    files_key = _files_part(files_key)
    for path in prepared.glob("pixels-*"):
        unlock(path)
        is_stale, is_in_use = _files_key_in_name(path) != files_key, is_locked(path)
        is_damaged = not is_stale and (path == wanted or not read_manifest(path))  # the wanted one serves for nothing
        if is_damaged:
            say(f"podium: warning: {path} is damaged; the store is built again")
        if is_damaged or (is_stale and not is_in_use):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in prepared.glob(".pixels-*"):
        is_unwanted = wanted.name.endswith("-0") and path.name != f".{wanted.name}"
        if _files_key_in_name(path) != files_key or is_unwanted:
            shutil.rmtree(path)


# --- a store that is read is not deleted -------------------------------------------------------------

# A shared lock on manifest.json that needs no right to write: the store may be on a disk that can only be read.
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
