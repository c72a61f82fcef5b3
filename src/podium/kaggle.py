"""Brings a competition's files: downloads them with Kaggle's own client and unpacks them safely.

    podium data [-c SLUG]

Writes data/raw/<slug>/. An archive that lies at data/raw/<slug>.zip already, from a browser, serves as
well and needs no account here.
"""

import contextlib
import shutil
import stat
import sys
import zipfile
from errno import ENOSPC
from pathlib import Path, PurePosixPath
from typing import Any

from podium import PodiumError
from podium.competition import load, raw_folder
from podium.console import bar, command, say, show

MARGIN = 500_000_000  # bytes to leave free on the disk
MAX_RATIO = 200  # unpacked over packed: pictures reach 1.1, tables 20, a bomb 1,000


def get(slug: str, root: Path) -> None:
    """Makes data/raw/<slug>/ be there, and prints what it holds."""
    from podium.sample import SLUG, write

    if slug == SLUG:
        write(root)
        return
    folder = raw_folder(slug, root)
    if folder.is_dir():
        say(f"podium: {folder} is there already; delete it to get it anew")
    else:
        archive = root / "data" / "raw" / f"{slug}.zip"
        if not archive.exists():
            download(slug, archive)
        unpack(archive, folder)
    show(load(slug, root).describe())
    say(f"next: {command('folds', slug)}")


def download(slug: str, archive: Path) -> None:
    """Kaggle's client writes the archive; it gets its name once it is whole."""
    unfinished = archive.parent / ".download" / slug  # kept after an interruption: the client resumes
    by_hand = (
        f"or download the archive at https://www.kaggle.com/competitions/{slug}/data"
        f" and put it at {archive}, then run the same command again"
    )
    say(f"podium: downloading {slug} from Kaggle")
    try:
        # The client prints advice of its own to standard output, and exits where others raise.
        client = _client()
        unfinished.mkdir(parents=True, exist_ok=True)
        with contextlib.redirect_stdout(sys.stderr):
            client.competition_download_files(slug, path=str(unfinished), quiet=False)
    except SystemExit:
        raise PodiumError(
            "Kaggle does not know you: make a token at https://www.kaggle.com/settings (API) and save it as"
            f" ~/.kaggle/access_token or in KAGGLE_API_TOKEN; {by_hand}"
        ) from None
    except (OSError, ValueError) as error:  # requests raises the first, the client itself the second
        raise PodiumError(f"{_reason(error, slug)}; {by_hand}") from None
    found = sorted(unfinished.glob("*.zip"))
    if not found:
        raise PodiumError(f"Kaggle's client left no archive in {unfinished}; {by_hand}")
    found[0].replace(archive)
    shutil.rmtree(unfinished, ignore_errors=True)
    with contextlib.suppress(OSError):  # another competition's download may wait beside it
        unfinished.parent.rmdir()


def _client() -> Any:
    import io

    quiet = io.StringIO()
    with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):  # importing it authenticates, aloud
        from kaggle.api.kaggle_api_extended import KaggleApi

        client = KaggleApi()
        client.authenticate()
    return client


def _reason(error: Exception, slug: str) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return "Kaggle refused your token (401); make a new one at https://www.kaggle.com/settings"
    if status == 403:
        rules = f"https://www.kaggle.com/competitions/{slug}/rules"
        return f"Kaggle does not let you have {slug} (403); join and accept the rules once at {rules}"
    if status == 404:
        return f"Kaggle has no competition '{slug}' (404); its name is the last part of its page's address"
    if status == 429:
        return "Kaggle asks to wait (429); try again in a few minutes"
    if status is not None:
        return f"Kaggle answered {status}"
    return f"Kaggle cannot be reached ({type(error).__name__})"


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
        with bar(total=total, desc=f"unpacking {archive.name}", unit="B", unit_scale=True) as progress:
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
