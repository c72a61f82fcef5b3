"""Writes the files of one archive (zip, tar or 7z) into a new folder.

Reads the archive. Refuses entries outside the folder, links, passwords, and more bytes than are allowed.
"""

import re
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EINVAL, ENOSPC
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from podium.basics.errors import PodiumError
from podium.basics.extras import import_package
from podium.basics.terminal import progress_bar

ARCHIVE_NAME = r"(?i)\.(zip|7z|tar|tgz|tbz2?|txz|tar\.(gz|bz2|xz))$"
MARGIN = 500_000_000  # bytes to leave free on the disk
BLOCK = 1 << 20  # bytes that are copied at once


class BrokenArchive(Exception):
    """What the package for one kind of archive said of a file that it cannot read."""


class NewFolder:
    """The folder that an archive's files are written into, and how many bytes it may still get."""

    def __init__(self, path: Path, bytes_left: int) -> None:
        self.path, self.bytes_left = path, bytes_left

    def path_of(self, name: str) -> Path:
        """Returns the path of an entry; refuses one that could be written outside the folder."""
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or not path.parts or ".." in path.parts or ":" in path.parts[0]:
            raise PodiumError(f"refused, its entry '{name}' would lie outside the folder")
        return self.path.joinpath(*path.parts)

    def allow(self, size: int) -> None:
        """Counts bytes before they are written; raises if they exceed the limit or the disk."""
        if size > self.bytes_left:
            raise PodiumError(f"refused as a zip bomb, it would write {size:,} bytes; the limit is {self.bytes_left:,}")
        free = shutil.disk_usage(self.path.parent).free
        if size + MARGIN > free:
            raise OSError(ENOSPC, f"it needs {size / 1e9:.1f} GB and {free / 1e9:.1f} GB are free on that disk")
        self.bytes_left -= size

    def create(self, path: Path) -> BinaryIO:
        """Opens a new file; raises if it exists."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("xb")


def extract(archive: Path, folder: NewFolder) -> int:
    """Writes the archive's files into the folder; returns how many bytes the next archive may have."""
    name = archive.name.lower()
    if name.endswith(".7z"):
        _extract_7z(archive, folder)
    elif re.search(ARCHIVE_NAME, name) and not name.endswith(".zip"):
        _extract_tar(archive, folder)
    else:
        _extract_zip(archive, folder)
    return folder.bytes_left


def _extract_zip(archive: Path, folder: NewFolder) -> None:
    with zipfile.ZipFile(archive) as file:
        members = [member for member in file.infolist() if not member.filename.endswith(("/", "\\"))]
        targets = [folder.path_of(member.filename) for member in members]
        for member in members:
            if stat.S_ISLNK(member.external_attr >> 16):
                raise PodiumError(f"refused, its entry '{member.filename}' is a link")
            if member.flag_bits & 1:
                raise PodiumError(f"its entry '{member.filename}' is protected with a password")
        total = sum(member.file_size for member in members)
        folder.allow(total)
        with _progress(archive, total) as progress:
            for member, target in zip(members, targets, strict=True):
                with file.open(member) as source, folder.create(target) as copy:
                    shutil.copyfileobj(source, copy, BLOCK)  # zipfile never returns more than the declared size
                progress.update(member.file_size)


def _extract_tar(archive: Path, folder: NewFolder) -> None:
    """Writes each file as it comes: listing a compressed tar archive first would decompress it twice."""
    with _told_as("tar"), tarfile.open(archive) as file, _progress(archive, None) as progress:
        for member in file:
            if member.isdir():
                continue
            target = folder.path_of(member.name)
            if not member.isfile():
                raise PodiumError(f"refused, its entry '{member.name}' is a link or a device")
            folder.allow(member.size)
            source = file.extractfile(member)
            assert source is not None  # only of entries that are no files
            with source, folder.create(target) as copy:
                shutil.copyfileobj(source, copy, BLOCK)
                if copy.tell() != member.size:
                    raise EOFError(f"'{member.name}' is cut off")
            progress.update(member.size)


def _extract_7z(archive: Path, folder: NewFolder) -> None:
    py7zr = import_package("py7zr", "formats", "unpacking it")

    # py7zr uses threads unless it gets an open file; an interruption would not end them.
    with _told_as("7z"), archive.open("rb") as packed, py7zr.SevenZipFile(packed) as file:
        if file.needs_password():
            raise PodiumError("it is protected with a password")
        members = [member for member in file.files if not member.is_directory]
        targets = [folder.path_of(member.filename) for member in members]
        for member in members:
            if not member.is_file or member.is_symlink or member.is_junction:
                raise PodiumError(f"refused, its entry '{member.filename}' is a link or a device")
        sizes = dict(zip(targets, (member.uncompressed for member in members), strict=True))
        if len(sizes) < len(members):
            raise FileExistsError(0, "", str(next(target for target in targets if targets.count(target) > 1)))
        folder.allow(sum(sizes.values()))
        with _progress(archive, sum(sizes.values())) as progress:
            files = _FilesOf7z(folder, sizes, progress)
            try:
                file.extractall(folder.path.resolve(), factory=files)
            finally:
                files.close()


class _FilesOf7z:
    """Opens the files that py7zr writes, one at a time."""

    def __init__(self, folder: NewFolder, sizes: dict[Path, int], progress: Any) -> None:
        self.folder, self.sizes, self.progress = folder, sizes, progress
        self.root = folder.path.resolve()
        self.file: BinaryIO | None = None

    def create(self, filename: str) -> BinaryIO:
        """py7zr calls this with the absolute path of each file before it writes the file."""
        self.close()
        target = self.folder.path_of(Path(filename).relative_to(self.root).as_posix())
        self.file = self.folder.create(target)
        self.progress.update(self.sizes.get(target, 0))
        return self.file

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


@contextmanager
def _told_as(kind: str) -> Iterator[None]:
    """Turns the errors of a package into one that names the kind of archive; keeps Podium's and the machine's."""
    try:
        yield
    except (PodiumError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, EINVAL):  # of the machine; EINVAL: a wrong offset
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        raise BrokenArchive(f"not a valid {kind} archive ({text})") from None


def _progress(archive: Path, total: int | None) -> Any:
    return progress_bar(total=total, desc=f"unpacking {archive.name}", unit="B", unit_scale=True)
