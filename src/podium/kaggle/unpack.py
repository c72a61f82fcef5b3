"""Unpacks an archive safely: all of it or nothing, and nothing outside its folder."""

import shutil
import stat
import zipfile
from errno import ENOSPC
from pathlib import Path, PurePosixPath

from podium import PodiumError
from podium.terminal import progress_bar

MARGIN = 500_000_000  # bytes to leave free on the disk
MAX_RATIO = 200  # unpacked over packed: pictures reach 1.1, tables 20, a bomb 1,000


def unpack(archive: Path, folder: Path) -> None:
    """All of the archive, and of the archives in it, or nothing; nothing outside `folder`."""
    if folder.exists():
        raise PodiumError(f"{folder} is there already; delete it to unpack {archive.name} anew")
    unfinished = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(unfinished, ignore_errors=True)
    name = str(archive)
    try:
        left = _unzip(archive, unfinished, max(MARGIN, MAX_RATIO * archive.stat().st_size))
        for inner in sorted(unfinished.rglob("*.[zZ][iI][pP]")):
            name = f"{archive} ({inner.name} in it)"
            left = _unzip(inner, inner.parent, left)
            inner.unlink()
        if not unfinished.exists():
            raise PodiumError("it holds no files")
        unfinished.rename(folder)
    except Exception as error:  # a broken archive makes zipfile and its decompressors raise nearly anything
        remedy = f"{_what_helps(error)} and run the same command again, or unpack it yourself to {folder}"
        raise PodiumError(f"{name}: {_what_broke(error)}; {remedy}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _unzip(archive: Path, folder: Path, most: int) -> int:
    """Writes the archive's files if they are not more than `most` bytes; how many more may follow."""
    with zipfile.ZipFile(archive) as opened:
        members = [member for member in opened.infolist() if not member.filename.endswith(("/", "\\"))]
        parts = [_parts_inside(member) for member in members]
        total = sum(member.file_size for member in members)
        free = shutil.disk_usage(archive.parent).free
        if total > most:
            raise PodiumError(f"refused as a bomb, it would write {total:,} bytes where {most:,} are allowed")
        if total + MARGIN > free:
            raise OSError(ENOSPC, f"it needs {total / 1e9:.1f} GB and {free / 1e9:.1f} GB are free on that disk")
        with progress_bar(total=total, desc=f"unpacking {archive.name}", unit="B", unit_scale=True) as progress:
            for member, inside in zip(members, parts, strict=True):
                target = folder.joinpath(*inside)
                target.parent.mkdir(parents=True, exist_ok=True)
                with opened.open(member) as source, target.open("xb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)  # zipfile never gives more than the declared size
                progress.update(member.file_size)
    return most - total


def _parts_inside(member: zipfile.ZipInfo) -> tuple[str, ...]:
    """The member's path; refused where it could lead out of a folder."""
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if path.is_absolute() or not path.parts or ".." in path.parts or ":" in path.parts[0]:
        raise PodiumError(f"refused, its entry '{member.filename}' would lie outside the folder")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise PodiumError(f"refused, its entry '{member.filename}' is a link")
    if member.flag_bits & 1:
        raise PodiumError(f"its entry '{member.filename}' is locked with a password")
    return path.parts


def _what_broke(error: Exception) -> str:
    match error:
        case PodiumError():
            return str(error)
        case FileExistsError():
            return f"it holds {Path(error.filename).name} twice"
        case OSError():
            return f"cannot be unpacked ({error.strerror or error})"
        case _:
            return f"not a sound zip archive ({str(error) or type(error).__name__})"


def _what_helps(error: Exception) -> str:
    of_the_machine = isinstance(error, OSError) and not isinstance(error, FileExistsError)
    return "mend that" if of_the_machine else "delete it"
