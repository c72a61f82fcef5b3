"""Reading the store: its pixels are those of the image files, to the bit, and unreadable files are named."""

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pictures import bomb, saved
from podium.basics.disk import sha256
from podium.competition.load import load
from podium.images.decode import read_image, shrink
from podium.images.store import open_store, stored_side
from stores import IMAGES, LARGEST, SIDE, are_equal, decoded, open_tiny, pixels_in, train_image
from tiny import write_image

# --- the pixels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [1, 8, SIDE, 30, 999])
def test_the_pixels_are_those_of_the_files_whether_stored_or_not(root: Path, side: int) -> None:
    without_pixels = open_tiny(root, side, keep=False)
    with_pixels = open_tiny(root, side)
    assert without_pixels.path != with_pixels.path
    assert (without_pixels.path / "pixels.bin").stat().st_size == 0
    assert (with_pixels.path / "pixels.bin").stat().st_size == sum(image.size for image in decoded(root, side))
    assert are_equal(pixels_in(without_pixels), decoded(root, side))
    assert are_equal(pixels_in(with_pixels), decoded(root, side))


def test_images_are_shrunk_in_proportion_and_never_enlarged(root: Path) -> None:
    store = open_tiny(root)
    for file, image in zip(store.files, pixels_in(store), strict=True):
        height, width = image.shape[:2]
        assert (file.stored_width, file.stored_height) == (width, height)
        if min(file.width, file.height) <= SIDE:
            assert (width, height) == (file.width, file.height)
        else:
            assert min(width, height) == SIDE
            assert abs(width * file.height / file.width - height) < 1
    assert {min(file.width, file.height) for file in store.files} == {1, 20, 24, 30, LARGEST}


@given(st.integers(1, 4000))
def test_the_side_of_a_store_leaves_room_for_a_crop_and_is_shared_by_similar_sizes(image_size: int) -> None:
    side = stored_side(image_size)
    assert image_size * 1.5 <= side < image_size * 1.5 + 128
    assert side % 128 == 0


@pytest.mark.parametrize("keep", [True, False])
def test_a_reader_reads_the_images_that_it_was_made_for(root: Path, keep: bool) -> None:
    competition, store = load("tiny", root), open_tiny(root, keep=keep)
    assert list(competition.test["image"]) == ["test_image/001.jpg", "test_image/000.jpg"]  # the sample's order
    for names in (list(competition.train["image"]), list(competition.test["image"]), ["train_image/005.jpg"] * 2):
        read = store.reader(store.positions(names))
        images = [read(number) for number in range(len(names))]
        assert are_equal(images, [shrink(read_image(competition.folder / name), SIDE) for name in names])


def test_without_stored_pixels_the_store_of_another_side_is_not_read(root: Path) -> None:
    open_tiny(root, 30)
    assert are_equal(pixels_in(open_tiny(root, 8, keep=False)), decoded(root, 8))
    assert are_equal(pixels_in(open_tiny(root, 200, keep=False)), decoded(root, 200))


def test_a_pickled_reader_holds_no_pixels_and_reads_the_same_in_another_process(root: Path) -> None:
    stores = [open_tiny(root, 999, keep) for keep in (True, False)]
    readers = [store.reader(np.arange(IMAGES)) for store in stores]
    for reader, store in zip(readers, stores, strict=True):
        assert len(pickle.dumps(reader)) < 3_000 < sum(image.size for image in pixels_in(store))
    script = (
        "import hashlib, pickle, sys\n"
        "for read in pickle.load(sys.stdin.buffer):\n"
        f"    print(hashlib.sha256(b''.join(read(i).tobytes() for i in range({IMAGES}))).hexdigest())"
    )
    process = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(readers), capture_output=True, check=True
    )
    own_hashes = [
        hashlib.sha256(b"".join(image.tobytes() for image in pixels_in(store))).hexdigest() for store in stores
    ]
    assert process.stdout.decode().split() == own_hashes


