"""Building a store: after any interruption it continues after the last stored image and writes the same files."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.basics.disk import locked
from podium.basics.errors import PodiumError
from podium.images import store_builder
from podium.images.store_builder import StoreWriter
from podium.images.store_format import APPENDED, FileRecord
from second_round import first_of
from stores import (
    IMAGES,
    SIDE,
    append,
    file_hashes,
    interrupt_build,
    open_tiny,
    remove,
    shorten,
    store_folders,
    unfinished_store,
)


def stored_count(root: Path) -> int:
    """Returns how many images an unfinished store holds."""
    return len((unfinished_store(root) / "files.jsonl").read_bytes().splitlines())


# --- an interrupt ------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 7, IMAGES - 1])
def test_an_interrupted_build_continues_where_it_stopped(
    root: Path, expected_hashes: dict[str, str], decoded_names: list[str], after: int
) -> None:
    interrupt_build(root, after)
    assert stored_count(root) == after
    decoded_names.clear()
    store = open_tiny(root)
    assert len(decoded_names) == IMAGES - after
    assert file_hashes(store) == expected_hashes
    assert store_folders(root) == [store.path.name]


def test_a_build_that_is_interrupted_many_times_ends_with_the_same_files(
    root: Path, expected_hashes: dict[str, str]
) -> None:
    for after in range(IMAGES):
        interrupt_build(root, after)
    assert file_hashes(open_tiny(root)) == expected_hashes


def test_an_interrupt_writes_the_decoded_images_to_the_disk_first(
    root: Path, monkeypatch: pytest.MonkeyPatch, decoded_names: list[str]
) -> None:
    add = StoreWriter.add

    def add_and_interrupt(writer: StoreWriter, record: FileRecord, pixels: bytes, thumb: bytes) -> None:
        add(writer, record, pixels, thumb)
        if len(writer.records) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(store_builder, "COMMIT_EVERY", 1e9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StoreWriter, "add", add_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            open_tiny(root, 128)
    decoded_names.clear()
    assert len(open_tiny(root, 128).files) == len(decoded_names) + 7


# --- a torn end --------------------------------------------------------------------------------------


def swap_lines(folder: Path) -> None:
    lines = (folder / "files.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "files.jsonl").write_bytes(b"".join([*lines[:2], *lines[:1:-1]]))


def line_of(*fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


DAMAGES: dict[str, Callable[[Path], None]] = {
    **{f"{name} lacks {by} bytes": shorten(name, by) for name in APPENDED for by in (1, 40, 3000, 10**9)},
    **{f"{name} is missing": remove(name) for name in APPENDED},
    **{f"{name} ends in zeros": append(name, bytes(5000)) for name in APPENDED},
    "garbage after the lines": append("files.jsonl", b"\xff\xfe{]\n\n"),
    "half a line": append("files.jsonl", b'["train_image/004.jpg", 120'),
    "a line that is not a list": append("files.jsonl", b'{"image": 1}\n'),
    "a line with too few fields": append("files.jsonl", line_of("train_image/004.jpg")),
    "a line of another image": append("files.jsonl", line_of("x.jpg", 1, "", "", "", "", 0, 0, 0, 0, "")),
    "a line with more pixels than there are": append(
        "files.jsonl", line_of("train_image/004.jpg", 1, "", "JPEG", "RGB", "", 9, 9, 9, 9, "")
    ),
    "lines in another order": swap_lines,
    "all files are missing": lambda folder: shutil.rmtree(folder),
}


@pytest.mark.parametrize("damage", first_of(list(DAMAGES)[::3], DAMAGES))
def test_a_damaged_end_is_cut_off_and_decoded_again(root: Path, expected_hashes: dict[str, str], damage: str) -> None:
    interrupt_build(root, 6)
    DAMAGES[damage](unfinished_store(root))
    assert file_hashes(open_tiny(root)) == expected_hashes


@pytest.mark.parametrize("flushes", [0, 1, 5, 3 * IMAGES - 1])
def test_a_full_disk_is_one_line_with_a_remedy_and_the_build_continues_later(
    root: Path, expected_hashes: dict[str, str], flushes: int
) -> None:
    """Every stored image is flushed three times: pixels, thumbnail, line."""
    remaining = [None] * flushes
    fsync = os.fsync

    def fsync_until_full(descriptor: int) -> None:
        if not remaining:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        remaining.pop()
        fsync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", fsync_until_full)
        patch.setattr(store_builder, "COMMIT_EVERY", -1)
        with pytest.raises(PodiumError) as refused:
            open_tiny(root)
    message = str(refused.value)
    assert message.startswith(f"no space left to write {unfinished_store(root)}; ")
    assert "--store off" in message
    assert "\n" not in message
    assert file_hashes(open_tiny(root)) == expected_hashes


# --- other processes ---------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys
from pathlib import Path
from podium.competition.load import load
from podium.images import store_builder
from podium.images.store import open_store
names, decode = [], store_builder.decode_with_header
store_builder.decode_with_header = lambda data, name, *range: (names.append(name), decode(data, name, *range))[1]
{}
root = Path(sys.argv[1])
store = open_store(load("tiny", root), {})
print(len(names), store.path)
"""


def open_in_process(root: Path, prelude: str = "") -> "subprocess.Popen[str]":
    """Starts a process that opens the store and prints how many images it decoded, and the store's path."""
    script = SCRIPT.format(prelude, SIDE)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", script, str(root)], stdout=pipe, stderr=pipe, text=True)


def test_a_killed_process_loses_no_image_that_it_has_stored(
    root: Path, expected_hashes: dict[str, str], decoded_names: list[str]
) -> None:
    prelude = """
def fsync(number):
    calls.append(number)
    if len(calls) == 3 * 5 + 2:  # the pixels of the sixth image are on the disk, its line is not
        os.kill(os.getpid(), signal.SIGKILL)
calls, os.fsync, store_builder.COMMIT_EVERY = [], fsync, -1
"""
    with open_in_process(root, prelude) as process:
        assert process.communicate()[0] == ""
    assert process.returncode == -signal.SIGKILL
    assert stored_count(root) == 5
    decoded_names.clear()
    store = open_tiny(root)
    assert len(decoded_names) == IMAGES - 5
    assert file_hashes(store) == expected_hashes


def test_one_of_two_processes_decodes_and_the_other_waits(root: Path, expected_hashes: dict[str, str]) -> None:
    with open_in_process(root) as first, open_in_process(root) as second:
        with locked(root / "data" / "prepared" / "tiny" / ".store.lock") as is_locked:
            assert is_locked
            for process in (first, second):
                assert process.stderr
                assert "another process is decoding the images; waiting for it" in process.stderr.readline()
        outputs = [process.communicate()[0].split() for process in (first, second)]
    assert sorted(count for count, _ in outputs) == ["0", str(IMAGES)]
    store = open_tiny(root)
    assert {path for _, path in outputs} == {str(store.path)}
    assert file_hashes(store) == expected_hashes
