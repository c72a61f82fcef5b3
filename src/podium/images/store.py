"""Decodes every image once: all pixels in one flat file that every run, worker and process maps.

    data/prepared/<slug>/pixels-<key>/pixels.bin     RGB uint8, image after image, shrunk and never enlarged
                                      index.npy      where each begins, its height and width
                                      thumbs.bin     each once more, 24 x 24: what the audit compares
                                      files.jsonl    what each file is, or why it is no image
                                      manifest.json  how it was made, and the hashes of the others

The key follows from the decoder's policy, from every file's name, size and times, and from how far images are
shrunk. So a changed file makes another key, the store is made anew, and the stale one goes. What was decoded
before an interruption is kept. With `keep=False` there are no pixels, and reading decodes the file again: the
same pixels, more slowly.
"""

import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from podium import PodiumError
from podium.competition.load import Competition
from podium.disk import explain_full_disk, locked, rename_durably, sha256, write_json
from podium.images.decode import POLICY, BadImage, Pixels, examine, read_file, read_image, shrink
from podium.terminal import progress_bar, say

THUMB = 24  # pixels a side: 12 and 8 divide it
AT_ONCE = 16  # images a thread is given
COMMIT_EVERY = 2.0  # seconds of decoding that a power cut may cost
DATA = ("pixels.bin", "thumbs.bin", "files.jsonl")  # written as images are decoded; the others at the end
STORED = (*DATA, "index.npy")

Reader = Callable[[int], Pixels]
_holds: dict[Path, int] = {}  # locks on the stores that this process reads


class FileRecord(NamedTuple):
    """What one file is: a line of files.jsonl."""

    image: str  # its name, relative to the competition's folder
    bytes: int
    sha256: str
    format: str
    mode: str
    doubt: str  # what is wrong with it, though it can be read; or nothing
    width: int  # upright, before it was shrunk; 0 for a file that is no image
    height: int
    stored_width: int
    stored_height: int
    reason: str  # why it is no image, or nothing


@dataclass(frozen=True)
class Store:
    """Every image of a competition; `reader()` gives the pixels of the one at a position."""

    path: Path
    folder: Path  # of the images
    names: NDArray[np.str_]  # sorted; a position is an index into them
    side: int
    kept: bool  # the pixels, which are to be read then

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return dict(json.loads((self.path / "manifest.json").read_text(encoding="utf-8")))

    @property
    def sources(self) -> str:
        """Of which files, in which state, this is the store."""
        return self.path.name.split("-")[1]

    @cached_property
    def index(self) -> NDArray[np.int64]:
        found: NDArray[np.int64] = np.load(self.path / "index.npy")
        return found

    @cached_property
    def files(self) -> list[FileRecord]:
        path = self.path / "files.jsonl"
        try:
            with path.open(encoding="utf-8") as lines:
                return [FileRecord(*json.loads(line)) for line in lines]
        except (ValueError, TypeError) as error:
            raise PodiumError(f"{path} is damaged ({error}); delete {self.path}, and it is made anew") from None

    @cached_property
    def thumbs(self) -> NDArray[np.uint8]:
        return np.memmap(self.path / "thumbs.bin", np.uint8, "r", shape=(len(self.names), THUMB, THUMB, 3))

    def positions(self, images: Sequence[str]) -> NDArray[np.int64]:
        return np.searchsorted(self.names, np.array(images))

    def bad(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of them are no images."""
        empty: NDArray[np.bool_] = self.index[positions, 1] == 0
        return empty

    def digest(self, positions: NDArray[np.int64]) -> str:
        """Of the contents of these images' files."""
        return hashlib.sha256("".join(self.files[i].sha256 for i in positions).encode()).hexdigest()

    def reader(self, positions: NDArray[np.int64]) -> Reader:
        """Reads the images at these positions, by their index among them."""
        if self.kept:
            return Mapped(self.path / "pixels.bin", self.index[positions])
        return Decoding(self.folder, self.names[positions], self.side)


@dataclass(frozen=True)
class Mapped:
    """Reads the pixels that were kept. Another process is given the path and maps the file itself."""

    path: Path
    index: NDArray[np.int64]

    @cached_property
    def pixels(self) -> NDArray[np.uint8]:
        return np.memmap(self.path, np.uint8, "r")

    def __call__(self, number: int) -> Pixels:
        start, height, width = self.index[number].tolist()
        return self.pixels[start : start + height * width * 3].reshape(height, width, 3)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "index": self.index}