def test_every_image_has_the_same_thumbnail_in_every_store(root: Path) -> None:
    small, large, without_pixels = (
        np.array(open_tiny(root, side, keep).thumbs) for side, keep in ((8, True), (30, True), (8, False))
    )
    assert small.shape == (IMAGES, 24, 24, 3)
    assert np.array_equal(small, large)
    assert np.array_equal(small, without_pixels)
    image = read_image(train_image(root, "004"))
    assert np.array_equal(small[2 + 4], image)  # 24 x 24 already; the two test images come first


# --- the records -------------------------------------------------------------------------------------


def test_the_record_of_a_file_says_what_it_is(root: Path) -> None:
    path, store = train_image(root, "006"), open_tiny(root)
    record = store.files[int(store.positions(["train_image/006.jpg"])[0])]
    sizes = (30, 40, 24, 32)
    assert tuple(record) == (
        *("train_image/006.jpg", path.stat().st_size, sha256(path), "PNG", "RGBA", ""),
        *(*sizes, "", None, 1),
    )


def test_the_digest_of_images_depends_on_their_contents_and_order_only(root: Path) -> None:
    path, positions = train_image(root, "008"), np.array([1, 10])
    store = open_tiny(root)
    assert store.names[positions].tolist() == ["test_image/001.jpg", "train_image/008.jpg"]
    digest = store.digest(positions)
    assert store.digest(positions[::-1]) != digest
    os.utime(path, ns=(0, 0))
    assert open_tiny(root, 8).digest(positions) == digest
    write_image(path, (1, 2, 3), 0)
    assert open_tiny(root).digest(positions) != digest


# --- unreadable files --------------------------------------------------------------------------------


def first_half(kind: str) -> Callable[[Path], object]:
    """Returns a function that writes the first half of an image file."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8))
    data = saved(noise, kind)
    return lambda path: path.write_bytes(data[: len(data) // 2])


UNREADABLE: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.write_bytes(b""), "the file is empty"),
    (lambda path: path.write_text("<!DOCTYPE html><html>Please log in</html>"), "it is a web page, not a JPEG"),
    (first_half("JPEG"), "truncated"),
    (first_half("PNG"), "Truncated"),
    (lambda path: path.mkdir(), "it is a folder"),
    (lambda path: path.symlink_to("nowhere"), "No such file"),
    (os.mkfifo, "it is not a regular file"),
    (lambda path: path.write_bytes(bomb("PNG", 20_000)), "it has 20000 x 20000 pixels, more than 100 million"),
]


@pytest.mark.parametrize("keep", [True, False])
def test_every_unreadable_file_has_a_reason_and_the_others_are_read(root: Path, keep: bool) -> None:
    competition = load("tiny", root)
    for number, (write_unreadable, _) in enumerate(UNREADABLE):
        path = train_image(root, f"{number:03d}")
        path.unlink()
        write_unreadable(path)
    store = open_store(competition, SIDE, keep)
    unreadable = store.positions([f"train_image/{number:03d}.jpg" for number in range(len(UNREADABLE))])
    for position, (_, reason) in zip(unreadable, UNREADABLE, strict=True):
        record = store.files[position]
        assert reason in record.reason
        assert (record.format, record.mode) == ("", "")
        assert (record.width, record.height, record.stored_width, record.stored_height) == (0, 0, 0, 0)
        assert not store.thumbs[position].any()
    readable = np.setdiff1d(np.arange(IMAGES), unreadable)
    assert store.bad(np.arange(IMAGES)).nonzero()[0].tolist() == unreadable.tolist()
    assert all(store.files[position].reason == "" for position in readable)
    read = store.reader(readable)
    expected = [shrink(read_image(competition.folder / store.names[position]), SIDE) for position in readable]
    assert are_equal([read(number) for number in range(len(readable))], expected)


def test_a_store_may_hold_no_readable_image(root: Path) -> None:
    for path in (root / "data" / "raw").rglob("*.jpg"):
        path.write_bytes(b"")
    store = open_tiny(root)
    assert store.bad(np.arange(IMAGES)).all()
    assert [record.reason for record in store.files] == ["the file is empty"] * IMAGES
    assert open_tiny(root, 8).path == store.path
