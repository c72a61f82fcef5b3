"""The store: every image decoded once, and the same bits whatever happens to the files, the disk or the process."""

import errno
import hashlib
import json
import os
import pickle
import shutil
import signal
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
from podium import PodiumError
from podium.competition.load import load
from podium.disk import locked, sha256
from podium.images import store
from podium.images.decode import POLICY, Pixels, examine, read_image, shrink
from podium.images.store import Store, open_store, open_verified_store, stored_side
from tiny import write_competition, write_image

SIDE = 24  # what most of the images below must be shrunk to
LARGEST = 60  # the longest shorter side among them
IMAGES = 12
ODD_SIZES = {"000": (60, 90), "001": (90, 60), "002": (70, 20), "003": (1, 1), "004": (24, 24), "005": (25, 24)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A competition of ten images to train on and two to answer, of many sizes."""
    folder = write_competition(tmp_path, each=3, test=2)
    for name, size in ODD_SIZES.items():
        write_image(folder / "train_image" / f"{name}.jpg", (90, 120, 60), int(name), size)
    image = Image.open(folder / "train_image" / "006.jpg").convert("RGBA")
    image.putalpha(100)
    image.save(folder / "train_image" / "006.jpg", "PNG")
    return tmp_path


def opened(root: Path, side: int = SIDE, keep: bool = True) -> Store:
    return open_store(load("tiny", root), root, side, keep)


def pixels(found: Store) -> list[Pixels]:
    read = found.reader(np.arange(len(found.names)))
    return [read(number) for number in range(len(found.names))]


def decoded(root: Path, side: int) -> list[Pixels]:
    folder = root / "data" / "raw" / "tiny"
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jpg"))
    return [shrink(read_image(folder / name), side) for name in names]


def same(some: list[Pixels], others: list[Pixels]) -> bool:
    pairs = list(zip(some, others, strict=True))
    return all(one.dtype == other.dtype == np.uint8 and np.array_equal(one, other) for one, other in pairs)


def contents(found: Store) -> dict[str, str]:
    return {path.name: sha256(path) for path in found.path.iterdir()}


def prepared(root: Path, pattern: str = "*pixels-*") -> list[str]:
    return sorted(path.name for path in (root / "data" / "prepared" / "tiny").glob(pattern))


def unfinished(root: Path) -> Path:
    return root / "data" / "prepared" / "tiny" / prepared(root, ".pixels-*")[0]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the images that are decoded from here on."""
    names: list[str] = []

    def noted(data: bytes, name: str) -> object:
        names.append(name)
        return examine(data, name)

    monkeypatch.setattr(store, "examine", noted)
    return names


def interrupt(root: Path, after: int, side: int = SIDE) -> None:
    """Stops a build when so many images were decoded and committed."""

    def interrupted(data: bytes, name: str) -> object:
        if name == stop:
            raise KeyboardInterrupt
        return examine(data, name)

    folder = root / "data" / "raw" / "tiny"
    stop = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jpg"))[after]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "examine", interrupted)
        patch.setattr(store, "AT_ONCE", 1)
        patch.setattr(store, "COMMIT_EVERY", -1)
        with pytest.raises(KeyboardInterrupt):
            opened(root, side)


@pytest.fixture
def whole(root: Path) -> dict[str, str]:
    """The files of a store that nothing disturbed; it is gone again."""
    found = opened(root)
    wanted = contents(found)
    shutil.rmtree(found.path)
    return wanted


# --- the pixels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [1, 8, SIDE, 30, 999])
def test_kept_or_not_the_pixels_are_those_of_the_files_bit_for_bit(root: Path, side: int) -> None:
    without = opened(root, side, keep=False)
    kept = opened(root, side)
    assert without.path != kept.path
    assert (without.path / "pixels.bin").stat().st_size == 0
    assert (kept.path / "pixels.bin").stat().st_size == sum(each.size for each in decoded(root, side))
    assert same(pixels(without), decoded(root, side))
    assert same(pixels(kept), decoded(root, side))


def test_images_are_shrunk_in_proportion_and_never_enlarged(root: Path) -> None:
    found = opened(root)
    for file, image in zip(found.files, pixels(found), strict=True):
        height, width = image.shape[:2]
        assert (file.stored_width, file.stored_height) == (width, height)
        if min(file.width, file.height) <= SIDE:
            assert (width, height) == (file.width, file.height)
        else:
            assert min(width, height) == SIDE
            assert abs(width * file.height / file.width - height) < 1
    assert {min(file.width, file.height) for file in found.files} == {1, 20, 24, 30, LARGEST}


@given(st.integers(1, 4000))
def test_the_side_of_a_store_leaves_room_for_a_crop_and_is_shared_by_similar_sizes(image_size: int) -> None:
    side = stored_side(image_size)
    assert image_size * 1.5 <= side < image_size * 1.5 + 128
    assert side % 128 == 0


@pytest.mark.parametrize("keep", [True, False])
def test_a_reader_reads_the_images_of_the_rows_it_was_made_for(root: Path, keep: bool) -> None:
    competition, found = load("tiny", root), opened(root, keep=keep)
    assert list(competition.test["image"]) == ["test_image/001.jpg", "test_image/000.jpg"]  # the sample's order
    for images in (list(competition.train["image"]), list(competition.test["image"]), ["train_image/005.jpg"] * 2):
        read = found.reader(found.positions(images))
        some = [read(number) for number in range(len(images))]
        assert same(some, [shrink(read_image(competition.folder / image), SIDE) for image in images])


def test_without_kept_pixels_no_store_of_another_size_is_read(root: Path) -> None:
    opened(root, 30)
    assert same(pixels(opened(root, 8, keep=False)), decoded(root, 8))
    assert same(pixels(opened(root, 200, keep=False)), decoded(root, 200))


@pytest.mark.parametrize("keep", [True, False])
def test_a_reader_is_sent_to_another_process_without_pixels_and_reads_the_same_there(root: Path, keep: bool) -> None:
    found = opened(root, 999, keep)
    read = found.reader(np.arange(IMAGES))
    here = hashlib.sha256(b"".join(read(number).tobytes() for number in range(IMAGES))).hexdigest()
    sent = pickle.dumps(read)
    assert len(sent) < 3_000 < sum(image.size for image in pixels(found))
    script = (
        "import hashlib, pickle, sys; read = pickle.load(sys.stdin.buffer)\n"
        f"print(hashlib.sha256(b''.join(read(i).tobytes() for i in range({IMAGES}))).hexdigest())"
    )
    there = subprocess.run([sys.executable, "-c", script], input=sent, capture_output=True, check=True)
    assert there.stdout.decode().strip() == here


def test_every_image_has_a_thumbnail_kept_or_not_and_at_any_size(root: Path) -> None:
    thumbs = [np.array(opened(root, *which).thumbs) for which in ((8, True), (30, True), (8, False))]
    assert thumbs[0].shape == (IMAGES, 24, 24, 3)
    assert np.array_equal(thumbs[0], thumbs[1])
    assert np.array_equal(thumbs[0], thumbs[2])
    image = read_image(root / "data" / "raw" / "tiny" / "train_image" / "004.jpg")
    assert np.array_equal(thumbs[0][2 + 4], image)  # 24 x 24 already; the two test images come first


# --- once, and anew when anything changes ----------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False])
def test_a_second_opening_decodes_nothing(root: Path, seen: list[str], keep: bool) -> None:
    first = opened(root, keep=keep)
    assert sorted(seen) == first.names.tolist()
    seen.clear()
    assert opened(root, keep=keep).path == first.path
    assert seen == []


def test_kept_pixels_serve_who_would_not_keep_them(root: Path, seen: list[str]) -> None:
    first = opened(root)
    seen.clear()
    assert opened(root, keep=False).path == first.path
    assert seen == []


def other_content(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = image.stat()
    image.write_bytes(image.read_bytes().replace(b"\x10\x20\x30", b"\x30\x20\x10"))
    os.utime(image, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert image.stat().st_size == about.st_size


def another_time(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(image, ns=(0, 0))


def deleted(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image.unlink()
    image.symlink_to("nowhere")


def another_policy(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "POLICY", POLICY + 1)


@pytest.mark.parametrize("change", [other_content, another_time, deleted, another_policy])
@pytest.mark.parametrize("keep", [True, False])
def test_what_changes_the_pixels_makes_the_store_anew_and_the_stale_one_goes(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    seen: list[str],
    change: Callable[[Path, pytest.MonkeyPatch], None],
    keep: bool,
) -> None:
    image = root / "data" / "raw" / "tiny" / "train_image" / "008.jpg"
    Image.new("RGB", (20, 20), (0x30, 0x20, 0x10)).save(image, "BMP")
    interrupt(root, 3, side=8)
    first = opened(root, keep=keep)
    assert len(prepared(root)) == (2 if keep else 1)  # who keeps no pixels needs the room
    seen.clear()
    change(image, monkeypatch)
    second = opened(root, keep=keep)
    assert second.sources != first.sources
    assert len(seen) == IMAGES - (change is deleted)
    assert prepared(root) == [second.path.name]
    if change is not deleted:
        assert same(pixels(second), decoded(root, SIDE))


def test_the_digest_of_images_is_of_their_contents_only(root: Path) -> None:
    image = root / "data" / "raw" / "tiny" / "train_image" / "008.jpg"
    where = np.array([1, 10])  # test_image/001.jpg and this one
    found = opened(root)
    assert found.names[where].tolist() == ["test_image/001.jpg", "train_image/008.jpg"]
    digest = found.digest(where)
    assert found.digest(where[::-1]) != digest
    os.utime(image, ns=(0, 0))
    assert opened(root, 8).digest(where) == digest
    write_image(image, (1, 2, 3), 0)
    assert opened(root).digest(where) != digest


def test_where_nothing_was_shrunk_a_store_serves_other_sizes_too(root: Path, seen: list[str]) -> None:
    first = opened(root, 999)
    seen.clear()
    for side in (LARGEST, LARGEST + 1, 2000):
        found = opened(root, side)
        assert found.path == first.path
        assert same(pixels(found), decoded(root, side))
    assert seen == []


@pytest.mark.parametrize(("first", "second"), [(999, LARGEST - 1), (LARGEST - 1, 999), (SIDE, 8), (8, SIDE)])
def test_where_something_was_shrunk_each_size_has_its_own_store(root: Path, first: int, second: int) -> None:
    before = opened(root, first)
    after = opened(root, second)
    assert after.path != before.path
    assert same(pixels(after), decoded(root, second))
    assert same(pixels(opened(root, first)), decoded(root, first))
    assert len(prepared(root)) == 2


# --- interrupted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 7, IMAGES - 1])
def test_an_interrupted_build_goes_on_where_it_stopped_and_ends_the_same(
    root: Path, whole: dict[str, str], seen: list[str], after: int
) -> None:
    interrupt(root, after)
    assert len((unfinished(root) / "files.jsonl").read_bytes().splitlines()) == after
    seen.clear()
    found = opened(root)
    assert len(seen) == IMAGES - after
    assert contents(found) == whole
    assert prepared(root) == [found.path.name]


def test_a_build_that_is_interrupted_again_and_again_ends_the_same(root: Path, whole: dict[str, str]) -> None:
    for after in range(IMAGES):
        interrupt(root, after)
    assert contents(opened(root)) == whole


def cut(name: str, by: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        os.truncate(folder / name, max(0, (folder / name).stat().st_size - by))

    return change


def append(name: str, data: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with (folder / name).open("ab") as file:
            file.write(data)

    return change


def shuffle_lines(folder: Path) -> None:
    lines = (folder / "files.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "files.jsonl").write_bytes(b"".join([*lines[:2], *lines[:1:-1]]))


TORN: dict[str, Callable[[Path], None]] = {
    **{f"{name} lacks {by} bytes": cut(name, by) for name in store.DATA for by in (1, 40, 3000, 10**9)},
    **{f"{name} is missing": lambda folder, name=name: (folder / name).unlink() for name in store.DATA},  # type: ignore[misc]
    **{f"{name} ends in zeros": append(name, bytes(5000)) for name in store.DATA},
    "garbage after the lines": append("files.jsonl", b"\xff\xfe{]\n\n"),
    "half a line": append("files.jsonl", b'["train_image/004.jpg", 120'),
    "a line of something else": append("files.jsonl", b'{"image": 1}\n'),
    "a line with too little": append("files.jsonl", b'["train_image/004.jpg"]\n'),
    "a line of another image": append("files.jsonl", json.dumps(["x.jpg", 1, "", "", "", 0, 0, 0, 0, ""]).encode()),
    "a line of more pixels than there are": append(
        "files.jsonl", json.dumps(["train_image/004.jpg", 1, "", "JPEG", "RGB", 9, 9, 9, 9, ""]).encode() + b"\n"
    ),
    "lines of other images": shuffle_lines,
    "nothing is left": lambda folder: shutil.rmtree(folder),
}


@pytest.mark.parametrize("tear", TORN)
def test_a_torn_tail_is_cut_off_and_decoded_again(root: Path, whole: dict[str, str], tear: str) -> None:
    interrupt(root, 6)
    TORN[tear](unfinished(root))
    assert contents(opened(root)) == whole


PROCESS = """
import os, signal, sys
from pathlib import Path
from podium.images import store
from podium.competition.load import load
seen, examine = [], store.examine
store.examine = lambda data, name: (seen.append(name), examine(data, name))[1]
{}
root = Path(sys.argv[1])
found = store.open_store(load("tiny", root), root, {})
print(len(seen), found.path)
"""


def process(root: Path, prelude: str = "") -> "subprocess.Popen[str]":
    script = PROCESS.format(prelude, SIDE)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", script, str(root)], stdout=pipe, stderr=pipe, text=True)


def test_a_killed_process_has_lost_nothing_that_it_committed(
    root: Path, whole: dict[str, str], seen: list[str]
) -> None:
    prelude = """
def fsync(number):
    calls.append(number)
    if len(calls) == 3 * 5 + 2:  # the sixth image's pixels are on the disk, its line is not
        os.kill(os.getpid(), signal.SIGKILL)
calls, os.fsync, store.COMMIT_EVERY = [], fsync, -1
"""
    with process(root, prelude) as killed:
        assert killed.communicate()[0] == ""
    assert killed.returncode == -signal.SIGKILL
    assert len((unfinished(root) / "files.jsonl").read_bytes().splitlines()) == 5
    seen.clear()
    found = opened(root)
    assert len(seen) == IMAGES - 5
    assert contents(found) == whole


def test_of_two_processes_one_decodes_and_the_other_waits_for_it(root: Path, whole: dict[str, str]) -> None:
    with process(root) as one, process(root) as other:
        with locked(root / "data" / "prepared" / "tiny" / ".store.lock") as mine:
            assert mine
            for each in (one, other):
                assert each.stderr
                assert "another process is decoding the images; waiting for it" in each.stderr.readline()
        said = [each.communicate()[0].split() for each in (one, other)]
    assert sorted(count for count, _ in said) == ["0", str(IMAGES)]
    found = opened(root)
    assert {path for _, path in said} == {str(found.path)}
    assert contents(found) == whole


@pytest.mark.parametrize("written", [0, 1, 5, 3 * IMAGES - 1])
def test_a_full_disk_is_one_sentence_with_the_path_and_the_build_goes_on_later(
    root: Path, whole: dict[str, str], written: int
) -> None:
    left = [None] * written
    write = store._Writer._write

    def full(self: object, name: str, data: bytes) -> None:
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left.pop()
        write(self, name, data)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._Writer, "_write", full)
        patch.setattr(store, "COMMIT_EVERY", -1)
        with pytest.raises(PodiumError) as refused:
            opened(root)
    said = str(refused.value)
    assert said.startswith(f"no space left to write {unfinished(root)}; ")
    assert "--store off" in said
    assert "\n" not in said
    assert contents(opened(root)) == whole


# --- damaged ---------------------------------------------------------------------------------------------


def manifest_of(text: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "manifest.json").write_bytes(text)

    return change


def without(key: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        del manifest[key]
        (folder / "manifest.json").write_text(json.dumps(manifest))

    return change


def into_folder(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").mkdir()


def emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


FILES = (*store.DATA, "index.npy", "manifest.json")
DAMAGED: dict[str, Callable[[Path], None]] = {
    **{f"{name} is missing": lambda folder, name=name: (folder / name).unlink() for name in FILES},  # type: ignore[misc]
    **{f"{name} is shorter": cut(name, 3) for name in FILES},
    **{f"{name} is longer": append(name, b"x") for name in FILES},
    **{f"the manifest lacks {key}": without(key) for key in ("bytes", "side", "kept")},
    **{
        f"the manifest is {text!r}": manifest_of(text)
        for text in (b"", b"{", b"[]", b"null", b"3", b'"x"', b"{}", b'{"bytes": 1}', b'{"bytes": []}', b"\xff\xfe\x00")
    },
    "the manifest has text for a number": manifest_of(b'{"bytes": {}, "side": "24", "largest": "60", "kept": true}'),
    "the manifest is a folder": into_folder,
    "nothing is in it": emptied,
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_store_is_made_anew_and_that_is_said(
    root: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    first = opened(root)
    wanted = contents(first)
    DAMAGED[damage](first.path)
    assert contents(opened(root)) == wanted
    assert f"warning: {first.path} is damaged and is made anew" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*store.DATA, "index.npy"])
def test_one_flipped_bit_is_found_and_the_store_deleted(
    root: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    first = opened(root)
    wanted = contents(first)
    data = bytearray((first.path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (first.path / name).write_bytes(data)
    found = opened(root)
    assert found.path == first.path  # its size is right, and more is not looked at every time
    others = [each for each in (*store.DATA, "index.npy") if each != name]
    assert open_verified_store(load("tiny", root), root, SIDE, read=others).path == first.path
    assert capsys.readouterr().err == ""
    again = open_verified_store(load("tiny", root), root, SIDE)
    assert f"{first.path / name} is damaged and is made anew" in capsys.readouterr().err
    assert contents(again) == wanted


# --- what is no image ------------------------------------------------------------------------------------


def as_folder(path: Path) -> None:
    path.mkdir()


def as_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def half(kind: str) -> Callable[[Path], object]:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8))
    data = saved(noise, kind)
    return lambda path: path.write_bytes(data[: len(data) // 2])


BAD: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.write_bytes(b""), "the file is empty"),
    (lambda path: path.write_text("<!DOCTYPE html><html>Please log in</html>"), "it is a web page, no JPEG"),
    (half("JPEG"), "truncated"),
    (half("PNG"), "Truncated"),
    (as_folder, "it is a folder"),
    (as_dangling_link, "No such file"),
    (os.mkfifo, "it is no regular file"),
    (lambda path: path.write_bytes(bomb("PNG", 20_000)), "it has 20000 x 20000 pixels, more than 100 million"),
]


def test_a_signal_keeps_what_was_decoded_and_waits_for_one_image_a_thread(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    competition, looked = load("tiny", root), []
    look, add = store._look, store._Writer.add

    def looking(folder: Path, name: str, side: int) -> object:
        looked.append(name)
        return look(folder, name, side)

    def stopping(self: store._Writer, *given: object) -> None:
        add(self, *given)  # type: ignore[arg-type]
        if len(self.files) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(store, "COMMIT_EVERY", 1e9)
    monkeypatch.setattr(store, "_look", looking)
    monkeypatch.setattr(store._Writer, "add", stopping)
    with pytest.raises(KeyboardInterrupt):
        open_store(competition, root, 128)
    monkeypatch.setattr(store._Writer, "add", add)
    looked.clear()
    assert len(open_store(competition, root, 128).files) == len(looked) + 7


@pytest.mark.parametrize("keep", [True, False])
def test_every_bad_file_is_named_with_a_reason_and_stops_no_other(root: Path, keep: bool) -> None:
    competition = load("tiny", root)
    for number, (spoil, _) in enumerate(BAD):
        image = competition.folder / "train_image" / f"{number:03d}.jpg"
        image.unlink()
        spoil(image)
    found = open_store(competition, root, SIDE, keep)
    spoilt = found.positions([f"train_image/{number:03d}.jpg" for number in range(len(BAD))])
    for at, (_, reason) in zip(spoilt, BAD, strict=True):
        file = found.files[at]
        assert reason in file.reason
        assert (file.format, file.mode) == ("", "")
        assert (file.width, file.height, file.stored_width, file.stored_height) == (0, 0, 0, 0)
        assert not found.thumbs[at].any()
    sound = np.setdiff1d(np.arange(IMAGES), spoilt)
    assert found.bad(np.arange(IMAGES)).nonzero()[0].tolist() == spoilt.tolist()
    assert all(found.files[at].reason == "" for at in sound)
    read = found.reader(sound)
    images = [shrink(read_image(competition.folder / found.names[at]), SIDE) for at in sound]
    assert same([read(number) for number in range(len(sound))], images)


def test_a_store_without_a_single_image_is_one_too(root: Path) -> None:
    for image in (root / "data" / "raw").rglob("*.jpg"):
        image.write_bytes(b"")
    found = opened(root)
    assert found.bad(np.arange(IMAGES)).all()
    assert [file.reason for file in found.files] == ["the file is empty"] * IMAGES
    assert opened(root, 8).path == found.path


def test_the_first_line_of_a_file_says_what_it_is(root: Path) -> None:
    image = root / "data" / "raw" / "tiny" / "train_image" / "006.jpg"
    found = opened(root)
    file = found.files[int(found.positions(["train_image/006.jpg"])[0])]
    assert file == ("train_image/006.jpg", image.stat().st_size, sha256(image), "PNG", "RGBA", "", 30, 40, 24, 32, "")


def test_a_store_that_another_process_reads_is_not_swept(root: Path) -> None:
    first = opened(root)
    code = f"""
import sys
from pathlib import Path
from podium.competition.load import load
from podium.images.store import open_store
store = open_store(load("tiny", Path({str(root)!r})), Path({str(root)!r}), {SIDE})
print(store.path.name, flush=True)
sys.stdin.read()
print(int(store.reader(store.positions(["train_image/008.jpg"]))(0).sum()), flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == first.path.name
        os.utime(root / "data" / "raw" / "tiny" / "train_image" / "001.jpg", ns=(0, 0))
        second = opened(root)
        assert sorted(prepared(root)) == sorted([first.path.name, second.path.name])
        said, _ = other.communicate(timeout=60)
    assert int(said) > 0
