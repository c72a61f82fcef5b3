"""Archives: all of them or nothing, and nothing outside their folder."""

import io
import os
import re
import stat
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podium import PodiumError
from podium.kaggle.unpack import MARGIN, unpack


def packed(entries: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(raw_name(name, compression), content)
    return file.getvalue()


def raw_name(name: str, compression: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    """An entry of this very name; zipfile itself would clean it."""
    member = zipfile.ZipInfo("x")
    member.filename = name
    member.compress_type = compression
    return member


def unpacked(tmp_path: Path, data: bytes) -> dict[str, bytes]:
    (tmp_path / "it.zip").write_bytes(data)
    unpack(tmp_path / "it.zip", tmp_path / "it")
    assert sorted(os.listdir(tmp_path)) == ["it", "it.zip"]
    return {
        path.relative_to(tmp_path / "it").as_posix(): path.read_bytes()
        for path in (tmp_path / "it").rglob("*")
        if path.is_file()
    }


def refusal(tmp_path: Path, data: bytes) -> str:
    """What is said; nothing may be left behind, here or outside."""
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True, exist_ok=True)
    (here / "it.zip").write_bytes(data)
    with pytest.raises(PodiumError) as refused:
        unpack(here / "it.zip", here / "it")
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["a", "b", "it.zip"]
    said = str(refused.value)
    assert said.startswith(str(here / "it.zip"))
    assert said.endswith(f" and run the same command again, or unpack it yourself to {here / 'it'}")
    assert "\n" not in said
    return said


FILES = {"train.csv": b"id,target\n1,cat\n", "train/1.jpg": bytes(3000), "test/2.jpg": b"", "a b/ünï/猫.jpg": b"x"}


# --- what is unpacked ------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_every_file_is_there_to_the_letter(tmp_path: Path, compression: int) -> None:
    assert unpacked(tmp_path, packed(FILES, compression)) == FILES


def test_folders_have_entries_of_their_own_or_not(tmp_path: Path) -> None:
    assert unpacked(tmp_path, packed({"train/": b"", "train/cat/": b"", "train/cat/1.jpg": b"x", "empty/": b""})) == {
        "train/cat/1.jpg": b"x"
    }


def test_a_name_with_backslashes_is_one_in_folders(tmp_path: Path) -> None:
    data = packed({"train\\": b"", "train\\cat\\1.jpg": b"x", ".\\train.csv": b"y"})
    assert unpacked(tmp_path, data) == {"train/cat/1.jpg": b"x", "train.csv": b"y"}


def test_archives_in_the_archive_are_unpacked_where_they_lie(tmp_path: Path) -> None:
    data = packed(
        {
            "train.zip": packed({"train/1.jpg": b"1"}),
            "deep/TEST.ZIP": packed({"2.jpg": b"2"}),
            "train.csv.zip": packed({"train.csv": b"id"}),
        }
    )
    assert unpacked(tmp_path, data) == {"train/1.jpg": b"1", "deep/2.jpg": b"2", "train.csv": b"id"}


def test_archives_in_archives_in_the_archive_stay_packed(tmp_path: Path) -> None:
    innermost = packed({"1.jpg": b"1"})
    assert unpacked(tmp_path, packed({"a.zip": packed({"b.zip": innermost})})) == {"b.zip": innermost}


def test_what_an_interruption_left_is_swept(tmp_path: Path) -> None:
    leftover = tmp_path / ".it.unpacking" / "train"
    leftover.mkdir(parents=True)
    (leftover / "half.jpg").write_bytes(b"x")
    assert unpacked(tmp_path, packed(FILES)) == FILES


# --- what is refused -------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("inner", [False, True], ids=["itself", "an archive in it"])
def test_an_entry_that_would_lie_outside_is_refused(tmp_path: Path, name: str, inner: bool) -> None:
    data = packed({"train.csv": b"id", name: b"x"})
    said = refusal(tmp_path, packed({"images.zip": data}) if inner else data)
    assert f"refused, its entry '{name}' would lie outside the folder" in said
    assert ("(images.zip in it)" in said) == inner


@pytest.mark.parametrize("target", ["/etc/passwd", "..", "1.jpg"])
def test_an_entry_that_is_a_link_is_refused(tmp_path: Path, target: str) -> None:
    link = raw_name("train/link")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(link, target)
        archive.writestr("train/link/1.jpg", b"x")
    assert "refused, its entry 'train/link' is a link" in refusal(tmp_path, file.getvalue())


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("second", ["train/1.jpg", "train\\1.jpg", "./train/1.jpg", "train//1.jpg"])
def test_a_name_that_comes_twice_is_refused(tmp_path: Path, second: str) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(raw_name("train/1.jpg"), b"x")
        archive.writestr(raw_name(second), b"y")
    assert "it holds 1.jpg twice" in refusal(tmp_path, file.getvalue())


def test_a_name_that_is_a_file_and_a_folder_is_refused(tmp_path: Path) -> None:
    assert "it holds train twice" in refusal(tmp_path, packed({"train": b"x", "train/1.jpg": b"y"}))
    refusal(tmp_path, packed({"train/1.jpg": b"y", "train": b"x"}))


def test_an_archive_in_it_that_would_replace_a_file_is_refused(tmp_path: Path) -> None:
    said = refusal(tmp_path, packed({"train.csv": b"old", "train.csv.zip": packed({"train.csv": b"new"})}))
    assert "(train.csv.zip in it): it holds train.csv twice" in said


def declaring(size: int, content: bytes = b"x") -> bytes:
    """An archive that says its only file has this size."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("1.jpg", content)
        archive.infolist()[0].file_size = size
    return file.getvalue()


def test_a_bomb_is_refused_before_it_is_written(tmp_path: Path) -> None:
    said = refusal(tmp_path, declaring(MARGIN + 1))
    assert f"refused as a bomb, it would write {MARGIN + 1:,} bytes where {MARGIN:,} are allowed" in said
    assert "refused as a bomb" in refusal(tmp_path, declaring(10**15))


@pytest.mark.parametrize(("archives", "fine"), [(2, True), (3, False)])
def test_a_bomb_in_many_archives_is_refused_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archives: int, fine: bool
) -> None:
    size = 2_000_000
    monkeypatch.setattr("podium.kaggle.unpack.MARGIN", 3 * size - 1)
    data = packed({f"{i}.zip": packed({f"{i}.jpg": bytes(size)}) for i in range(archives)})
    if fine:
        assert len(unpacked(tmp_path, data)) == archives
    else:
        assert f"(2.zip in it): refused as a bomb, it would write {size:,} bytes" in refusal(tmp_path, data)


def test_a_bomb_that_denies_its_size_is_cut_off(tmp_path: Path) -> None:
    assert "not a sound zip archive" in refusal(tmp_path, declaring(10, bytes(50_000_000)))


def test_an_archive_larger_than_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.kaggle.unpack.MAX_RATIO", 10**15)
    said = refusal(tmp_path, declaring(10**17))
    assert re.search(r"it needs 100000000\.0 GB and [0-9.]+ GB are free on that disk\); mend that", said)


@pytest.mark.parametrize("data", [b"", b"<html>Please log in</html>", b"Rar!\x1a\x07\0" + bytes(99), bytes(100_000)])
def test_what_is_no_zip_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    assert "not a sound zip archive (File is not a zip file); delete it and run" in refusal(tmp_path, data)


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.99])
def test_a_truncated_archive_is_refused(tmp_path: Path, kept: float) -> None:
    data = packed({f"{i}.jpg": os.urandom(500) for i in range(20)})
    assert "not a sound zip archive" in refusal(tmp_path, data[: int(len(data) * kept)])


def test_a_truncated_archive_in_it_is_refused_by_name(tmp_path: Path) -> None:
    said = refusal(tmp_path, packed({"train.csv": b"id", "images.zip": packed(FILES)[:-30]}))
    assert "it.zip (images.zip in it): not a sound zip archive" in said


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_file_in_it_is_noticed(tmp_path: Path, compression: int) -> None:
    data = bytearray(packed({"1.jpg": os.urandom(2000)}, compression))
    data[1000] ^= 0xFF
    refusal(tmp_path, bytes(data))


def test_an_archive_with_a_password_is_refused(tmp_path: Path) -> None:
    data = bytearray(packed({"train.csv": b"id"}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = data.index(mark) + at
        data[start : start + 2] = struct.pack("<H", struct.unpack("<H", data[start : start + 2])[0] | 1)
    assert "its entry 'train.csv' is locked with a password" in refusal(tmp_path, bytes(data))


@pytest.mark.parametrize("entries", [{}, {"train/": b""}])
def test_an_archive_without_files_is_refused(tmp_path: Path, entries: dict[str, bytes]) -> None:
    assert "it holds no files" in refusal(tmp_path, packed(entries))


def test_a_missing_archive_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.zip", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(PodiumError, match=f"{re.escape(str(path))}: cannot be unpacked \\({reason}"):
            unpack(path, tmp_path / "it")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "it").mkdir()
    (tmp_path / "it" / "mine.txt").write_text("mine")
    (tmp_path / "it.zip").write_bytes(packed(FILES))
    with pytest.raises(PodiumError, match=r"it is there already; delete it to unpack it\.zip anew"):
        unpack(tmp_path / "it.zip", tmp_path / "it")
    assert os.listdir(tmp_path / "it") == ["mine.txt"]


def test_an_interruption_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "it.zip").write_bytes(packed({f"{i}.jpg": b"x" for i in range(9)}))
    opened = zipfile.ZipFile.open
    seen: list[str] = []

    def stop_at_the_fifth(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> object:
        seen.append(member.filename)
        if len(seen) == 5:
            assert len(list((here / ".it.unpacking").iterdir())) == 4
            raise KeyboardInterrupt
        return opened(archive, member)

    monkeypatch.setattr(zipfile.ZipFile, "open", stop_at_the_fifth)
    with pytest.raises(KeyboardInterrupt):
        unpack(here / "it.zip", here / "it")
    assert os.listdir(here) == ["it.zip"]


SOUND = [packed(FILES), packed({"images.zip": packed(FILES)}, zipfile.ZIP_STORED), packed(FILES, zipfile.ZIP_LZMA)]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sound=st.sampled_from(SOUND),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_damaged_archive_is_unpacked_or_refused_and_never_anything_else(
    tmp_path_factory: pytest.TempPathFactory, sound: bytes, changes: list[tuple[int, int]]
) -> None:
    here = tmp_path_factory.mktemp("outside") / "here"
    here.mkdir()
    data = bytearray(sound)
    for at, value in changes:
        data[-1 - at % len(data)] = value
    (here / "it.zip").write_bytes(data)
    try:
        unpack(here / "it.zip", here / "it")
    except PodiumError:
        assert os.listdir(here) == ["it.zip"]
    else:
        assert sorted(os.listdir(here)) == ["it", "it.zip"]
    assert os.listdir(here.parent) == ["here"]
