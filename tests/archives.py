"""Archives with given files, for tests of what unpacks them."""

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal


def make_zip(entries: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Returns an archive with these files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(make_entry(name, compression), content)
    return file.getvalue()


def zip_folder(folder: Path, within: Path) -> bytes:
    """Returns an archive of all files below a folder, whose paths in it begin below `within`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return make_zip({path.relative_to(within).as_posix(): path.read_bytes() for path in files})


def make_entry(name: str, compression: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    """Returns an entry with exactly this name; zipfile itself would normalise it."""
    member = zipfile.ZipInfo("x")
    member.filename = name
    member.compress_type = compression
    return member


def make_tar(entries: Mapping[str, bytes], mode: Literal["w", "w:gz", "w:bz2", "w:xz"] = "w:gz") -> bytes:
    """Returns an archive with these files."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as archive:
        for name, content in entries.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def make_7z(entries: Mapping[str, bytes]) -> bytes:
    """Returns an archive with these files."""
    from py7zr import SevenZipFile

    file = io.BytesIO()
    with SevenZipFile(file, "w") as archive:
        for name, content in entries.items():
            archive.writestr(content, name)
    return file.getvalue()
