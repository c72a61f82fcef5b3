"""Brings a competition's files: downloads them with Kaggle's own client and unpacks them safely.

    podium data [-c SLUG]

Writes data/raw/<slug>/. An archive that lies at data/raw/<slug>.zip already, from a browser, serves as
well and needs no account here.
"""

import contextlib
import shutil
import sys
from pathlib import Path

from podium import PodiumError
from podium.competition.load import load, raw_folder
from podium.disk import locked
from podium.kaggle.client import kaggle_client
from podium.kaggle.unpack import unpack
from podium.terminal import command_for, say, show


def get_competition(slug: str, root: Path) -> None:
    """Makes data/raw/<slug>/ be there, and prints what it holds."""
    from podium.competition.digits import DIGITS_SLUG, write_digits

    if slug == DIGITS_SLUG:
        write_digits(root)
        return
    folder = raw_folder(slug, root)
    if folder.is_dir():
        say(f"podium: {folder} is there already; delete it to get it anew")
    else:
        archive = root / "data" / "raw" / f"{slug}.zip"
        with locked(archive.parent / f".{slug}.lock") as mine:
            if not mine:
                raise PodiumError(f"another process is getting {slug} already; wait for it")
            if not folder.is_dir() and not archive.exists():
                download(slug, archive)
            if not folder.is_dir():
                unpack(archive, folder)
    show(load(slug, root).describe())
    say(f"next: {command_for('folds', slug)}")


def download(slug: str, archive: Path) -> None:
    """Kaggle's client writes the archive; it gets its name once it is whole."""
    unfinished = archive.parent / ".download" / slug  # kept after an interruption: the client resumes
    by_hand = (
        f"or download the archive at https://www.kaggle.com/competitions/{slug}/data"
        f" and put it at {archive}, then run the same command again"
    )
    say(f"podium: downloading {slug} from Kaggle")
    with (
        kaggle_client(slug, by_hand) as client,
        contextlib.redirect_stdout(sys.stderr),
    ):  # it advises on standard output
        unfinished.mkdir(parents=True, exist_ok=True)
        client.competition_download_files(slug, path=str(unfinished), quiet=False)
    found = sorted(unfinished.glob("*.zip"))
    if not found:
        raise PodiumError(f"Kaggle's client left no archive in {unfinished}; {by_hand}")
    found[0].replace(archive)
    shutil.rmtree(unfinished, ignore_errors=True)
    with contextlib.suppress(OSError):  # another competition's download may wait beside it
        unfinished.parent.rmdir()
