"""Unpacking an archive: completely or not at all, and only into its own folder."""

import io
import os
import re
import stat
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archives import make_7z, make_entry, make_tar, make_zip
from layouts import SLUG, raw_path
from podium.basics.errors import PodiumError
from podium.competition.load import Competition, load
from podium.kaggle.archive_kinds import MARGIN
from podium.kaggle.unpack_archives import unpack
from tiny import assert_says, write_file

NEEDS_7Z = pytest.mark.skipif(find_spec("py7zr") is None, reason="needs py7zr: pip install py7zr")


def unpack_files(tmp_path: Path, data: bytes) -> dict[str, bytes]:
    """Unpacks the archive and returns its files; nothing else may lie beside them."""
    (tmp_path / "it.zip").write_bytes(data)
    unpack(tmp_path / "it.zip", tmp_path / "it")
    assert sorted(os.listdir(tmp_path)) == ["it", "it.zip"]
    return {
        path.relative_to(tmp_path / "it").as_posix(): path.read_bytes()
        for path in (tmp_path / "it").rglob("*")
        if path.is_file()
    }


def refusal_of(tmp_path: Path, data: bytes) -> str:
    """Returns the message of the error; nothing may be left behind, in the folder or outside."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "it.zip").write_bytes(data)
    with pytest.raises(PodiumError) as error:
        unpack(folder / "it.zip", folder / "it")
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["a", "b", "it.zip"]
    message = str(error.value)
    assert message.startswith(str(folder / "it.zip"))
    assert_says(message, "run the same command again", f"unpack it yourself to {folder / 'it'}")
    assert "\n" not in message
    return message


FILES = {"train.csv": b"id,target\n1,cat\n", "train/1.jpg": bytes(3000), "test/2.jpg": b"", "a b/ünï/猫.jpg": b"x"}


# --- archives that are unpacked ----------------------------------------------------------------------


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_every_file_is_unpacked_exactly(tmp_path: Path, compression: int) -> None:
    assert unpack_files(tmp_path, make_zip(FILES, compression)) == FILES


def test_entries_of_folders_are_left_out(tmp_path: Path) -> None:
    assert unpack_files(
        tmp_path, make_zip({"train/": b"", "train/cat/": b"", "train/cat/1.jpg": b"x", "empty/": b""})
    ) == {"train/cat/1.jpg": b"x"}


def test_backslashes_in_a_name_separate_folders(tmp_path: Path) -> None:
    data = make_zip({"train\\": b"", "train\\cat\\1.jpg": b"x", ".\\train.csv": b"y"})
    assert unpack_files(tmp_path, data) == {"train/cat/1.jpg": b"x", "train.csv": b"y"}


PACKERS: dict[str, Callable[[Mapping[str, bytes]], bytes]] = {
    "zip": make_zip,
    "tar": partial(make_tar, mode="w"),
    "tar.gz": partial(make_tar, mode="w:gz"),
    "tgz": partial(make_tar, mode="w:gz"),
    "tar.bz2": partial(make_tar, mode="w:bz2"),
    "tar.xz": partial(make_tar, mode="w:xz"),
    "7z": make_7z,
}


KINDS = [pytest.param(kind, marks=NEEDS_7Z if kind == "7z" else ()) for kind in PACKERS]


@pytest.mark.parametrize("kind", KINDS)
def test_archives_of_every_kind_in_the_archive_are_unpacked(tmp_path: Path, kind: str) -> None:
    """Into a folder of the archive's name, unless that would be twice in the path."""
    pack = PACKERS[kind]
    data = make_zip(
        {
            f"train.{kind}": pack({"train/1.jpg": b"1", "train/cat/2.jpg": b""}),
            f"deep/TEST.{kind.upper()}": pack({"3.jpg": b"3"}),
            f"imgs.{kind}": pack({"train/4.jpg": b"4", "test/5.jpg": b"5"}),
            f"train.csv.{kind}": pack({"train.csv": b"id"}),
            f"sample.{kind}": pack({"sample.csv": b"id"}),
            f"__MACOSX/._train.{kind}": b"what macOS adds",
        }
    )
    files = unpack_files(tmp_path, data)
    assert files.pop(f"__MACOSX/._train.{kind}")
    assert files == {
        "train/1.jpg": b"1",
        "train/cat/2.jpg": b"",
        "deep/TEST/3.jpg": b"3",
        "imgs/train/4.jpg": b"4",
        "imgs/test/5.jpg": b"5",
        "train.csv": b"id",
        "sample.csv": b"id",
    }