@dataclass(frozen=True)
class Decoding:
    """Reads the files, every time."""

    folder: Path
    names: NDArray[np.str_]
    side: int

    def __call__(self, number: int) -> Pixels:
        return shrink(read_image(self.folder / str(self.names[number])), self.side)


def stored_side(image_size: int) -> int:
    """The shorter side that images are shrunk to: room for a crop of a third off, or to test at a larger size.
    In steps, so that runs of similar sizes share a store."""
    return -(-image_size * 3 // 2 // 128) * 128


def open_store(competition: Competition, root: Path, side: int, keep: bool | None = True) -> Store:
    """The competition's images, decoded now if they have not been. With `keep=None`, for those who want no pixels but
    what the files are, any store serves."""
    prepared = root / "data" / "prepared" / competition.slug
    names = np.unique(np.concatenate([competition.train["image"], competition.test["image"]]).astype(str))
    sources = _sources(competition.folder, names)
    path = prepared / f"pixels-{sources}-{0 if keep is False else side}"
    said = False
    while True:
        found = _serving(prepared, sources, side, bool(keep))
        if found and _hold(found):
            return Store(found, competition.folder, names, side, bool(keep))
        with locked(prepared / ".store.lock") as mine:
            if mine and not _serving(prepared, sources, side, bool(keep)):  # another may have just made it
                _sweep(prepared, sources, path)
                _build(path, competition.folder, names, side, keep is not False)
        if not mine:
            if not said:
                say("podium: another process is decoding the images; waiting for it")
            said = True
            time.sleep(0.5)


def open_verified_store(
    competition: Competition, root: Path, side: int, keep: bool | None = True, read: Sequence[str] = STORED
) -> Store:
    """A store of which these files are, to the bit, what was written; one that is damaged is made anew."""
    store = open_store(competition, root, side, keep)
    for name in read:
        if sha256(store.path / name) != store.manifest["sha256"][name]:
            say(f"podium: warning: {store.path / name} is damaged and is made anew")
            _held(store.path)
            shutil.rmtree(store.path)
            return open_store(competition, root, side, keep)
    return store


def _hold(path: Path) -> bool:
    """Keeps a store from being swept for as long as this process runs; False where that was too late."""
    try:
        if path not in _holds:
            _holds[path] = os.open(path / "manifest.json", os.O_RDONLY)
            fcntl.flock(_holds[path], fcntl.LOCK_SH)
        return (path / "manifest.json").exists()
    except OSError:
        return False


def _held(path: Path) -> bool:
    """Does another process read from the store?"""
    if path in _holds:
        os.close(_holds.pop(path))
    try:
        with (path / "manifest.json").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # no manifest: not a store that anybody could have opened
    return False


def _sources(folder: Path, names: NDArray[np.str_]) -> str:
    digest = hashlib.sha256(f"policy {POLICY}, thumbs {THUMB}\n".encode())
    for name in names:
        try:
            about = os.stat(f"{folder}/{name}")
            stamp = f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}"
        except OSError:
            stamp = "none"
        digest.update(f"{name}\0{stamp}\n".encode())
    return digest.hexdigest()[:16]


