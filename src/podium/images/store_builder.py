"""Builds a store: decodes all images of a competition, in threads, and appends them to a few large files.

`open_store` (store.py) calls it. It reads the image files and writes the files that store_format.py lists, first into a
hidden folder. An interrupted build continues there.
"""

import hashlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import cv2
import numpy as np
from numpy.typing import NDArray

from podium.basics.disk import explain_full_disk, rename_durably, sha256, write_json
from podium.basics.machine import usable_cores
from podium.basics.terminal import progress_bar
from podium.competition.containers.image_place import split_part
from podium.competition.containers.open_container import close_containers
from podium.competition.value_range import ValueRange
from podium.images.cut import cut_out
from podium.images.decode import POLICY, BadImage, decode_with_header, read_file, shrink
from podium.images.store_format import APPENDED, THUMB, FileRecord

IMAGES_PER_TASK = 16  # for one thread
COMMIT_EVERY = 2.0  # seconds; a power cut loses at most this much decoding


class DecodedFile(NamedTuple):
    record: FileRecord
    pixels: bytes  # shrunk; empty if the file cannot be read
    thumb: bytes


class Decoding(NamedTuple):
    """How the images of a store are decoded."""

    folder: Path  # of the image files
    side: int
    value_range: ValueRange | None
    channels: int = 3


def build_store(path: Path, names: NDArray[np.str_], decoding: Decoding, keep: bool) -> None:
    """Decodes the images `names`; the store appears at `path` when it is complete.

    With `keep=False` pixels.bin stays empty.
    """
    unfinished = path.with_name(f".{path.name}")
    unfinished.mkdir(parents=True, exist_ok=True)
    records = _recover(unfinished, names, keep, decoding.channels)
    remedy = "free some space, or keep no pixels (--store off)" if keep else "free some space"
    with explain_full_disk(unfinished, remedy):
        with (
            StoreWriter(unfinished, records) as writer,
            progress_bar(total=len(names), initial=len(records), desc="decoding", unit="image") as progress,
        ):
            for record, pixels, thumb in _decode_in_threads(names[len(records) :], decoding):
                writer.add(record, pixels if keep else b"", thumb)
                progress.update()
            hashes = writer.finish()
        np.save(unfinished / "index.npy", _index_of(records, decoding.channels))
        hashes["index.npy"] = sha256(unfinished / "index.npy")
        manifest = {
            "policy": POLICY,
            "side": decoding.side,
            "kept": keep,
            "images": len(records),
            "largest": max(min(record.width, record.height) for record in records),
            "bytes": {name: (unfinished / name).stat().st_size for name in hashes},
            "sha256": hashes,
        }
        write_json(unfinished / "manifest.json", manifest)
        close_containers()
        rename_durably(unfinished, path)


def _index_of(records: list[FileRecord], channels: int) -> NDArray[np.int64]:
    shapes = [(record.stored_height, record.stored_width) for record in records]
    stored = np.array(shapes, dtype=np.int64).reshape(-1, 2)
    offsets = np.concatenate([[0], np.cumsum(stored.prod(1) * channels)[:-1]])
    return np.column_stack([offsets, stored])


# --- decoding ----------------------------------------------------------------------------------------


def _decode_in_threads(names: NDArray[np.str_], decoding: Decoding) -> Iterator[DecodedFile]:
    """Yields the decoded files in order. Threads are enough: Pillow and OpenCV release the interpreter lock."""
    tasks = [names[start : start + IMAGES_PER_TASK] for start in range(0, len(names), IMAGES_PER_TASK)]
    thread_count = usable_cores()
    pending: deque[Future[list[DecodedFile]]] = deque()
    pool, stop = ThreadPoolExecutor(thread_count), threading.Event()
    try:
        for task in tasks:
            pending.append(pool.submit(_decode_task, task, decoding, stop))
            if len(pending) > 4 * thread_count:  # bounds the memory
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def _decode_task(names: NDArray[np.str_], decoding: Decoding, stop: threading.Event) -> list[DecodedFile]:
    return [_decode_file(str(name), decoding) for name in names if not stop.is_set()]