def test_archives_in_archives_are_unpacked_too(tmp_path: Path) -> None:
    innermost = make_tar({"train/1.jpg": b"1"}, "w:gz")
    data = make_zip({"all.zip": make_zip({"train.tgz": innermost, "test.zip": make_zip({"2.jpg": b"2"})})})
    assert unpack_files(tmp_path, data) == {"all/train/1.jpg": b"1", "all/test/2.jpg": b"2"}


def test_dogs_vs_cats_is_unpacked_and_understood(tmp_path: Path) -> None:
    """Its images are in archives, and its labels in the names of the images."""
    images = [f"{name}.{i}.jpg" for name in ("cat", "dog") for i in range(2)]
    data = make_zip(
        {
            "train.zip": make_zip({"train/": b"", **{f"train/{name}": b"x" for name in images}}),
            "test.zip": make_zip({f"test/{i}.jpg": b"x" for i in (1, 2)}),
            "sample_submission.csv": b"id,label\n1,0.5\n2,0.5\n",
        }
    )
    competition = load_unpacked(tmp_path, data)
    assert list(competition.train["target"]) == ["cat", "cat", "dog", "dog"]
    assert list(competition.test["image"]) == ["test/1.jpg", "test/2.jpg"]
    assert competition.submission_format.wants == "probs"


@NEEDS_7Z
def test_cifar_10_is_unpacked_and_understood(tmp_path: Path) -> None:
    data = make_zip(
        {
            "train.7z": make_7z({f"train/{i}.png": b"x" for i in (1, 2, 3)}),
            "test.7z": make_7z({f"test/{i}.png": b"x" for i in (1, 2)}),
            "trainLabels.csv": b"id,label\n1,frog\n2,truck\n3,cat\n",
            "sampleSubmission.csv": b"id,label\n1,cat\n2,cat\n",
        }
    )
    competition = load_unpacked(tmp_path, data)
    assert list(competition.train["image"]) == ["train/1.png", "train/2.png", "train/3.png"]
    assert list(competition.test["image"]) == ["test/1.png", "test/2.png"]
    assert not competition.notes


def load_unpacked(tmp_path: Path, data: bytes) -> Competition:
    archive = raw_path(tmp_path).with_suffix(".zip")
    write_file(archive, data)
    unpack(archive, raw_path(tmp_path))
    return load(SLUG, tmp_path)


def test_archives_in_archives_without_an_end_are_refused(tmp_path: Path) -> None:
    data = make_zip({"1.jpg": b"1"})
    for _ in range(7):
        data = make_zip({"a.zip": data})
    message = refusal_of(tmp_path, data)
    assert "(a.zip in a.zip in a.zip in a.zip in a.zip in a.zip in it): refused" in message
    assert "more than 5 levels deep" in message


def test_an_archive_beside_a_folder_of_its_name_adds_to_it(tmp_path: Path) -> None:
    data = make_zip({"train/1.jpg": b"1", "train.zip": make_zip({"train/2.jpg": b"2"})})
    assert unpack_files(tmp_path, data) == {"train/1.jpg": b"1", "train/2.jpg": b"2"}


def test_the_rest_of_an_interrupted_command_is_removed(tmp_path: Path) -> None:
    leftover = tmp_path / ".it.unpacking" / "train"
    leftover.mkdir(parents=True)
    (leftover / "half.jpg").write_bytes(b"x")
    assert unpack_files(tmp_path, make_zip(FILES)) == FILES