def _serving(prepared: Path, sources: str, side: int, keep: bool) -> Path | None:
    """The store that holds what one of this side would. Where no image had to be shrunk, others do."""
    for path in sorted(prepared.glob(f"pixels-{sources}-*")):
        manifest = _manifest(path)
        if manifest:
            same = manifest["side"] == side or manifest["largest"] <= min(side, manifest["side"])
            if not keep or (manifest["kept"] and same):
                return path
    return None


def _manifest(path: Path) -> dict[str, Any]:
    """What a store says of itself; nothing where it is not whole."""
    try:
        manifest = dict(json.loads((path / "manifest.json").read_text(encoding="utf-8")))
        sizes = {name: (path / name).stat().st_size for name in STORED}
        kinds = {"side": int, "largest": int, "kept": bool, "sha256": dict}
        whole = sizes == manifest["bytes"] and sizes.keys() == manifest["sha256"].keys()
        return manifest if whole and all(isinstance(manifest[key], kind) for key, kind in kinds.items()) else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def _sweep(prepared: Path, sources: str, wanted: Path) -> None:
    """Deletes stores of files that have changed since, damaged ones, and, where pixels are not wanted, begun ones."""
    for path in prepared.glob("pixels-*"):
        stale, held = path.name.split("-")[1] != sources, _held(path)
        damaged = not stale and not _manifest(path)
        if damaged:
            say(f"podium: warning: {path} is damaged and is made anew")
        if damaged or (stale and not held):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in prepared.glob(".pixels-*"):
        if path.name.split("-")[1] != sources or (wanted.name.endswith("-0") and path.name != f".{wanted.name}"):
            shutil.rmtree(path)


# --- making one ------------------------------------------------------------------------------------------