def _decode_file(name: str, decoding: Decoding) -> DecodedFile:
    data, (image, part) = b"", split_part(name)
    try:
        content = read_file(decoding.folder / image, decoding.value_range)
        data = content if isinstance(content, bytes) else content.tobytes()
        pixels, header = decode_with_header(content, image, decoding.value_range)
        if pixels.shape[2] != decoding.channels:
            raise BadImage(image, f"it has {pixels.shape[2]} channels, and the card names {decoding.channels}")
        pixels = cut_out(pixels, part)  # before it is shrunk: a small part keeps its details
    except BadImage as bad:
        digest = hashlib.sha256(data).hexdigest()
        record = FileRecord(name, len(data), digest, "", "", "", 0, 0, 0, 0, bad.reason)
        return DecodedFile(record, b"", bytes(THUMB * THUMB * 3))
    height, width = pixels.shape[:2]
    stored = shrink(pixels, decoding.side)
    thumb = cv2.resize(np.ascontiguousarray(pixels[..., :3]), (THUMB, THUMB), interpolation=cv2.INTER_AREA)
    digest = hashlib.sha256(data).hexdigest()
    sizes = width, height, stored.shape[1], stored.shape[0]
    record = FileRecord(name, len(data), digest, *header[:3], *sizes, "", header.values, header.pages)
    return DecodedFile(record, stored.tobytes(), thumb.tobytes())


# --- writing -----------------------------------------------------------------------------------------


class StoreWriter:
    """Appends images to the files of a store.

    The line of an image in files.jsonl is written only when its pixels and its thumbnail are on the disk.
    """

    def __init__(self, folder: Path, records: list[FileRecord]) -> None:
        """`records` are those of the images that the files hold already; new ones are appended to it."""
        self.folder, self.records = folder, records
        self.lines: list[str] = []  # not yet written
        self.committed_at = time.monotonic()

    def __enter__(self) -> Self:
        self.digests = {}
        self.files: dict[str, BinaryIO] = {}
        self.closing = ExitStack()  # closes every file, even if closing one of them fails
        for name in APPENDED:
            with (self.folder / name).open("ab+") as file:
                file.seek(0)
                self.digests[name] = hashlib.file_digest(file, "sha256")
            self.files[name] = self.closing.enter_context((self.folder / name).open("ab"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self.closing:
            if kind is KeyboardInterrupt:
                self._commit()

    def add(self, record: FileRecord, pixels: bytes, thumb: bytes) -> None:
        self._write("pixels.bin", pixels)
        self._write("thumbs.bin", thumb)
        self.records.append(record)
        self.lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        if time.monotonic() - self.committed_at > COMMIT_EVERY:
            self._commit()

    def finish(self) -> dict[str, str]:
        """Writes what is left; returns the hash of each file."""
        self._commit()
        return {name: digest.hexdigest() for name, digest in self.digests.items()}

    def _commit(self) -> None:
        self._flush("pixels.bin")
        self._flush("thumbs.bin")
        self._write("files.jsonl", "".join(self.lines).encode())
        self._flush("files.jsonl")
        self.lines.clear()
        self.committed_at = time.monotonic()

    def _write(self, name: str, data: bytes) -> None:
        self.files[name].write(data)
        self.digests[name].update(data)

    def _flush(self, name: str) -> None:
        self.files[name].flush()
        os.fsync(self.files[name].fileno())


def _recover(folder: Path, names: NDArray[np.str_], keep: bool, channels: int) -> list[FileRecord]:
    """Returns the records of the images that an interrupted build has stored; cuts its files after the last of them."""
    sizes = {name: (folder / name).stat().st_size if (folder / name).exists() else 0 for name in APPENDED}
    records: list[FileRecord] = []
    ends = dict.fromkeys(APPENDED, 0)
    if sizes["files.jsonl"]:
        with (folder / "files.jsonl").open("rb") as lines:
            for line, image in zip(lines, names, strict=False):
                try:
                    record = FileRecord(*json.loads(line))
                    pixel_bytes = int(record.stored_height) * int(record.stored_width) * channels if keep else 0
                except (ValueError, TypeError):
                    break
                lengths = {"pixels.bin": pixel_bytes, "thumbs.bin": THUMB * THUMB * 3, "files.jsonl": len(line)}
                next_ends = {name: ends[name] + lengths[name] for name in APPENDED}
                is_torn = record.image != image or not line.endswith(b"\n")
                if is_torn or any(next_ends[name] > sizes[name] for name in APPENDED):
                    break
                records.append(record)
                ends = next_ends
    for name in APPENDED:
        with (folder / name).open("ab") as file:
            file.truncate(ends[name])
    return records