# --- archives that are refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../out.jpg",
        "../../out.jpg",
        "train/../../out.jpg",
        "/out.jpg",
        "//server/out.jpg",
        "..\\out.jpg",
        "train\\..\\..\\out.jpg",
        "\\out.jpg",
        "\\\\server\\out.jpg",
        "C:\\out.jpg",
        "C:/out.jpg",
        "c:out.jpg",
        "..",
        ".",
        "",
    ],
)
@pytest.mark.parametrize("inner", [False, True], ids=["outer", "inner"])
def test_an_entry_that_would_lie_outside_is_refused(tmp_path: Path, name: str, inner: bool) -> None:
    data = make_zip({"train.csv": b"id", name: b"x"})
    message = refusal_of(tmp_path, make_zip({"images.zip": data}) if inner else data)
    assert f"refused, its entry '{name}' would lie outside the folder" in message
    assert ("(images.zip in it)" in message) == inner


@pytest.mark.parametrize("target", ["/etc/passwd", "..", "1.jpg"])
def test_an_entry_that_is_a_link_is_refused(tmp_path: Path, target: str) -> None:
    link = make_entry("train/link")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(link, target)
        archive.writestr("train/link/1.jpg", b"x")
    assert "refused, its entry 'train/link' is a link" in refusal_of(tmp_path, file.getvalue())


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["train/1.jpg", "train\\1.jpg", "./train/1.jpg", "train//1.jpg"])
def test_a_name_that_comes_twice_is_refused(tmp_path: Path, second: str) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(make_entry("train/1.jpg"), b"x")
        archive.writestr(make_entry(second), b"y")
    assert "it holds 1.jpg twice" in refusal_of(tmp_path, file.getvalue())


def test_a_name_that_is_a_file_and_a_folder_is_refused(tmp_path: Path) -> None:
    assert "it holds train twice" in refusal_of(tmp_path, make_zip({"train": b"x", "train/1.jpg": b"y"}))
    refusal_of(tmp_path, make_zip({"train/1.jpg": b"y", "train": b"x"}))


def test_an_inner_archive_that_would_replace_a_file_is_refused(tmp_path: Path) -> None:
    message = refusal_of(tmp_path, make_zip({"train.csv": b"old", "train.csv.zip": make_zip({"train.csv": b"new"})}))
    assert "(train.csv.zip in it): it holds train.csv twice" in message


