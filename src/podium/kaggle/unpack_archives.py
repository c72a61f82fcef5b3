"""Unpacks an archive safely: completely or not at all, and only into its own folder."""

import shutil
import stat
import zipfile
from errno import ENOSPC
from pathlib import Path, PurePosixPath

from podium import PodiumError
from podium.terminal import progress_bar

MARGIN = 500_000_000  # bytes to leave free on the disk
MAX_RATIO = 200  # unpacked size over packed size: images reach 1.1, tables 20, a zip bomb 1,000


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks the archive and the archives in it into a new folder; leaves no folder if anything fails."""
    if folder.exists():
        raise PodiumError(f"{folder} exists already; delete it to unpack {archive.name} again")
    unfinished = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(unfinished, ignore_errors=True)
    name = str(archive)
    try:
        bytes_left = _extract(archive, unfinished, max(MARGIN, MAX_RATIO * archive.stat().st_size))
        for inner in sorted(unfinished.rglob("*.[zZ][iI][pP]")):
            name = f"{archive} ({inner.name} in it)"
            bytes_left = _extract(inner, inner.parent, bytes_left)
            inner.unlink()
        if not unfinished.exists():
            raise PodiumError("it holds no files")
        unfinished.rename(folder)
    except Exception as error:  # zipfile and its decompressors raise almost any error on a broken archive
        remedy = f"{_remedy(error)} and run the same command again, or unpack it yourself to {folder}"
        raise PodiumError(f"{name}: {_describe(error)}; {remedy}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _extract(archive: Path, folder: Path, max_bytes: int) -> int:
    """Writes the archive's files unless they exceed `max_bytes`; returns how many bytes the next archive may have."""
    with zipfile.ZipFile(archive) as file:
        members = [member for member in file.infolist() if not member.filename.endswith(("/", "\\"))]
        targets = [folder.joinpath(*_safe_parts(member)) for member in members]
        total = sum(member.file_size for member in members)
        _refuse_too_large(total, max_bytes, archive)
        with progress_bar(total=total, desc=f"unpacking {archive.name}", unit="B", unit_scale=True) as progress:
            for member, target in zip(members, targets, strict=True):
                target.parent.mkdir(parents=True, exist_ok=True)
                with file.open(member) as source, target.open("xb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)  # zipfile never returns more than the declared size
                progress.update(member.file_size)
    return max_bytes - total


def _safe_parts(member: zipfile.ZipInfo) -> tuple[str, ...]:
    """Returns the parts of the member's path; refuses a member that could be written outside the folder."""
    path = PurePosixPath(member.filename.replace("\\", "/"))
    if path.is_absolute() or not path.parts or ".." in path.parts or ":" in path.parts[0]:
        raise PodiumError(f"refused, its entry '{member.filename}' would lie outside the folder")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise PodiumError(f"refused, its entry '{member.filename}' is a link")
    if member.flag_bits & 1:
        raise PodiumError(f"its entry '{member.filename}' is protected with a password")
    return path.parts


def _refuse_too_large(total: int, max_bytes: int, archive: Path) -> None:
    free = shutil.disk_usage(archive.parent).free
    if total > max_bytes:
        raise PodiumError(f"refused as a zip bomb, it would write {total:,} bytes; the limit is {max_bytes:,}")
    if total + MARGIN > free:
        raise OSError(ENOSPC, f"it needs {total / 1e9:.1f} GB and {free / 1e9:.1f} GB are free on that disk")


def _describe(error: Exception) -> str:
    match error:
        case PodiumError():
            return str(error)
        case FileExistsError():
            return f"it holds {Path(error.filename).name} twice"
        case OSError():
            return f"cannot be unpacked ({error.strerror or error})"
        case _:
            return f"not a valid zip archive ({str(error) or type(error).__name__})"


def _remedy(error: Exception) -> str:
    is_of_the_machine = isinstance(error, OSError) and not isinstance(error, FileExistsError)
    return "fix that" if is_of_the_machine else "delete it"
