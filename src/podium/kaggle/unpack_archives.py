"""Unpacks an archive safely, and the archives in it: completely or not at all, and only into its own folder.

Reads an archive of any kind that archive_kinds.py knows. Writes a folder in which no archive is left. Archives in a
folder of the user's are unpacked beside themselves, and stay: they may be the only copy.
"""

import filecmp
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from podium.basics.errors import PodiumError
from podium.basics.extras import MissingPackage
from podium.kaggle.archive_kinds import ARCHIVE_NAME, MARGIN, BrokenArchive, NewFolder, extract

MAX_RATIO = 200  # unpacked size over packed size: images reach 1.1, tables 20, a zip bomb 1,000
MAX_DEPTH = 5  # of archives in archives: one that holds itself has no end


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks the archive and the archives in it into a new folder; leaves no folder if anything fails."""
    if folder.exists():
        raise PodiumError(f"{folder} exists already; delete it to unpack {archive.name} again")

    def advise(error: Exception) -> str:
        return f"{_remedy(error)} and run the same command again, or unpack it yourself to {folder}"

    with _unpacked(archive, folder.with_name(f".{folder.name}.unpacking"), advise) as unfinished:
        if not unfinished.exists():
            raise PodiumError("it holds no files")
        unfinished.rename(folder)


def unpack_in_place(folder: Path, otherwise: Path) -> list[str]:
    """Unpacks the archives below a folder beside themselves; returns their names.

    Where nothing may be written in the folder, `otherwise` gets what they hold, and links to all that lies beside them.
    """
    archives = sorted(archives_below(folder))
    if not archives or os.access(folder, os.W_OK):
        _unpack_beside(archives, folder, folder)
    else:  # under its name only when it is complete: it takes the folder's place
        unfinished = otherwise.with_name(f".{otherwise.name}.unpacking")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        _link_all_but(archives, folder, unfinished)
        _unpack_beside(archives, folder, unfinished)
        unfinished.rename(otherwise)
    return [archive.relative_to(folder).as_posix() for archive in archives]


def _unpack_beside(archives: list[Path], folder: Path, target: Path) -> None:
    """Unpacks archives that are below a folder to the same places below the target."""

    def advise(error: Exception) -> str:
        remedy = error.remedy if isinstance(error, MissingPackage) else "fix that, or download it again"
        return f"{remedy}, and run the same command again, or unpack it yourself in {folder}"

    for archive in archives:
        place = target / archive.relative_to(folder)
        with _unpacked(archive, place.with_name(f".{archive.name}.unpacking"), advise) as unfinished:
            if unfinished.exists():
                _move(unfinished, _place_of(unfinished, place))


@contextmanager
def _unpacked(archive: Path, unfinished: Path, advise: Callable[[Exception], str]) -> Iterator[Path]:
    """Yields a new folder with all that an archive and the archives in it hold; deletes what is left there."""
    shutil.rmtree(unfinished, ignore_errors=True)
    inner_names: list[str] = []  # of the archives in the archive that are being unpacked, the innermost last
    try:
        bytes_left = extract(archive, NewFolder(unfinished, max(MARGIN, MAX_RATIO * archive.stat().st_size)))
        _unpack_archives_in(unfinished, bytes_left, inner_names)
        yield unfinished
    except Exception as error:  # zipfile and its decompressors raise almost any error on a broken archive
        place = f"{archive} ({' in '.join([*reversed(inner_names), 'it'])})" if inner_names else str(archive)
        raise PodiumError(f"{place}: {_describe(error)}; {advise(error)}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _link_all_but(archives: list[Path], folder: Path, target: Path) -> None:
    """Links all that lies in the folder but the archives; folders that hold archives are made anew."""
    for path in folder.iterdir():
        link = target / path.name
        if any(path in archive.parents for archive in archives):
            link.mkdir(exist_ok=True)
            _link_all_but(archives, path, link)
        elif path not in archives and not link.exists():
            link.symlink_to(path.absolute())


def _unpack_archives_in(folder: Path, bytes_left: int, inner_names: list[str]) -> int:
    """Replaces each archive below the folder by what it holds; returns how many bytes may still be written."""
    for archive in sorted(archives_below(folder)):
        inner_names.append(archive.name)
        if len(inner_names) > MAX_DEPTH:
            raise PodiumError(f"refused, archives lie in archives more than {MAX_DEPTH} levels deep")
        unfinished = archive.with_name(f".{archive.name}.unpacking")
        bytes_left = extract(archive, NewFolder(unfinished, bytes_left))
        archive.unlink()
        bytes_left = _unpack_archives_in(unfinished, bytes_left, inner_names)
        if unfinished.exists():
            _move(unfinished, _place_of(unfinished, archive))
        inner_names.pop()
    return bytes_left


def archives_below(folder: Path) -> Iterator[Path]:
    """Yields the archives, without the hidden files of the same names that macOS adds."""
    for path in folder.rglob("*"):
        is_hidden = any(part.startswith((".", "__MACOSX")) for part in path.relative_to(folder).parts)
        if not is_hidden and re.search(ARCHIVE_NAME, path.name) and path.is_file():
            yield path


def _place_of(unpacked: Path, archive: Path) -> Path:
    """Returns the folder that an archive's files belong in: one of the archive's name, beside it.

    If the archive holds nothing but a folder or a file of that name, they need no other folder.
    """
    own_name = re.sub(ARCHIVE_NAME, "", archive.name)
    tops = [path for path in unpacked.iterdir() if not path.name.startswith((".", "__MACOSX"))]
    if len(tops) == 1:
        names = {tops[0].name.lower()} if tops[0].is_dir() else {tops[0].name.lower(), tops[0].stem.lower()}
        if own_name.lower() in names:
            return archive.parent
    return archive.with_name(own_name)


def _move(source: Path, target: Path) -> None:
    """Moves a file or a folder; the content of a folder joins a folder that exists.

    Replaces no file: an equal one counts once, such as those of a folder beside the archive that it came from.
    """
    if not target.exists():
        source.rename(target)
        return
    if source.is_file() and target.is_file() and filecmp.cmp(source, target, shallow=False):
        source.unlink()
        return
    if not (source.is_dir() and target.is_dir()):
        raise FileExistsError(0, "", str(target))
    for path in sorted(source.iterdir()):
        _move(path, target / path.name)
    source.rmdir()


def _describe(error: Exception) -> str:
    match error:
        case MissingPackage():
            return error.problem
        case PodiumError() | BrokenArchive():
            return str(error)
        case FileExistsError():
            return f"it holds {Path(error.filename).name} twice, with different content"
        case OSError():
            return f"cannot be unpacked ({error.strerror or error})"
        case _:
            return f"not a valid zip archive ({str(error) or type(error).__name__})"


def _remedy(error: Exception) -> str:
    if isinstance(error, MissingPackage):
        return error.remedy
    is_of_the_machine = isinstance(error, OSError) and not isinstance(error, FileExistsError)
    return "fix that" if is_of_the_machine else "delete it"