def make_zip_declaring(size: int, content: bytes = b"x") -> bytes:
    """Returns an archive that declares this size for its only file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1.jpg", content)
        archive.infolist()[0].file_size = size
    return file.getvalue()


def test_a_zip_bomb_is_refused_before_it_is_written(tmp_path: Path) -> None:
    message = refusal_of(tmp_path, make_zip_declaring(MARGIN + 1))
    assert f"refused as a zip bomb, it would write {MARGIN + 1:,} bytes; the limit is {MARGIN:,}" in message
    assert "refused as a zip bomb" in refusal_of(tmp_path, make_zip_declaring(10**15))


@pytest.mark.parametrize(("archive_count", "is_allowed"), [(2, True), (3, False)])
def test_a_zip_bomb_in_several_archives_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archive_count: int, is_allowed: bool
) -> None:
    size = 2_000_000
    monkeypatch.setattr("podium.kaggle.unpack_archives.MARGIN", 3 * size - 1)  # the least that is always allowed
    data = make_zip({f"{i}.zip": make_zip({f"{i}.jpg": bytes(size)}) for i in range(archive_count)})
    if is_allowed:
        assert len(unpack_files(tmp_path, data)) == archive_count
    else:
        assert f"(2.zip in it): refused as a zip bomb, it would write {size:,} bytes" in refusal_of(tmp_path, data)


def test_a_zip_bomb_that_hides_its_size_is_cut_off(tmp_path: Path) -> None:
    assert "not a valid zip archive" in refusal_of(tmp_path, make_zip_declaring(10, bytes(50_000_000)))


def test_an_archive_larger_than_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.kaggle.unpack_archives.MAX_RATIO", 10**15)
    message = refusal_of(tmp_path, make_zip_declaring(10**17))
    assert re.search(r"it needs 100000000\.0 GB and [0-9.]+ GB are free on that disk\); fix that", message)


@pytest.mark.parametrize("data", [b"", b"<html>Please log in</html>", b"Rar!\x1a\x07\0" + bytes(99), bytes(100_000)])
def test_a_file_that_is_not_a_zip_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    assert "not a valid zip archive (File is not a zip file); delete it and run" in refusal_of(tmp_path, data)


@pytest.mark.parametrize("kept_share", [0.2, 0.5, 0.9, 0.99])
def test_a_truncated_archive_is_refused(tmp_path: Path, kept_share: float) -> None:
    data = make_zip({f"{i}.jpg": os.urandom(500) for i in range(20)})
    assert "not a valid zip archive" in refusal_of(tmp_path, data[: int(len(data) * kept_share)])


def test_a_truncated_inner_archive_is_refused_by_name(tmp_path: Path) -> None:
    message = refusal_of(tmp_path, make_zip({"train.csv": b"id", "images.zip": make_zip(FILES)[:-30]}))
    assert "it.zip (images.zip in it): not a valid zip archive" in message


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_file_in_an_archive_is_noticed(tmp_path: Path, compression: int) -> None:
    data = bytearray(make_zip({"1.jpg": os.urandom(2000)}, compression))
    data[1000] ^= 0xFF
    refusal_of(tmp_path, bytes(data))


def test_an_archive_with_a_password_is_refused(tmp_path: Path) -> None:
    data = bytearray(make_zip({"train.csv": b"id"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = data.index(signature) + offset
        data[start : start + 2] = struct.pack("<H", struct.unpack("<H", data[start : start + 2])[0] | 1)
    assert "its entry 'train.csv' is protected with a password" in refusal_of(tmp_path, bytes(data))


# --- tar and 7z --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../out.jpg", "/out.jpg", "train/../../out.jpg", "C:\\out.jpg"])
def test_an_entry_of_a_tar_archive_that_would_lie_outside_is_refused(tmp_path: Path, name: str) -> None:
    message = refusal_of(tmp_path, make_zip({"train.tgz": make_tar({"1.jpg": b"1", name: b"x"})}))
    assert f"(train.tgz in it): refused, its entry '{name}' would lie outside the folder" in message


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_an_entry_of_a_tar_archive_that_is_no_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("train/link")
        member.type, member.linkname = kind, "/etc/passwd"
        archive.addfile(member)
    message = refusal_of(tmp_path, make_zip({"train.tar": file.getvalue()}))
    assert "refused, its entry 'train/link' is a link or a device" in message


def test_a_bomb_of_another_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.kaggle.unpack_archives.MARGIN", 50_000)
    monkeypatch.setattr("podium.kaggle.unpack_archives.MAX_RATIO", 1)
    kinds = {"tgz": make_tar, **({"7z": make_7z} if find_spec("py7zr") else {})}
    for kind, pack in kinds.items():
        message = refusal_of(tmp_path, make_zip({f"a.{kind}": pack({"1.jpg": bytes(900_000)})}))
        assert f"(a.{kind} in it): refused as a zip bomb, it would write 900,000 bytes" in message


@pytest.mark.parametrize("kept_share", [0.0, 0.2, 0.5, 0.7])
@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_truncated_inner_archive_is_refused(tmp_path: Path, kind: str, kept_share: float) -> None:
    data = PACKERS[kind]({f"{i}.jpg": os.urandom(2500) for i in range(20)})  # no entry ends where a share is cut off
    message = refusal_of(tmp_path, make_zip({f"train.{kind}": data[: int(len(data) * kept_share)]}))
    assert f"(train.{kind} in it): not a valid {'7z' if kind == '7z' else 'tar'} archive (" in message


@NEEDS_7Z
def test_a_damaged_file_in_a_7z_archive_is_noticed(tmp_path: Path) -> None:
    data = bytearray(make_7z({"1.jpg": os.urandom(2000)}))
    data[1000] ^= 0xFF
    assert "not a valid 7z archive" in refusal_of(tmp_path, make_zip({"train.7z": bytes(data)}))


@NEEDS_7Z
def test_links_and_passwords_in_a_7z_archive_are_refused(tmp_path: Path) -> None:
    from py7zr import SevenZipFile

    elsewhere = tmp_path.with_name(f"{tmp_path.name}-elsewhere")
    elsewhere.mkdir()
    (elsewhere / "link").symlink_to("1.jpg")
    (elsewhere / "1.jpg").write_bytes(b"1")
    packed = io.BytesIO()
    with SevenZipFile(packed, "w") as archive:
        archive.write(elsewhere / "1.jpg", "1.jpg")
        archive.write(elsewhere / "link", "link")
    assert "refused, its entry 'link' is a link" in refusal_of(tmp_path, make_zip({"train.7z": packed.getvalue()}))
    packed = io.BytesIO()
    with SevenZipFile(packed, "w", password="secret") as archive:
        archive.writestr(b"1", "1.jpg")
    assert "it is protected with a password" in refusal_of(tmp_path, make_zip({"train.7z": packed.getvalue()}))


def test_a_7z_archive_without_its_package_is_refused_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "py7zr", None)
    message = refusal_of(tmp_path, make_zip({"train.7z": b"packed"}))
    assert_says(message, "(train.7z in it): unpacking it needs py7zr", "pip install 'podium[formats]'")


@pytest.mark.parametrize("entries", [{}, {"train/": b""}])
def test_an_archive_without_files_is_refused(tmp_path: Path, entries: dict[str, bytes]) -> None:
    assert "it holds no files" in refusal_of(tmp_path, make_zip(entries))


def test_a_missing_archive_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.zip", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(PodiumError, match=f"{re.escape(str(path))}: cannot be unpacked \\({reason}"):
            unpack(path, tmp_path / "it")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "mine.txt").write_text("mine")
    (tmp_path / "it.zip").write_bytes(make_zip(FILES))
    with pytest.raises(PodiumError, match=r"it exists already; delete it to unpack it\.zip again"):
        unpack(tmp_path / "it.zip", tmp_path / "it")
    assert os.listdir(tmp_path / "it") == ["mine.txt"]


def test_an_interruption_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "it.zip").write_bytes(make_zip({f"{i}.jpg": b"x" for i in range(9)}))
    original_open = zipfile.ZipFile.open
    opened_names: list[str] = []

    def interrupt_at_the_fifth(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> object:
        opened_names.append(member.filename)
        if len(opened_names) == 5:
            assert len(list((folder / ".it.unpacking").iterdir())) == 4
            raise KeyboardInterrupt
        return original_open(archive, member)

    monkeypatch.setattr(zipfile.ZipFile, "open", interrupt_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        unpack(folder / "it.zip", folder / "it")
    assert os.listdir(folder) == ["it.zip"]


VALID = [
    make_zip(FILES),
    make_zip({"images.zip": make_zip(FILES)}, zipfile.ZIP_STORED),
    make_zip(FILES, zipfile.ZIP_LZMA),
]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    valid=st.sampled_from(VALID),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_damaged_archive_is_unpacked_or_refused_and_nothing_else_happens(
    tmp_path_factory: pytest.TempPathFactory, valid: bytes, changes: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("outside") / "here"
    folder.mkdir()
    data = bytearray(valid)
    for offset, value in changes:
        data[-1 - offset % len(data)] = value
    (folder / "it.zip").write_bytes(data)
    try:
        unpack(folder / "it.zip", folder / "it")
    except PodiumError:
        assert os.listdir(folder) == ["it.zip"]
    else:
        assert sorted(os.listdir(folder)) == ["it", "it.zip"]
    assert os.listdir(folder.parent) == ["here"]