def _build(path: Path, folder: Path, names: NDArray[np.str_], side: int, keep: bool) -> None:
    """Appends image after image to files in a hidden folder, which becomes `path` when it is whole."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.mkdir(parents=True, exist_ok=True)
    files = _recover(unfinished, names, keep)
    remedy = "free some, or do without kept pixels (--store off)" if keep else "free some"
    with explain_full_disk(unfinished, remedy), _Writer(unfinished, files) as writer:
        with progress_bar(total=len(names), initial=len(files), desc="decoding", unit="image") as progress:
            for file, pixels, thumb in _decoded(folder, names[len(files) :], side):
                writer.add(file, pixels if keep else b"", thumb)
                progress.update()
        digests = writer.close()
        stored = np.array([(file.stored_height, file.stored_width) for file in files], dtype=np.int64).reshape(-1, 2)
        starts = np.concatenate([[0], np.cumsum(stored.prod(1) * 3)[:-1]])
        np.save(unfinished / "index.npy", np.column_stack([starts, stored]))
        digests["index.npy"] = sha256(unfinished / "index.npy")
        manifest = {
            "policy": POLICY,
            "side": side,
            "kept": keep,
            "images": len(files),
            "largest": max(min(file.width, file.height) for file in files),
            "bytes": {name: (unfinished / name).stat().st_size for name in digests},
            "sha256": digests,
        }
        write_json(unfinished / "manifest.json", manifest)
        rename_durably(unfinished, path)


def _decoded(folder: Path, names: NDArray[np.str_], side: int) -> Iterator[tuple[FileRecord, bytes, bytes]]:
    """What each file is, in order; several threads decode, since Pillow and OpenCV let others run meanwhile."""
    some = [names[at : at + AT_ONCE] for at in range(0, len(names), AT_ONCE)]
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    waiting: deque[Future[list[tuple[FileRecord, bytes, bytes]]]] = deque()
    pool, leaving = ThreadPoolExecutor(threads), threading.Event()
    try:
        for each in some:
            waiting.append(pool.submit(_look_at, folder, each, side, leaving))
            if len(waiting) > 4 * threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        leaving.set()
        pool.shutdown(cancel_futures=True)


def _look_at(
    folder: Path, names: NDArray[np.str_], side: int, leaving: threading.Event
) -> list[tuple[FileRecord, bytes, bytes]]:
    return [_look(folder, str(name), side) for name in names if not leaving.is_set()]


def _look(folder: Path, name: str, side: int) -> tuple[FileRecord, bytes, bytes]:
    data = b""
    try:
        data = read_file(folder / name)
        pixels, header = examine(data, name)
    except BadImage as bad:
        digest = hashlib.sha256(data).hexdigest()
        return FileRecord(name, len(data), digest, "", "", "", 0, 0, 0, 0, bad.reason), b"", bytes(THUMB * THUMB * 3)
    height, width = pixels.shape[:2]
    stored = shrink(pixels, side)
    thumb = cv2.resize(pixels, (THUMB, THUMB), interpolation=cv2.INTER_AREA)
    file = FileRecord(
        name, len(data), hashlib.sha256(data).hexdigest(), *header, width, height, stored.shape[1], stored.shape[0], ""
    )
    return file, stored.tobytes(), thumb.tobytes()


class _Writer:
    """Appends to the three files such that whatever files.jsonl tells of is in the other two."""

    def __init__(self, folder: Path, files: list[FileRecord]) -> None:
        self.folder, self.files = folder, files
        self.lines: list[str] = []
        self.committed = time.monotonic()

    def __enter__(self) -> "_Writer":
        self.digests = {}
        self.opened: dict[str, BinaryIO] = {}
        self.closing = ExitStack()  # closes all, even if one fails
        for name in DATA:
            with (self.folder / name).open("ab+") as file:
                file.seek(0)
                self.digests[name] = hashlib.file_digest(file, "sha256")
            self.opened[name] = self.closing.enter_context((self.folder / name).open("ab"))
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self.closing:
            if kind is KeyboardInterrupt:
                self._commit()

    def add(self, file: FileRecord, pixels: bytes, thumb: bytes) -> None:
        self._write("pixels.bin", pixels)
        self._write("thumbs.bin", thumb)
        self.files.append(file)
        self.lines.append(json.dumps(file, ensure_ascii=False) + "\n")
        if time.monotonic() - self.committed > COMMIT_EVERY:
            self._commit()

    def close(self) -> dict[str, str]:
        """The hashes of what was written."""
        self._commit()
        return {name: digest.hexdigest() for name, digest in self.digests.items()}

    def _write(self, name: str, data: bytes) -> None:
        self.opened[name].write(data)
        self.digests[name].update(data)

    def _commit(self) -> None:
        self._flush("pixels.bin")
        self._flush("thumbs.bin")
        self._write("files.jsonl", "".join(self.lines).encode())
        self._flush("files.jsonl")
        self.lines.clear()
        self.committed = time.monotonic()

    def _flush(self, name: str) -> None:
        self.opened[name].flush()
        os.fsync(self.opened[name].fileno())


def _recover(folder: Path, names: NDArray[np.str_], keep: bool) -> list[FileRecord]:
    """What an interrupted build has decoded; its files are cut to that."""
    there = {name: (folder / name).stat().st_size if (folder / name).exists() else 0 for name in DATA}
    files: list[FileRecord] = []
    ends = dict.fromkeys(DATA, 0)
    if there["files.jsonl"]:
        with (folder / "files.jsonl").open("rb") as lines:
            for line, name in zip(lines, names, strict=False):
                try:
                    file = FileRecord(*json.loads(line))
                    pixels = int(file.stored_height) * int(file.stored_width) * 3 if keep else 0
                except (ValueError, TypeError):
                    break
                sizes = {"pixels.bin": pixels, "thumbs.bin": THUMB * THUMB * 3, "files.jsonl": len(line)}
                reached = {data: ends[data] + sizes[data] for data in DATA}
                torn = file.image != name or not line.endswith(b"\n")
                if torn or any(reached[data] > there[data] for data in DATA):
                    break
                files.append(file)
                ends = reached
    for data in DATA:
        with (folder / data).open("ab") as opened:
            opened.truncate(ends[data])
    return files
